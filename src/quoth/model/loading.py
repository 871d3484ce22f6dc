"""`load`: a model from a folder or a hub id."""

from __future__ import annotations

from pathlib import Path

import torch

from quoth.encoder import Encoder
from quoth.errors import QuothError
from quoth.heads import build_head
from quoth.model.checkpoint import Checkpoint, open_checkpoint
from quoth.model.model import Model, Origin
from quoth.model.tuned import base_weights, check_delta
from quoth.model.weights import read_tensors
from quoth.tune import build_tuning


def load(
    source: str | Path,
    *,
    base: str | Path | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> Model:
    """Load a model from a folder or a hub id, for inference (`.train()` switches dropout on).

    All names and shapes are checked against the files' headers before a weight is read, and the weights for NaN
    and infinity before the model is handed over. A folder that holds a delta is put on the base that it names (or on
    `base`, if that was moved), after the base's weights were found to be the ones it was trained on.
    """
    checkpoint = open_checkpoint(source, base=base)
    stored = base_weights(checkpoint) if checkpoint.base is not None else {}
    model = empty(checkpoint)
    check(model, checkpoint)
    stored.update(read_tensors(checkpoint.own))
    weights = {name: stored[name].to(device, dtype, copy=True) for name in checkpoint.tensors}
    model.load_state_dict(weights, assign=True)
    return model.eval()


def empty(checkpoint: Checkpoint) -> Model:
    """The model that a checkpoint describes, its tuning's modules included, without weights (on the meta device)."""
    files, sizes = checkpoint.files, (checkpoint.shape.hidden, len(checkpoint.shape.layers))
    origin = Origin(files.source, checkpoint.config, files.tokenizer, checkpoint.unused)
    try:
        with torch.device("meta"):
            encoder = Encoder(checkpoint.shape, checkpoint.style)
            model = Model(encoder, family=checkpoint.family.name, pooler=checkpoint.pooler, origin=origin)
            model.head = build_head(checkpoint.head, *sizes) if checkpoint.head else None
            if checkpoint.tuning is not None:
                model.tuning = build_tuning(checkpoint.tuning)
                model.tuning.install(encoder)
    except QuothError as error:
        raise QuothError(f"{files.description}: {error}") from None
    model.windows, model.base = checkpoint.windows, checkpoint.base
    return model


def check(model: Model, checkpoint: Checkpoint) -> None:
    """Compare names and shapes of what the files hold with what the model wants, without reading a weight."""
    source = checkpoint.files.source
    if model.head is not None and model.head.pooled and model.pooler is None:
        raise QuothError(f"{source}: the head needs a pooler, which the weights do not have")
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    for name, shape in expected.items():
        found = checkpoint.tensors.get(name)
        if found is None:
            raise QuothError(f"{source}: tensor {_their_name(model, checkpoint, name)} is missing from the weights")
        if found.shape != shape:
            raise QuothError(f"{source}: tensor {found.name} should have shape {shape} but has {found.shape}")
    extra = [found.name for name, found in checkpoint.tensors.items() if name not in expected]
    if extra:
        raise QuothError(f"{source}: tensor {extra[0]} has no place in the shape that the description gives")
    if checkpoint.base is not None:
        check_delta(model, checkpoint)


def _their_name(model: Model, checkpoint: Checkpoint, name: str) -> str:
    """The name by which the user knows a tensor that is not there: as the other names in the file are written."""
    if checkpoint.config is None or checkpoint.files.description.name == "quoth.json":
        return name
    prefixed = any(t.name.startswith(model.family.prefix) for t in checkpoint.tensors.values())
    kind = checkpoint.head["kind"] if checkpoint.head else None
    return model.family.to_hugging_face(name, kind or ("span" if prefixed else None))

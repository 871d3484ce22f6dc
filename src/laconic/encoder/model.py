"""`Model`: an encoder with what stands on it, loaded from and saved to folders.

model = load("bert-base-uncased")          # a hub id, a Hugging Face folder or a Laconic folder
save(model, "folder")                      # a Laconic folder, any shape
save_hugging_face(model, "folder")         # where transformers has a class for the shape
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from laconic._version import __version__
from laconic.encoder.checkpoint import FORMAT, Checkpoint, open_checkpoint, read_bin
from laconic.encoder.encoder import Encoder
from laconic.encoder.families import family_of
from laconic.errors import LaconicError
from laconic.files import atomic_folder, write_json
from laconic.heads import Head, build_head
from laconic.text.packed import Packed


@dataclass(frozen=True)
class Origin:
    """Where a model came from, for what is kept when it is saved again."""

    source: str = ""
    config: dict[str, Any] | None = None
    tokenizer: tuple[Path, ...] = ()
    unused: tuple[str, ...] = ()


class Model(nn.Module):
    """An encoder, perhaps its family's pooler (dense h → h and tanh on the first token), perhaps a head."""

    def __init__(
        self,
        encoder: Encoder,
        head: Head | None = None,
        *,
        family: str = "bert",
        pooler: bool = False,
        origin: Origin | None = None,
    ) -> None:
        super().__init__()
        self.family = family_of(family, "model")
        self.encoder = encoder
        self.pooler = nn.Linear(encoder.shape.hidden, encoder.shape.hidden) if pooler else None
        self.head: Any = head  # a `Head`, or None
        self.origin = origin or Origin()

    def forward(self, packed: Packed[Tensor]) -> Any:
        """Logits of a batch: (start (T,), end (T,)) from a span head, (n, labels) from a classification head."""
        if self.head is None:
            raise LaconicError("this model has no head: use model.encoder for states, or train a head")
        states = self.encoder(packed, self.head.reads)
        if self.head.task == "span":
            return self.head(states, packed)
        first = [state[packed.starts[:-1].long()] for state in states]
        if self.head.pooled and self.pooler is not None:
            first.append(torch.tanh(self.pooler(first[-1])))
        return self.head(first)


def load(source: str | Path, *, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu") -> Model:
    """Load a model from a folder or a hub id, for inference (`.train()` switches dropout on).

    All names and shapes are checked against the files' headers before a weight is read, and the weights for NaN
    and infinity before the model is handed over.
    """
    checkpoint = open_checkpoint(source)
    model = _empty(checkpoint)
    _check(model, checkpoint)
    weights = _read(checkpoint, dtype, device)
    model.load_state_dict(weights, assign=True)
    return model.eval()


def save(model: Model, folder: str | Path) -> None:
    """Save as a Laconic model folder: laconic.json, model.safetensors, the tokenizer's files. Any shape."""
    head = model.head.to_json() if model.head is not None else None
    description = {
        "format": FORMAT,
        "laconic": __version__,
        "family": model.family.name,
        "shape": model.encoder.shape.to_json(),
        "style": model.encoder.style.to_json(),
        "head": head,
        "provenance": {"source": model.origin.source},
        "config": model.origin.config,
    }
    _write(folder, "laconic.json", description, _weights(model), model)


def save_hugging_face(model: Model, folder: str | Path) -> None:
    """Save as a Hugging Face folder, or say why no class of transformers can hold this shape."""
    family = model.family
    kind = _linear_kind(model)
    suffix = {None: "Model", "span": "ForQuestionAnswering", "class": "ForSequenceClassification"}[kind]
    sizes = family.config(model.encoder.shape, model.encoder.style)
    kept = {k: v for k, v in (model.origin.config or {}).items() if k not in ("dtype", "torch_dtype")}
    config = {**kept, **sizes, "architectures": [family.classes + suffix]}
    weights = {family.to_hugging_face(name, kind): value for name, value in _weights(model).items()}
    _write(folder, "config.json", config, weights, model)


def _linear_kind(model: Model) -> str | None:
    """The kind of head, as far as transformers has classes for it."""
    kind = model.head.to_json()["kind"] if model.head is not None else None
    if kind not in (None, "span", "class"):
        raise LaconicError(f"transformers has no class for a head of kind {kind!r}; save as a Laconic folder")
    return kind


def _empty(checkpoint: Checkpoint) -> Model:
    with torch.device("meta"):
        encoder = Encoder(checkpoint.shape, checkpoint.style)
        head = build_head(checkpoint.head, checkpoint.shape.hidden) if checkpoint.head else None
        files = checkpoint.files
        origin = Origin(files.source, checkpoint.config, files.tokenizer, checkpoint.unused)
        return Model(encoder, head, family=checkpoint.family.name, pooler=checkpoint.pooler, origin=origin)


def _check(model: Model, checkpoint: Checkpoint) -> None:
    source = checkpoint.files.source
    if model.head is not None and model.head.pooled and model.pooler is None:
        raise LaconicError(f"{source}: the head needs a pooler, which the weights do not have")
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    for name, shape in expected.items():
        found = checkpoint.tensors.get(name)
        if found is None:
            raise LaconicError(f"{source}: tensor {_their_name(model, checkpoint, name)} is missing from the weights")
        if found.shape != shape:
            raise LaconicError(f"{source}: tensor {found.name} should have shape {shape} but has {found.shape}")
    extra = [found.name for name, found in checkpoint.tensors.items() if name not in expected]
    if extra:
        raise LaconicError(f"{source}: tensor {extra[0]} has no place in the shape that the description gives")


def _their_name(model: Model, checkpoint: Checkpoint, name: str) -> str:
    """The name by which the user knows a tensor that is not there: as the other names in the file are written."""
    if checkpoint.config is None or checkpoint.files.description.name == "laconic.json":
        return name
    prefixed = any(t.name.startswith(model.family.prefix) for t in checkpoint.tensors.values())
    kind = checkpoint.head["kind"] if checkpoint.head else None
    return model.family.to_hugging_face(name, kind or ("span" if prefixed else None))


def _read(checkpoint: Checkpoint, dtype: torch.dtype, device: str | torch.device) -> dict[str, Tensor]:
    by_file = defaultdict(list)
    for name, tensor in checkpoint.tensors.items():
        by_file[tensor.file].append((name, tensor.name))
    weights = {}
    for file, names in by_file.items():
        if file.suffix == ".bin":
            stored = read_bin(file)
            weights.update({ours: stored[theirs] for ours, theirs in names})
            continue
        try:
            with safe_open(file, framework="pt") as opened:
                weights.update({ours: opened.get_tensor(theirs) for ours, theirs in names})
        except SafetensorError as error:
            raise LaconicError(f"{file}: damaged ({error}); fetch it again") from None
    for name, value in weights.items():
        if not value.is_floating_point():
            raise LaconicError(f"{checkpoint.tensors[name].name}: holds {value.dtype}, not floating-point numbers")
        if not torch.isfinite(value).all():
            where = checkpoint.tensors[name]
            raise LaconicError(f"{where.file}: tensor {where.name} holds NaN or infinite values; the file is damaged")
    return {name: value.to(device, dtype, copy=True) for name, value in weights.items()}


def _weights(model: Model) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}


def _write(
    folder: str | Path, name: str, description: dict[str, Any], weights: dict[str, Tensor], model: Model
) -> None:
    for path in model.origin.tokenizer:
        if not path.is_file():
            raise LaconicError(f"{path}: the tokenizer that this model was loaded with is gone; nothing was saved")
    with atomic_folder(folder) as part:
        save_file(weights, part / "model.safetensors", metadata={"format": "pt"})
        for path in model.origin.tokenizer:
            shutil.copyfile(path, part / path.name)
        write_json(part / name, description)

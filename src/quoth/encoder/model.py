"""`Model`: an encoder with what stands on it, loaded from and saved to folders.

model = load("bert-base-uncased")          # a hub id, a Hugging Face folder or a Quoth folder
save(model, "folder")                      # a Quoth folder, any shape; of a tuned model only what was trained
save_hugging_face(model, "folder")         # where transformers has a class for the shape
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from quoth._version import __version__
from quoth.encoder.checkpoint import FORMAT, Base, Checkpoint, open_checkpoint, read_bin
from quoth.encoder.checkpoint import Tensor as Stored
from quoth.encoder.encoder import Encoder
from quoth.encoder.families import family_of
from quoth.errors import QuothError
from quoth.files import atomic_folder, write_json
from quoth.heads import Head, build_head
from quoth.hub import DELTA
from quoth.text.packed import Packed

if TYPE_CHECKING:
    from quoth.tune import Tuning


@dataclass(frozen=True)
class Origin:
    """Where a model came from, for what is kept when it is saved again."""

    source: str = ""
    config: dict[str, Any] | None = None
    tokenizer: tuple[Path, ...] = ()
    unused: tuple[str, ...] = ()


class Model(nn.Module):
    """An encoder, perhaps its family's pooler (dense h → h and tanh on the first token), perhaps a head.

    tuning and base are set by `quoth.tune.apply` and by `load`: how the model learns or learned, and on what; base
    is None where the model stands for itself and is saved whole.
    """

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
        self.tuning: Tuning | None = None
        self.windows: dict[str, int] | None = None  # the max_length, step and question_limit that it was trained with
        self.base: Base | None = None

    def forward(self, packed: Packed[Tensor]) -> Any:
        """Logits of a batch.

        (start (T,), end (T,)) from a span head, (n, labels) from a classification head; from a head of pre-training the
        words of masked places (m, vocab) and, if it has that, whether B follows (n, 2).
        """
        if self.head is None:
            raise QuothError("this model has no head: use model.encoder for states, or train a head")
        return self.read(self.head, self.encoder(packed, self.head.reads), packed)

    def read(self, head: Any, states: Sequence[Tensor] | Tensor, packed: Packed[Tensor]) -> Any:
        """What a head, this model's or another, makes of the states of the layers that it reads."""
        if head.task == "span":
            return head(states, packed)
        places = packed.starts[:-1].long()
        if head.task == "mlm":
            table = self.encoder.embeddings.words.weight
            return head(states, packed, table, self._pool(states[-1][places]) if head.pooled else None)
        first = [state[places] for state in states]
        if head.pooled and self.pooler is not None:
            first.append(self._pool(first[-1]))
        return head(first)

    def _pool(self, first: Tensor) -> Tensor:
        """The pooler's output for first tokens: (n, h) → (n, h)."""
        if self.pooler is None:
            raise QuothError("this model's head reads a pooler, which the model does not have")
        return torch.tanh(self.pooler(first))


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
    stored: dict[str, Tensor] = {}
    if checkpoint.base is not None:
        from quoth.tune.delta import base_weights

        stored = base_weights(checkpoint)
    model = empty(checkpoint)
    check(model, checkpoint)
    stored.update(read(checkpoint.own))
    weights = {name: stored[name].to(device, dtype, copy=True) for name in checkpoint.tensors}
    model.load_state_dict(weights, assign=True)
    return model.eval()


def save(model: Model, folder: str | Path) -> None:
    """Save as a Quoth model folder: quoth.json, the weights, the tokenizer's files. Any shape.

    The weights are model.safetensors; or, if the model was tuned on a base that can be loaded again, only what was
    trained, as delta.safetensors.
    """
    head = model.head.to_json() if model.head is not None else None
    description = {
        "format": FORMAT,
        "quoth": __version__,
        "family": model.family.name,
        "shape": model.encoder.shape.to_json(),
        "style": model.encoder.style.to_json(),
        "tuning": model.tuning.to_json() if model.tuning is not None else None,
        "head": head,
        "windows": model.windows,
        "provenance": {"source": model.origin.source},
        "config": model.origin.config,
    }
    if model.base is None:
        _write(folder, "quoth.json", description, "model.safetensors", _weights(model), model)
        return
    from quoth.tune.delta import delta_names

    if Path(folder).resolve() == Path(model.base.source).resolve():
        raise QuothError(f"{folder}: the base of this model lies there, without which it is nothing; save elsewhere")
    description["base"] = {"source": model.base.source, "sha256": model.base.sha256}
    description["pooler"] = model.pooler is not None
    _write(folder, "quoth.json", description, DELTA, _weights(model, delta_names(model)), model)


def save_hugging_face(model: Model, folder: str | Path) -> None:
    """Save as a Hugging Face folder, or say why no class of transformers can hold this shape."""
    from quoth.tune.apply import installed

    found = installed(model)
    if found:
        how = "merge it first (quoth.tune.merge)" if found == "LoRA" else "save as a Quoth folder"
        raise QuothError(f"transformers has no class for an encoder with {found}; {how}")
    family = model.family
    if model.head is not None and model.head.task == "mlm" and family.mlm_rules:
        kind: str | None = "mlm"
        suffix = "ForPreTraining" if model.head.pooled else "ForMaskedLM"
    else:
        kind = linear_kind(model)
        suffix = {None: "Model", "span": "ForQuestionAnswering", "class": "ForSequenceClassification"}[kind]
    sizes = family.config(model.encoder.shape, model.encoder.style)
    kept = {k: v for k, v in (model.origin.config or {}).items() if k not in ("dtype", "torch_dtype")}
    config = {**kept, **sizes, "architectures": [family.classes + suffix]}
    weights = {family.to_hugging_face(name, kind): value for name, value in _weights(model).items()}
    _write(folder, "config.json", config, "model.safetensors", weights, model)


def linear_kind(model: Model) -> str | None:
    """The kind of head, as far as transformers has classes for it."""
    kind = model.head.to_json()["kind"] if model.head is not None else None
    if kind not in (None, "span", "class"):
        raise QuothError(f"transformers has no class for a head of kind {kind!r}; save as a Quoth folder")
    return kind


def empty(checkpoint: Checkpoint) -> Model:
    """The model that a checkpoint describes, its tuning's modules included, without weights (on the meta device)."""
    with torch.device("meta"):
        encoder = Encoder(checkpoint.shape, checkpoint.style)
        sizes = (checkpoint.shape.hidden, len(checkpoint.shape.layers))
        head = build_head(checkpoint.head, *sizes) if checkpoint.head else None
        files = checkpoint.files
        origin = Origin(files.source, checkpoint.config, files.tokenizer, checkpoint.unused)
        model = Model(encoder, head, family=checkpoint.family.name, pooler=checkpoint.pooler, origin=origin)
        model.windows = checkpoint.windows
    if checkpoint.tuning is not None:
        from quoth.tune import build_tuning

        try:
            model.tuning = build_tuning(checkpoint.tuning)
            model.tuning.install(model)
        except QuothError as error:
            raise QuothError(f"{files.description}: {error}") from None
    model.base = checkpoint.base
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
        from quoth.tune.delta import check_delta

        check_delta(model, checkpoint)


def _their_name(model: Model, checkpoint: Checkpoint, name: str) -> str:
    """The name by which the user knows a tensor that is not there: as the other names in the file are written."""
    if checkpoint.config is None or checkpoint.files.description.name == "quoth.json":
        return name
    prefixed = any(t.name.startswith(model.family.prefix) for t in checkpoint.tensors.values())
    kind = checkpoint.head["kind"] if checkpoint.head else None
    return model.family.to_hugging_face(name, kind or ("span" if prefixed else None))


def read(tensors: Mapping[str, Stored]) -> dict[str, Tensor]:
    """Read tensors as they are stored, under the given names, each found to be of finite numbers."""
    by_file = defaultdict(list)
    for name, tensor in tensors.items():
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
            raise QuothError(f"{file}: damaged ({error}); fetch it again") from None
    for name, value in weights.items():
        where = tensors[name]
        if not value.is_floating_point():
            raise QuothError(f"{where.name}: holds {value.dtype}, not floating-point numbers")
        if not torch.isfinite(value).all():
            raise QuothError(f"{where.file}: tensor {where.name} holds NaN or infinite values; the file is damaged")
    return weights


def _weights(model: Model, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """The tensors of a model, or those of these names, where safetensors can take them."""
    kept = {name: value for name, value in model.state_dict().items() if names is None or name in names}
    return {name: value.detach().cpu().contiguous() for name, value in kept.items()}


def write_weights(path: Path, weights: dict[str, Tensor], shown: str | Path) -> None:
    """Write a safetensors file; if that fails (a full disk, say), say so of `shown`, the place the user knows."""
    try:
        save_file(weights, path, metadata={"format": "pt"})
    except SafetensorError as error:  # safetensors wraps what the system said
        raise QuothError(f"{shown}: could not be written ({str(error).strip()}); nothing was saved") from None


def _write(
    folder: str | Path,
    name: str,
    description: dict[str, Any],
    weights_name: str,
    weights: dict[str, Tensor],
    model: Model,
) -> None:
    for path in model.origin.tokenizer:
        if not path.is_file():
            raise QuothError(f"{path}: the tokenizer that this model was loaded with is gone; nothing was saved")
    with atomic_folder(folder) as part:
        write_weights(part / weights_name, weights, Path(folder) / weights_name)
        for path in model.origin.tokenizer:
            shutil.copyfile(path, part / path.name)
        write_json(part / name, description)

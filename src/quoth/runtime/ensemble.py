"""Ensembles of span models: loaded so that equal encoders are held and run once, and saved as a model folder.

    save_ensemble(["encoder", "head-a", "head-b"], "together", how="max")
    runner = load_ensemble("together")         # or Reader.load("together")

Members whose encoders have the same weights share one: it runs once a batch and returns every layer that one of their
heads reads. Different encoders run one after another. How the logits are combined is in `quoth.runtime.combine`.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from quoth._version import __version__
from quoth.encoder import Device, Encoder
from quoth.encoder.inference import for_inference
from quoth.errors import QuothError
from quoth.files import write_json
from quoth.folders import atomic_folder
from quoth.heads import Head
from quoth.heads.head import SpanOutput
from quoth.model import Checkpoint, Model, load, open_checkpoint, save
from quoth.model.checkpoint import FORMAT
from quoth.model.loading import check, empty
from quoth.model.weights import read_tensors
from quoth.runtime.combine import How, check_how, combine
from quoth.runtime.logits import SpanLogits
from quoth.runtime.members import check_together, open_ensemble
from quoth.tune import inserted
from quoth.windows import Packed

Known = dict[tuple[Any, ...], Encoder]


@dataclass(frozen=True, eq=False)
class Body:
    """An encoder, the heads that use it by the number of their member, and the layers that any of them reads."""

    encoder: Encoder
    heads: dict[int, Head]
    layers: tuple[int, ...]


class EnsembleRunner:
    """Span logits of packed batches, combined from several models. See `TorchRunner` for device and precision.

    Models with the same encoder *object* share its pass; `load_members` gives equal encoders one object. Poolers are
    left out, since no span head reads them.
    """

    def __init__(
        self, models: Sequence[Model], how: How = "max", device: str | None = None, precision: str | None = None
    ) -> None:
        self.how = check_how(how)
        _check_members(models)
        self.device = Device.choose(device, precision)
        self.bodies = _bodies(models)
        self.members = len(models)
        self.longest = min(body.encoder.longest_window for body in self.bodies)
        self.budget = self.device.token_budget()
        for module in self._modules():
            module.to(self.device.place).eval()
        self._encoders = [for_inference(body.encoder, self.device) for body in self.bodies]

    @property
    def parameters(self) -> int:
        """All parameters of encoders and heads; a shared encoder counts once."""
        values = {id(value): value.numel() for module in self._modules() for value in module.parameters()}
        return sum(values.values())

    def flops(self, length: int) -> int:
        """Forward floating-point operations of a window of `length` tokens, encoders alone, a shared one once."""
        return length * sum(body.encoder.shape.flops(length) for body in self.bodies)

    def __call__(self, packed: Packed[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Start and end logits, (T,) float32 each, of all members together."""
        members = [SpanLogits(start, end) for start, end in self.member_logits(packed)]
        both = combine(members, packed.starts, self.how)
        return both.start, both.end

    @torch.inference_mode()
    def member_logits(self, packed: Packed[np.ndarray]) -> np.ndarray:
        """The start and end logits of each of M members: (M, 2, T) float32."""
        host = packed.map(torch.from_numpy)
        for body in self.bodies:
            body.encoder.check(host)
        batch = host.to(self.device.place)
        logits: dict[int, torch.Tensor] = {}
        for body, encoder in zip(self.bodies, self._encoders):
            with self.device.autocast():
                states = dict(zip(body.layers, encoder(batch, body.layers)))
                for number, head in body.heads.items():
                    start, end = cast(SpanOutput, head(tuple(states[layer] for layer in head.reads), batch))
                    logits[number] = torch.stack([start, end]).float()
        return torch.stack([logits[number] for number in range(self.members)]).cpu().numpy()

    def _modules(self) -> list[Any]:
        return [module for body in self.bodies for module in (body.encoder, *body.heads.values())]


def save_ensemble(members: Sequence[str | Path], folder: str | Path, how: How = "max") -> None:
    """Save models (folders or hub ids, at least two) as one model folder that `Reader.load` opens.

    Each member is saved inside, whole, or as a delta if it is one; a delta still needs its base where that lies.
    """
    check_how(how)
    if len(members) < 2:
        raise QuothError(f"an ensemble has at least two members, but {len(members)} is given")
    checkpoints = [open_checkpoint(member) for member in members]
    lead = check_together(checkpoints)
    _check_place(checkpoints, Path(folder))
    with atomic_folder(folder) as part:
        models = load_members(checkpoints)
        _check_members(models)
        names = [f"members/{number}" for number in range(len(models))]
        for model, name in zip(models, names):
            save(model, part / name)
        for path in lead.files.tokenizer:
            shutil.copyfile(path, part / path.name)
        table = {"how": how, "members": names, "encoders": _numbers(models)}
        write_json(part / "quoth.json", {"format": FORMAT, "quoth": __version__, "ensemble": table})


def load_ensemble(source: str | Path, device: str | None = None, precision: str | None = None) -> EnsembleRunner:
    """Load an ensemble that `save_ensemble` wrote."""
    ensemble = open_ensemble(source)
    check_together(ensemble.members)
    models = load_members(ensemble.members)
    numbers = _numbers(models)
    for number, (said, found) in enumerate(zip(ensemble.encoders, numbers)):
        if said != found:
            raise QuothError(
                f"{ensemble.members[number].files.source}: its encoder was changed since the ensemble was made "
                f"(it is encoder {found} now, not {said!r}); make the ensemble again"
            )
    return EnsembleRunner(models, ensemble.how, device, precision)


def load_members(checkpoints: Sequence[Checkpoint]) -> list[Model]:
    """Load models; those whose encoders are equal in every bit of their weights share one, the same object.

    A model that only has a head of its own on a base that is here already is not loaded whole: its pooler, if it is
    the base's, stays without weights.
    """
    models: list[Model] = []
    known: Known = {}
    for checkpoint in checkpoints:
        model = _load(checkpoint, known)
        twin = next((other for other in models if _same_encoder(model, other)), None)
        if twin is not None:
            model.encoder = twin.encoder
        if key := _key(checkpoint):
            known[key] = model.encoder
        models.append(model)
    return models


def _key(checkpoint: Checkpoint) -> tuple[Any, ...] | None:
    """Of a delta without a weight of the encoder: what its encoder is, by the hash of its base."""
    if checkpoint.base is None or checkpoint.below is None:
        return None
    if any(name.startswith("encoder.") for name in checkpoint.own):
        return None
    return checkpoint.base.sha256, checkpoint.shape, checkpoint.style


def _load(checkpoint: Checkpoint, known: Known) -> Model:
    """Load a model, or, if its encoder is known, what it has of its own."""
    key = _key(checkpoint)
    if key is None or key not in known:
        return load(checkpoint.files.source)
    model = empty(checkpoint)
    check(model, checkpoint)
    own = {name: value.to(torch.float32) for name, value in read_tensors(checkpoint.own).items()}
    model.load_state_dict(own, strict=False, assign=True)  # not strict: the encoder follows
    model.encoder = known[key]
    return model.eval()


def _same_encoder(one: Model, other: Model) -> bool:
    """Whether two encoders compute the same: sizes, style, what was inserted into the layers, and every weight."""
    a, b = one.encoder, other.encoder
    if a is b:
        return True
    if (a.shape, a.style, _inserted(one)) != (b.shape, b.style, _inserted(other)):
        return False
    mine, theirs = a.state_dict(), b.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in mine.items())


def _inserted(model: Model) -> dict[str, Any] | None:
    """The settings of adapters or LoRA, some of which (LoRA's α) are in no tensor; None where there are none."""
    return model.tuning.to_json() if model.tuning is not None and inserted(model.encoder) else None


def _numbers(models: Sequence[Model]) -> list[int]:
    """The number of each model's encoder, in the order in which they come."""
    seen = list(dict.fromkeys(id(model.encoder) for model in models))
    return [seen.index(id(model.encoder)) for model in models]


def _bodies(models: Sequence[Model]) -> list[Body]:
    numbers = _numbers(models)
    bodies = []
    for body in range(max(numbers) + 1):
        heads = {i: model.head for i, model in enumerate(models) if numbers[i] == body}
        layers = tuple(sorted({layer for head in heads.values() for layer in head.reads}))
        bodies.append(Body(models[numbers.index(body)].encoder, heads, layers))
    return bodies


def _check_members(models: Sequence[Model]) -> None:
    if not models:
        raise QuothError("an ensemble without members cannot answer; give at least two models")
    for model in models:
        if model.head is None or model.head.task != "span":
            source = model.origin.source or "this model"
            raise QuothError(f"{source}: has no span head, so it cannot be a member of an ensemble; train one first")


def _check_place(checkpoints: Sequence[Checkpoint], folder: Path) -> None:
    """Refuse to write over a member, or over what one stands on."""
    place = folder.resolve()
    for member in checkpoints:
        layer: Checkpoint | None = member
        while layer is not None:
            source = Path(layer.files.source)
            if source.is_dir() and place in (source.resolve(), *source.resolve().parents):
                what = "it" if layer is member else "its base"
                raise QuothError(f"{folder}: {member.files.source} is a member, and {what} lies there; save elsewhere")
            layer = layer.below

"""`SharedBase`: several tunings of one base in memory, one of them in use.

    shared = SharedBase(load("bert-base-cased"))
    shared.add("squad", "runs/squad/model")
    shared.add("boolq", "runs/boolq/model")
    shared.use("squad")                     # shared.model now computes what load("runs/squad/model") computes

Each tuning has an encoder of its own whose frozen weights *are* the base's tensors, so it costs the memory of its delta
alone, and a swap moves no numbers: the base is bit for bit what it was.
"""

from __future__ import annotations

from pathlib import Path

from quoth.errors import QuothError
from quoth.model.checkpoint import Checkpoint, Tensor, on_base, open_checkpoint
from quoth.model.loading import check, empty
from quoth.model.model import Model
from quoth.model.weights import read_tensors, weights_hash
from quoth.tune import inserted

PARTS = ("encoder", "pooler", "head", "tuning", "base", "origin")


class SharedBase:
    """Tunings of `model`, which is changed in place by `use`.

    Hold on to `model`, not to `model.encoder`: that is another one after a swap.
    """

    def __init__(self, model: Model) -> None:
        found = inserted(model.encoder)
        if found:
            raise QuothError(f"a base is wanted, but this model has {found} already; load its base")
        self.model = model
        self.sha256 = weights_hash(model)
        self.active: str | None = None
        self._bare = {part: getattr(model, part) for part in PARTS}
        self._weights = {name: v for name, v in model.named_parameters() if not name.startswith("head.")}
        self._tuned: dict[str, Model] = {}

    @property
    def names(self) -> list[str]:
        """The tunings, in the order in which they were added."""
        return list(self._tuned)

    def add(self, name: str, folder: str | Path) -> None:
        """Add the tuning that a delta folder holds, if it was trained on this base."""
        if name in self._tuned:
            raise QuothError(f"{name!r} was added already; remove it first")
        checkpoint = open_checkpoint(folder)
        if checkpoint.base is None:
            raise QuothError(f"{folder}: holds a whole model, not a delta, so it cannot share a base; load it")
        if checkpoint.base.sha256 != self.sha256:
            raise QuothError(
                f"{folder}: was trained on a base with sha256 {checkpoint.base.sha256[:12]}…, but this one has "
                f"{self.sha256[:12]}…"
            )
        self._tuned[name] = self._assemble(checkpoint)

    def use(self, name: str | None) -> None:
        """Make the model the one tuned under this name; None makes it the base again."""
        if name is not None and name not in self._tuned:
            raise QuothError(f"{name!r} was not added; there are: {', '.join(self._tuned) or 'none'}")
        here = next(self.model.encoder.parameters())
        for part in PARTS:
            setattr(self.model, part, self._bare[part] if name is None else getattr(self._tuned[name], part))
        self.model.to(here.device, here.dtype).train(self.model.training)
        self.active = name

    def remove(self, name: str) -> None:
        """Remove a tuning; if it was in use, the base itself is in use from here on."""
        if name not in self._tuned:
            raise QuothError(f"{name!r} was not added; there are: {', '.join(self._tuned) or 'none'}")
        if self.active == name:
            self.use(None)
        del self._tuned[name]

    def _assemble(self, checkpoint: Checkpoint) -> Model:
        """The tuned model: its own tensors, and the base's where it has none, the same objects."""
        below = {name: Tensor(Path(), name, tuple(value.shape), "F32") for name, value in self._weights.items()}
        checkpoint = on_base(checkpoint, below)
        model = empty(checkpoint)
        check(model, checkpoint)
        own = read_tensors(checkpoint.own)
        here = next(iter(self._weights.values()))
        shared = {name: self._weights[name] for name in checkpoint.tensors if name not in own}
        for name, value in model.named_parameters():  # load_state_dict makes the base's tensors like these
            value.requires_grad_(name not in shared or shared[name].requires_grad)
        moved = {name: value.to(here.device, here.dtype) for name, value in own.items()}
        model.load_state_dict({**shared, **moved}, assign=True)
        return model

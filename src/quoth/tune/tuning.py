"""What every tuning method is: a protocol. And what they share: the kinds, folding, checks of settings.

A new method is one file: a frozen dataclass with `kind`, `trains_pooler`, `install`, `trainable` and `to_json`, under
`@register_tuning`; its fields are its settings. All but `kind` and `trainable` may be left out where it inherits from
`Tuning`: then it inserts nothing and trains no pooler. A module that it inserts says what it is (`inserted`, a class
attribute such as "adapters") and how it is exported: `to_onnx(g, x)` of what comes before a residual sum, or `plain()`
of what takes the place of a linear layer (see `quoth.encoder.graph`).
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeVar

import torch

from quoth.encoder import Encoder
from quoth.encoder.graph import Foldable
from quoth.errors import QuothError

WIDEST = 16_384  # the largest rank of LoRA and size of an adapter: wider than any encoder, so that memory is bounded
Norms = Literal["all", "above"]


class Tuning(Protocol):
    """Which weights of an encoder are trained, and which modules are inserted. Implemented by frozen dataclasses."""

    @property
    def kind(self) -> str:
        """Its name in recipes and model folders."""

    @property
    def trains_pooler(self) -> bool:
        """Whether the family's pooler, which belongs to the model and not to the encoder, is trained too."""
        return False

    def install(self, encoder: Encoder) -> None:
        """Insert this method's own modules, with fresh weights; or refuse an encoder that it does not fit."""
        return

    def trainable(self, encoder: Encoder) -> set[str]:
        """The names of the encoder's parameters that are trained; `quoth.model.apply` adds those of the head."""

    def to_json(self) -> dict[str, Any]:
        """What a recipe or a model folder says of it, its fields; `build_tuning` makes it again."""
        return {"kind": self.kind, **vars(self)}


TUNINGS: dict[str, type] = {}
Made = TypeVar("Made", bound=type)


def register_tuning(cls: Made) -> Made:
    """Make a tuning method known by its `kind`, for recipes and model folders. A decorator."""
    TUNINGS[cls.kind] = cls  # type: ignore[attr-defined]
    return cls


def inserted(encoder: Encoder) -> str | None:
    """What a tuning method inserted into an encoder, "adapters" or "LoRA", as its modules declare; None for nothing."""
    names: list[str] = [str(module.inserted) for module in encoder.modules() if hasattr(module, "inserted")]
    return names[0] if names else None


def can_merge(encoder: Encoder) -> bool:
    """Whether what a tuning method inserted can be folded into the weights."""
    return any(isinstance(module, Foldable) for module in encoder.modules())


@torch.no_grad()
def merge(encoder: Encoder) -> None:
    """Fold what was inserted into the weights. The encoder is changed in place and is a plain one afterwards."""
    if not can_merge(encoder):
        raise QuothError("this model has no LoRA to merge")
    for owner in encoder.modules():
        for name, child in list(owner.named_children()):
            if isinstance(child, Foldable):
                setattr(owner, name, child.plain())


def check_one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuse a setting that is none of the known words."""
    if value not in known:
        raise QuothError(f"tuning: {name} is {value!r}; one of {', '.join(known)} is wanted")

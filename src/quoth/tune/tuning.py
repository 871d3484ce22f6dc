"""What every way of tuning is: a protocol, no base class. And what their tables share: checks of single settings."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from quoth.encoder.encoder import Encoder
from quoth.errors import QuothError

Norms = Literal["all", "above"]


class Tuning(Protocol):
    """Which weights of an encoder are trained, and which modules are inserted. Implemented by frozen dataclasses.

    trains_pooler: whether the family's pooler, which belongs to the model and not to the encoder, is trained too
    """

    @property
    def kind(self) -> str:
        """Its name in recipes and model folders."""

    @property
    def trains_pooler(self) -> bool:
        """Whether the pooler is trained."""

    def install(self, encoder: Encoder) -> None:
        """Insert this method's own modules, with fresh weights; or refuse an encoder that it does not fit."""

    def remove(self, encoder: Encoder) -> None:
        """Take them out again; the weights below are as they were."""

    def trainable(self, encoder: Encoder) -> set[str]:
        """The names of the encoder's parameters that are trained; `quoth.model.apply` adds those of the head."""

    def to_json(self) -> dict[str, Any]:
        """What a recipe or a model folder says of it; `build_tuning` makes it again."""


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuse a setting that is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise QuothError(f"tuning: {name} is {value!r}; it must be a whole number of at least {least}")


def check_one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuse a setting that is none of the known words."""
    if value not in known:
        raise QuothError(f"tuning: {name} is {value!r}; one of {', '.join(known)} is wanted")

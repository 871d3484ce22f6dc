"""What every way of tuning is: a protocol, no base class. And what their tables share: checks of single settings."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from quoth.encoder.model import Model
from quoth.errors import QuothError

Norms = Literal["all", "above"]


class Tuning(Protocol):
    """Which weights learn, and what is put between them. Implemented by frozen dataclasses."""

    @property
    def kind(self) -> str:
        """Its name in recipes and model folders."""

    def install(self, model: Model) -> None:
        """Put this method's own modules into the encoder, with fresh weights; or refuse a model it does not fit."""

    def remove(self, model: Model) -> None:
        """Take them out again; what lay below is as it was."""

    def learns(self, model: Model) -> set[str]:
        """The parameters of encoder and pooler that learn, by their full names; `apply` adds the head's."""

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

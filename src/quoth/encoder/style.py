"""`Style`: what a family does differently that is not a size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from quoth.config import fill
from quoth.errors import QuothError


@dataclass(frozen=True)
class Style:
    """How an encoder computes, beside its `Shape`.

    activation: of the feed-forward part, "gelu", "gelu_tanh" or "relu"
    eps: added to the variance in LayerNorm
    first_position: the row of the position table that a window's first token uses (RoBERTa: 2)
    dropout, attention_dropout: probabilities while training
    """

    activation: str = "gelu"
    eps: float = 1e-12
    first_position: int = 0
    dropout: float = 0.1
    attention_dropout: float = 0.1

    def __post_init__(self) -> None:
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise QuothError(f"style: {name} is {getattr(self, name)}; it must be at least 0 and below 1")
        if not 0 <= self.eps < 1 or self.first_position < 0:
            raise QuothError(f"style: eps is {self.eps} and first_position {self.first_position}; both are small")

    def to_json(self) -> dict[str, Any]:
        """The style as plain JSON; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any], source: str) -> Style:
        """Read a style from JSON, naming the key that is unknown or of another type."""
        try:
            return fill(cls, value, source, "style.")
        except QuothError as error:
            if str(error).startswith(source):
                raise
            raise QuothError(f"{source}: {error}") from None  # a value, which knows no file

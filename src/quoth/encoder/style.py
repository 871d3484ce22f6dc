"""`Style`: what a family does differently that is not a size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from quoth.config import fill


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

    def to_json(self) -> dict[str, Any]:
        """The style as plain JSON; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any], source: str) -> Style:
        """Read a style from JSON, naming the key that is unknown or of another type."""
        return fill(cls, value, source, "style.")

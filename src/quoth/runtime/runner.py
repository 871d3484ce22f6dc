"""`Runner`: what a reader needs of a model, whatever computes it."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from quoth.windows import Packed


class Runner(Protocol):
    """What a reader needs of a model: span logits of a packed batch, (T,) each, and its limits."""

    longest: int
    budget: int

    @property
    def parameters(self) -> int:
        """How many parameters it has."""

    def flops(self, length: int) -> int | None:
        """Operations of a window of `length` tokens, if known."""

    def __call__(self, packed: Packed[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Start and end logits of a packed batch."""

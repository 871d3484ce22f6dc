"""`Runner`: what a reader needs of a model, whatever computes it; and running it over all windows of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from quoth.windows import Packed, Windows, by_length

Compute = Callable[[Packed[np.ndarray]], Sequence[np.ndarray]]


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


def over_windows(
    windows: Windows, budget: int, compute: Compute, progress: Callable[[int, int], None] | None = None
) -> list[np.ndarray]:
    """What `compute` gives for every token, (T,) float32 each, in the order of the windows.

    compute: from a packed batch of at most `budget` tokens to as many values a token as it likes
    """
    found: list[np.ndarray] = []
    done = 0
    for indices in by_length(windows.lengths, max(budget, int(windows.lengths.max(initial=1)))):
        places = windows.token_places(indices)
        values = compute(windows.packed(indices))
        found = found or [np.empty(len(windows.ids), np.float32) for _ in values]
        for column, some in zip(found, values, strict=True):
            column[places] = some
        done += len(indices)
        if progress:
            progress(done, len(windows))
    return found

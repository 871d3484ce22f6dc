"""Which windows go together: batches under a budget of tokens, as a function of (seed, epoch, index).

Training batches are dealt like cards. Sort the windows by length and deal them in rounds, one to each of the
k batches, each round in an order of its own. Two batches differ by at most the spread of each round, and over
the sorted rounds these spreads add up to less than the longest window. So every batch of an epoch has the
same tokens to within one window, the same number of windows to within one, the same mix of lengths (hence the
same attention cost), and no batch at the end is smaller than the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quoth.errors import QuothError

NO_WINDOW = -1


class Batches:
    """Shuffled batches of window indices for training, of at most `batch_tokens` tokens or `batch_size` windows each.

    - every window is in exactly one batch of an epoch
    - tokens of two batches of an epoch differ by at most the longest window, their windows by at most one
    - `batch(epoch, index)` depends on its arguments and those of the class alone, so a run resumes at any batch. It is
      the same on every machine and numpy: only the raw bits of PCG64 are used, which numpy promises to keep.
    """

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray,
        batch_tokens: int | None = None,
        seed: int = 0,
        *,
        batch_size: int | None = None,
    ) -> None:
        """Plan batches for windows of `lengths` (n,) tokens; give either `batch_tokens` or `batch_size`."""
        if seed < 0:
            raise QuothError(f"seed is {seed}; it must not be negative")
        if (batch_tokens is None) == (batch_size is None):
            raise QuothError("a batch is bounded by batch_tokens or by batch_size (windows): give one of them")
        self.lengths = _checked(lengths, batch_tokens)
        self.seed = seed
        if batch_size is not None and batch_size < 1:
            raise QuothError(f"batch_size is {batch_size}; a batch has at least one window")
        falling = np.sort(self.lengths)[::-1]
        self._count = -(-len(falling) // batch_size) if batch_size else _fewest(falling, batch_tokens or 0)
        self._epoch = -1  # the epoch of `_table`
        self._table = np.zeros((0, 0), np.int64)

    def count(self) -> int:
        """How many batches an epoch has: the same for each."""
        return self._count

    def batch(self, epoch: int, index: int) -> np.ndarray:
        """The window indices of a batch, int64, longest window first."""
        if not 0 <= index < self._count:
            raise QuothError(f"batch {index} is not in an epoch of {self._count} batches")
        if epoch < 0:
            raise QuothError(f"epoch is {epoch}; it must not be negative")
        if epoch != self._epoch:
            self._table = _deal(self.lengths, self._count, self.seed, epoch)
            self._epoch = epoch
        column: np.ndarray = self._table[:, index]
        return np.asarray(column[column != NO_WINDOW])

    def tokens(self, epoch: int) -> np.ndarray:
        """The tokens of every batch of an epoch, int64 (count,)."""
        if not self._count:
            return np.zeros(0, np.int64)
        self.batch(epoch, 0)
        real = self._table != NO_WINDOW
        return np.asarray(np.where(real, self.lengths[self._table], 0).sum(0))

    def most(self) -> tuple[int, int]:
        """The most tokens and the most windows that a batch of any epoch can have."""
        falling = np.sort(self.lengths)[::-1]
        return int(falling[:: max(1, self._count)].sum()), -(-len(falling) // max(1, self._count))


def by_length(lengths: Sequence[int] | np.ndarray, budget: int) -> list[np.ndarray]:
    """Batches for inference: all windows sorted by length, longest first, cut where the budget ends.

    Windows times the longest of them stay within `budget`, so it holds for packed and for padded batches
    alike. The longest come first, so that a budget too large for memory shows at once.
    """
    lengths = _checked(lengths, budget)
    order = np.argsort(-lengths, kind="stable")
    batches = []
    low = 0
    while low < len(order):
        high = low + budget // int(lengths[order[low]])
        batches.append(order[low:high])
        low = high
    return batches


def _checked(lengths: Sequence[int] | np.ndarray, budget: int | None) -> np.ndarray:
    sizes = np.asarray(lengths, dtype=np.int64)
    if len(sizes) and int(sizes.min()) < 1:
        raise QuothError(f"window {int(sizes.argmin())} has no tokens")
    if budget is not None and len(sizes) and int(sizes.max()) > budget:
        worst = int(sizes.argmax())
        raise QuothError(
            f"window {worst} has {sizes[worst]} tokens, more than the budget of {budget}; raise the budget"
        )
    return sizes


def _fewest(falling: np.ndarray, budget: int) -> int:
    """The fewest batches such that none can exceed the budget, however the rounds are shuffled.

    The fullest batch there can be has the longest window of every round: falling[0], falling[k], falling[2k],
    … Its size falls with k, so k is found by bisection.
    """
    low, high = min(1, len(falling)), len(falling)
    while low < high:
        middle = (low + high) // 2
        if int(falling[::middle].sum()) <= budget:
            high = middle
        else:
            low = middle + 1
    return low


def _deal(lengths: np.ndarray, count: int, seed: int, epoch: int) -> np.ndarray:
    """The epoch's windows as (rounds, count); a column is a batch, `NO_WINDOW` where the last round ran out."""
    bits = np.random.PCG64(np.random.SeedSequence([seed, epoch]))
    shuffled = np.argsort(bits.random_raw(len(lengths)), kind="stable")
    falling = shuffled[np.argsort(-lengths[shuffled], kind="stable")]  # so that equal lengths change rounds
    rounds = -(-len(falling) // count)
    table = np.full((rounds, count), NO_WINDOW, np.int64)
    table.ravel()[: len(falling)] = falling
    keys = bits.random_raw(rounds * count).reshape(rounds, count)
    return np.take_along_axis(table, np.argsort(keys, axis=1, kind="stable"), axis=1)

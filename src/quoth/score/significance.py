"""The interval of a mean, and whether one run is better than another: bootstrap and randomisation over questions.

Both draw questions at random and look only at a mean, so they need not draw questions one by one: it is
enough to draw *how often each distinct score comes up*. That is the same distribution, exactly, and where
scores repeat (exact match has two values, F1 a few hundred) far less work than an index per question.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quoth.errors import QuothError

Floats = NDArray[np.float64]

RESAMPLES = 10_000
_CELLS = 1 << 20  # drawn at once: some arrays of 8 MiB


@dataclass(frozen=True)
class Interval:
    """A mean and the interval that holds the true one at the given level."""

    mean: float
    low: float
    high: float

    def percent(self) -> list[float]:
        """[low, high] in per cent."""
        return [100 * self.low, 100 * self.high]


@dataclass(frozen=True)
class Comparison:
    """The mean of ours − theirs over the same questions, and how often chance alone gives as much."""

    difference: Interval
    p_value: float
    questions: int

    def to_json(self) -> dict[str, Any]:
        """The difference and its interval, in per cent, and the p-value."""
        found = self.difference
        return {"difference": 100 * found.mean, "interval": found.percent(), "p_value": self.p_value}


def bootstrap(scores: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The percentile bootstrap interval (Efron, 1979) of the mean of n scores, n > 0."""
    values = _checked(scores)
    means = _bootstrap_means(values, resamples, np.random.default_rng(seed))
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(values.mean()), float(low), float(high))


def compare(
    ours: ArrayLike, theirs: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """Compare two runs on the same n questions, in the same order.

    The interval bootstraps the n differences. The p-value is two-sided, of the sign-flip randomisation test:
    if the runs were equally good, each difference could as well have the other sign. Of `resamples` random
    choices of signs plus the one seen, p is the fraction whose mean is at least as far from 0 (Phipson &
    Smyth, 2010): never 0, and 1 for identical runs.
    """
    a, b = _checked(ours), _checked(theirs)
    if len(a) != len(b):
        raise QuothError(f"a paired comparison needs the same questions: {len(a)} scores against {len(b)}")
    interval = bootstrap(a - b, level=level, resamples=resamples, seed=seed)
    p_value = _sign_flip(a - b, resamples, np.random.default_rng(seed))
    return Comparison(interval, p_value, len(a))


def _bootstrap_means(values: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Means of `resamples` draws of n from the n values, with replacement."""
    n = len(values)
    distinct, counts = np.unique(values, return_counts=True)
    if 6 * len(distinct) > n:  # hardly any repeats, and an index is about six times cheaper than a count
        drawn = (rng.integers(n, size=(rows, n), dtype=np.int32) for rows in _chunks(resamples, n))
        return np.concatenate([values[indices].mean(axis=1) for indices in drawn])
    often = (rng.multinomial(n, counts / n, size=rows) for rows in _chunks(resamples, len(distinct)))
    return np.concatenate([times @ distinct / n for times in often])


def _sign_flip(differences: Floats, resamples: int, rng: np.random.Generator) -> float:
    """The p-value under random signs; of m differences of one size, Binomial(m, ½) get a plus."""
    sizes, counts = np.unique(np.abs(differences[differences != 0]), return_counts=True)
    # Sums that are equal on paper may round apart: the slack is far below any difference of two sums.
    seen = abs(differences.sum()) - 1e-12 * np.abs(differences).sum()
    extreme = 0
    for rows in _chunks(resamples, len(sizes)):
        sums = (2 * rng.binomial(counts, 0.5, size=(rows, len(sizes))) - counts) @ sizes
        extreme += int(np.count_nonzero(np.abs(sums) >= seen))
    return (extreme + 1) / (resamples + 1)


def _chunks(rows: int, width: int) -> Iterator[int]:
    """Divide `rows` rows of `width` cells into pieces of at most `_CELLS` cells (or one row)."""
    most = max(1, _CELLS // max(width, 1))
    for start in range(0, rows, most):
        yield min(most, rows - start)


def _checked(scores: ArrayLike) -> Floats:
    values = np.asarray(scores, np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise QuothError(f"scores of shape {values.shape}: need a list of finite numbers, at least one")
    return values

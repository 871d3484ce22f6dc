"""Runs with several seeds on the same questions: the interval of their mean, and whether one method is better.

A mean over S seeds and Q questions would be another one with other questions, and with other seeds. Every seed answers
all questions, so both count at once (two-way clustering: Cameron, Gelbach and Miller 2011, "Robust Inference With
Multiway Clustering"). Questions of one text are not independent: their unit is the group, an article or a passage.
With e the scores less their mean and E (S, G) the sums of e in each cell of seed and group:

    V_groups = G / (G − 1) · Σ_g (Σ_s E_sg)² / (S·Q)²
    V_seeds  = S / (S − 1) · Σ_s (Σ_g E_sg)² / (S·Q)² − Σ_sg E_sg² / (S·Q)²      0 where this is negative, or S = 1

The variance of the mean is their sum. The second sum of V_seeds is there because V_groups has it already. With one seed
nothing is said of other seeds. The interval is that of Student's t, whose degrees of freedom are Satterthwaite's:
V² / Σ V_i² / (n_i − 1). With one seed, and each question a group, this is the plain t-test.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quoth.errors import QuothError
from quoth.score.significance import Comparison, Interval
from quoth.score.student import t_quantile, t_two_sided

Floats = NDArray[np.float64]

FEWEST = 20  # groups, below which their number says too little of how they differ
NOTHING = 1e-24  # a variance that is rounding alone, of scores from 0 to 1


@dataclass(frozen=True)
class Estimate:
    """A mean, its standard error, and the degrees of freedom of that; an error of 0 is that of a known number."""

    mean: float
    error: float
    freedom: float

    def interval(self, level: float = 0.95) -> Interval:
        """The interval of Student's t."""
        half = t_quantile((1 + level) / 2, self.freedom) * self.error if self.error else 0.0
        return Interval(self.mean, self.mean - half, self.mean + half)

    @property
    def p_value(self) -> float:
        """How probable a mean as far from 0 is by chance, on either side."""
        if not self.error:
            return 1.0 if abs(self.mean) < math.sqrt(NOTHING) else 0.0
        return t_two_sided(self.mean / self.error, self.freedom)

    def p_above(self, bound: float) -> float:
        """How probable a mean as high is by chance if the true one is `bound`."""
        distance = self.mean - bound
        if not self.error:
            return 0.0 if distance > math.sqrt(NOTHING) else 1.0
        both = t_two_sided(distance / self.error, self.freedom)
        return both / 2 if distance > 0 else 1 - both / 2

    def p_below(self, bound: float) -> float:
        """How probable a mean as low is by chance if the true one is `bound`."""
        return Estimate(-self.mean, self.error, self.freedom).p_above(-bound)


@dataclass(frozen=True, eq=False)
class Groups:
    """Which group each of Q questions is in. what: "articles", "passages" or "questions"; number: (Q,), from 0."""

    what: str
    number: NDArray[np.int64]

    @property
    def count(self) -> int:
        """How many groups there are."""
        return int(self.number.max()) + 1

    def sums(self, scores: Floats) -> Floats:
        """(S, Q) → (S, G)."""
        return np.stack([np.bincount(self.number, row, self.count) for row in scores])


def group_questions(titles: Sequence[Hashable], passages: Sequence[Hashable]) -> Groups:
    """By article where there are at least `FEWEST` articles, else by passage where there are, else each by itself."""
    for what, keys in (("articles", titles), ("passages", passages)):
        known = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        if len(known) >= FEWEST:
            return Groups(what, np.array([known[key] for key in keys], np.int64))
    return Groups("questions", np.arange(len(passages), dtype=np.int64))


def seeds_interval(scores: ArrayLike, groups: Groups, *, level: float = 0.95) -> Interval:
    """The mean of (S, Q) scores, and its interval over seeds and questions."""
    values = _checked(scores, groups)
    sums = groups.sums(values - values.mean())
    parts = [_of_groups(sums.sum(0) / values.size), _of_seeds(sums / values.size)]
    return _estimate(float(values.mean()), parts).interval(level)


def compare_seeds(ours: ArrayLike, theirs: ArrayLike, groups: Groups, *, level: float = 0.95) -> Comparison:
    """Ours − theirs, (S, Q) and (R, Q) scores of the same questions; S and R may differ. The p-value is two-sided.

    The groups are paired, so what makes a question hard for both does not count; the seeds are not.
    """
    found = difference_of_seeds(ours, theirs, groups)
    return Comparison(found.interval(level), found.p_value, len(groups.number))


def difference_of_seeds(ours: ArrayLike, theirs: ArrayLike, groups: Groups) -> Estimate:
    """Ours − theirs, as `compare_seeds` has it."""
    a, b = _checked(ours, groups), _checked(theirs, groups)
    mine, others = (groups.sums(values - values.mean()) / values.size for values in (a, b))
    parts = [_of_groups(mine.sum(0) - others.sum(0)), _of_seeds(mine), _of_seeds(others)]
    return _estimate(float(a.mean() - b.mean()), parts)


def difference_of_means(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Ours − theirs of one number a seed, two or more each: Welch's t-test. It says nothing of other questions."""
    parts = [(float(np.var(values, ddof=1)) / len(values), len(values) - 1) for values in (ours, theirs)]
    return _estimate(float(np.mean(ours) - np.mean(theirs)), parts)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for their number, so that any false finding at all is as rare as the level says (Holm 1979).

    The k-th smallest of m, k from 0, is multiplied by m − k; none may be below the one before it, or above 1.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for k, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - k) * p_values[i]))
        corrected[i] = highest
    return corrected


Part = tuple[float, int]  # a variance and its degrees of freedom


def _of_groups(shares: Floats) -> Part:
    """shares: (G,) what each group adds to the mean, less what all have in common."""
    count = len(shares)
    if count < 2:
        return 0.0, 0
    return float(count / (count - 1) * (shares**2).sum()), count - 1


def _of_seeds(cells: Floats) -> Part:
    """cells: (S, G), the same of each cell."""
    seeds = len(cells)
    if seeds < 2:
        return 0.0, 0
    found = seeds / (seeds - 1) * (cells.sum(1) ** 2).sum() - (cells**2).sum()
    return max(float(found), 0.0), seeds - 1


def _estimate(mean: float, parts: Sequence[Part]) -> Estimate:
    """A mean whose variance has these parts."""
    variance = sum(part for part, _ in parts)
    if variance < NOTHING:  # all scores are equal
        return Estimate(mean, 0.0, 1.0)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts if degrees)
    return Estimate(mean, math.sqrt(variance), freedom)


def _checked(scores: ArrayLike, groups: Groups) -> Floats:
    values = np.atleast_2d(np.asarray(scores, np.float64))
    good = values.ndim == 2 and values.size and values.shape[1] == len(groups.number) and np.isfinite(values).all()
    if not good:
        raise QuothError(f"scores of shape {values.shape}: need a row of {len(groups.number)} finite numbers a seed")
    return values

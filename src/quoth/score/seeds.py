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
    return _interval(float(values.mean()), parts, level)[0]


def compare_seeds(ours: ArrayLike, theirs: ArrayLike, groups: Groups, *, level: float = 0.95) -> Comparison:
    """Ours − theirs, (S, Q) and (R, Q) scores of the same questions; S and R may differ. The p-value is two-sided.

    The groups are paired, so what makes a question hard for both does not count; the seeds are not.
    """
    a, b = _checked(ours, groups), _checked(theirs, groups)
    mine, others = (groups.sums(values - values.mean()) / values.size for values in (a, b))
    parts = [_of_groups(mine.sum(0) - others.sum(0)), _of_seeds(mine), _of_seeds(others)]
    interval, p_value = _interval(float(a.mean() - b.mean()), parts, level)
    return Comparison(interval, p_value, a.shape[1])


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


def _interval(mean: float, parts: Sequence[Part], level: float) -> tuple[Interval, float]:
    """The interval of a mean whose variance has these parts, and how probable a mean as far from 0 is by chance."""
    variance = sum(part for part, _ in parts)
    if variance < NOTHING:  # all scores are equal
        return Interval(mean, mean, mean), 1.0 if abs(mean) < math.sqrt(NOTHING) else 0.0
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts if degrees)
    deviation = math.sqrt(variance)
    half = t_quantile((1 + level) / 2, freedom) * deviation
    return Interval(mean, mean - half, mean + half), t_two_sided(mean / deviation, freedom)


def _checked(scores: ArrayLike, groups: Groups) -> Floats:
    values = np.atleast_2d(np.asarray(scores, np.float64))
    good = values.ndim == 2 and values.size and values.shape[1] == len(groups.number) and np.isfinite(values).all()
    if not good:
        raise QuothError(f"scores of shape {values.shape}: need a row of {len(groups.number)} finite numbers a seed")
    return values

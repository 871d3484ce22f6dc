"""Which rows no other row beats: the Pareto front of a cost (less is better) and a quality (more is better)."""

from __future__ import annotations

import math
from collections.abc import Sequence


def pareto(costs: Sequence[float | None], qualities: Sequence[float | None]) -> list[bool]:
    """For each row whether it is Pareto-optimal; a row that lacks one of the two is not.

    A row is beaten by another that costs no more and is no worse, and that is better in at least one of the two. Two
    equal rows do not beat each other. Rows are sorted by cost, equal costs by falling quality: then a row is optimal if
    it is better than all that cost less, and as good as the best that costs the same.
    """
    known = [
        (cost, -quality, index)
        for index, (cost, quality) in enumerate(zip(costs, qualities, strict=True))
        if cost is not None and quality is not None and math.isfinite(cost) and math.isfinite(quality)
    ]
    optimal = [False] * len(costs)
    best, best_cost = -math.inf, math.nan
    for cost, negative, index in sorted(known):
        quality = -negative
        if quality > best or (quality == best and cost == best_cost):
            optimal[index] = True
            best, best_cost = quality, cost
    return optimal

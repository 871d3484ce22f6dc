"""The verdict on a claim of a paper, by one rule.

A claim is that differences lie between two bounds: "A is above B" that A − B is above 0, "A is near B" that it is
within so many points of 0. With the estimate of a difference (`quoth.score.seeds.Estimate`):

- p₊ is how probable so clear an estimate *inside* the bounds is if the true difference lies at a bound: the largest
  one-sided p-value of the bounds. A claim of several differences holds if all hold: the largest p₊ of them
- p₋ is the same *outside* of them: the smallest one-sided p-value, of n differences times n
- p = min(1, 2 · min(p₊, p₋)), since either may come out. For "A is above B" this is the two-sided p-value
- the p-values of all claims of a table that can be tested are corrected together by Holm's method

confirmed: corrected p < 0.05 and p₊ < p₋; refuted: corrected p < 0.05 and p₋ < p₊; within noise: else. Not testable
here: a difference is not there, since a run is missing or has too few seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from quoth.score.seeds import Estimate, holm

LEVEL = 0.05
Verdict = Literal["confirmed", "refuted", "within noise", "not testable here"]


@dataclass(frozen=True)
class Tested:
    """A difference, and the bounds that it lies between if the claim is true. what: in words, "L12 − L6"."""

    what: str
    estimate: Estimate
    low: float = 0.0
    high: float = math.inf

    @property
    def p_inside(self) -> float:
        """p₊ of the rule."""
        bounds = [self.estimate.p_above(self.low)] if math.isfinite(self.low) else []
        bounds += [self.estimate.p_below(self.high)] if math.isfinite(self.high) else []
        return max(bounds)

    @property
    def p_outside(self) -> float:
        """p₋ of the rule."""
        bounds = [self.estimate.p_below(self.low)] if math.isfinite(self.low) else []
        bounds += [self.estimate.p_above(self.high)] if math.isfinite(self.high) else []
        return min(bounds)


@dataclass(frozen=True)
class Judged:
    """A verdict. weakest: the difference that says the least for the claim, if there is one."""

    verdict: Verdict
    p_value: float | None = None
    corrected: float | None = None
    weakest: Tested | None = None


def judge(claims: Sequence[Sequence[Tested] | None]) -> list[Judged]:
    """The verdicts on the claims of a table; None for one that cannot be tested."""
    found = [_p_values(tested) if tested else None for tested in claims]
    p_values = [min(1.0, 2 * min(both)) for both in found if both]
    corrected = iter(holm(p_values))
    return [_judged(tested, both, next(corrected)) if tested and both else NOT_TESTABLE
            for tested, both in zip(claims, found)]  # fmt: skip


NOT_TESTABLE = Judged("not testable here")


def _p_values(tested: Sequence[Tested]) -> tuple[float, float]:
    """p₊ and p₋ of all differences of a claim."""
    return max(one.p_inside for one in tested), min(1.0, len(tested) * min(one.p_outside for one in tested))


def _judged(tested: Sequence[Tested], both: tuple[float, float], corrected: float) -> Judged:
    inside, outside = both
    verdict: Verdict = "within noise"
    if corrected < LEVEL:
        verdict = "confirmed" if inside < outside else "refuted"
    weakest = max(tested, key=lambda one: (one.p_inside, -one.p_outside))
    return Judged(verdict, min(1.0, 2 * min(both)), corrected, weakest)

"""The claims of a table, tested on finished runs: estimates of differences, ratios, levels and growth, and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

import numpy as np

from quoth.experiments.compare_answers import Answers, Floats
from quoth.experiments.paper_items import Claim, Item
from quoth.experiments.reproduce_values import SIZES, Found
from quoth.experiments.verdicts import Judged, Tested, judge
from quoth.score.seeds import Estimate, difference_of_means, difference_of_seeds, seeds_interval

Facts = dict[str, Any]

COUNTED = ("trainable_parameters", "total_parameters")  # the same for every seed
FEWEST = 5  # layers: with fewer, even a perfect order is too probable by chance (of four, 2 in 24)


def scores_of(found: Found, column: str, answers: Answers | None) -> Floats | None:
    """(S, Q) scores of the questions, a row a seed; None where they are not those of this very row.

    A row of an earlier moment of a run has the folder of the run, but not its answers, which are those of the end.
    """
    if answers is None or not found.results or not all(one.answers or one.scores for one in found.results):
        return None
    return answers.scores(found.results, column)


def interval_of(found: Found, column: str, answers: Answers | None) -> list[float] | None:
    """The 95 % interval of a score over seeds and questions, in per cent; a mean of scores is from 0 to 100."""
    scores = scores_of(found, column, answers)
    if scores is None or answers is None:
        return None
    low, high = seeds_interval(scores, answers.groups).percent()
    return [max(low, 0.0), min(high, 100.0)]


def claims_facts(item: Item, found: dict[str, Found], answers: Answers | None) -> list[Facts]:
    """All claims with their verdicts."""
    tested: list[list[Tested] | None] = []
    reasons: list[str] = []
    for claim in item.claims:
        try:
            tested.append(list(_tests(claim, item, found, answers)))
            reasons.append("")
        except _Untestable as reason:
            tested.append(None)
            reasons.append(str(reason))
    seeds = [min((len(found[name].seeds) for name in claim.rows if name in found), default=0) for claim in item.claims]
    return [_claim_facts(*one) for one in zip(item.claims, judge(tested), reasons, seeds)]


class _Untestable(Exception):  # noqa: N818 - it is no error
    """Why a claim cannot be tested on these runs."""


def _tests(claim: Claim, item: Item, found: dict[str, Found], answers: Answers | None) -> Iterator[Tested]:
    """The differences of a claim with their bounds."""
    for name in claim.rows:
        if name not in found:
            raise _Untestable(f"the row {name} is left out")
        if not found[name].values and not found[name].results:
            raise _Untestable(f"{name}: {found[name].why}")
    by = claim.by or item.by
    low, high = (-claim.within, claim.within) if claim.near else (0.0, math.inf)
    for one, other in claim.differences:
        yield Tested(f"{one} − {other}", _difference(found[one], found[other], by, answers), low, high)
    if claim.ratio:
        one, other = claim.ratio
        estimate = _difference_of_costs(found[one], found[other], by)
        yield Tested(f"log ratio of {one} to {other}", estimate, *(_log(claim.least, -1), _log(claim.most, 1)))
    low, high = (-math.inf if claim.least is None else claim.least), (math.inf if claim.most is None else claim.most)
    for name in claim.level:
        yield Tested(name, _level(found[name], by), low, high)
    for name in claim.grows:
        yield from (Tested(f"{name}: rank correlation", estimate) for estimate in _growth(found[name], by))


def _difference(one: Found, other: Found, by: str, answers: Answers | None) -> Estimate:
    """One − the other in per cent: over questions and seeds if scores of questions are there, else over seeds."""
    mine, theirs = scores_of(one, by, answers), scores_of(other, by, answers)
    if answers and mine is not None and theirs is not None:
        found = difference_of_seeds(mine, theirs, answers.groups)
        return Estimate(100 * found.mean, 100 * found.error, found.freedom)
    return difference_of_means(_several(one, by), _several(other, by))


def _several(found: Found, by: str) -> list[float]:
    """A value for each of at least two seeds."""
    values = found.values.get(by)
    if not values:
        raise _Untestable(f"{found.row.name}: has no {by}{f' ({found.why})' if found.why else ''}")
    if len(values) < 2:
        raise _Untestable(f"{found.row.name}: one seed, and no scores of questions: two seeds are needed")
    return values


def _difference_of_costs(one: Found, other: Found, by: str) -> Estimate:
    """The difference of logarithms: that of the ratio. Numbers of parameters are known, times are measured."""
    if by in COUNTED and one.values.get(by) and other.values.get(by):
        return Estimate(math.log(one.values[by][0] / other.values[by][0]), 0.0, 1.0)
    return difference_of_means(*([math.log(value) for value in _several(each, by)] for each in (one, other)))


def _log(bound: float | None, sign: int) -> float:
    return sign * math.inf if bound is None else math.log(bound)


def _level(found: Found, by: str) -> Estimate:
    """The mean of a column over seeds; of sizes the part of the unpruned ones that is left, but for the top layer."""
    values = found.values.get(by) or []
    if by in SIZES:
        key = SIZES[by]
        values = [mean(now[key] / was[key] for now, was in zip(one.layers[:-1], one.unpruned[:-1]))
                  for one in found.results if one.unpruned and len(one.unpruned) == len(one.layers) > 1]  # fmt: skip
    if len(values) < 2:
        raise _Untestable(f"{found.row.name}: {len(values)} seeds; two are needed")
    return Estimate(mean(values), float(np.std(values, ddof=1)) / math.sqrt(len(values)), len(values) - 1)


def _growth(found: Found, by: str) -> Iterator[Estimate]:
    """Spearman's rank correlation of a layer's size or weight with its number, for each seed."""
    seeds = [[layer[SIZES[by]] for layer in one.layers] for one in found.results] if by in SIZES else [
        values for one in found.results for values in one.layer_weights.values()]  # fmt: skip
    if not seeds or min(len(values) for values in seeds) < FEWEST:
        what = "learned layer weights" if by == "layer_weights" else f"sizes {by}"
        raise _Untestable(f"{found.row.name}: has no {what} of {FEWEST} layers or more")
    for values in seeds:
        yield rank_correlation(values)


def rank_correlation(values: Sequence[float]) -> Estimate:
    """Spearman's ρ of n values with 1 … n, and its error √((1 − ρ²) / (n − 2)), of n − 2 degrees of freedom."""
    ranks = _ranks(np.asarray(values, np.float64))
    places = np.arange(len(values), dtype=np.float64)
    if np.ptp(ranks) == 0:
        return Estimate(0.0, 1 / math.sqrt(len(values) - 2), len(values) - 2)
    rho = float(np.corrcoef(ranks, places)[0, 1])
    return Estimate(rho, math.sqrt(max(1 - rho * rho, 0.0) / (len(values) - 2)), len(values) - 2)


def _ranks(values: Any) -> Any:
    """Ranks from 0; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return (first + (counts - 1) / 2)[inverse]


def _claim_facts(claim: Claim, judged: Judged, why: str, seeds: int) -> Facts:
    weakest = judged.weakest
    effect, interval = None, None
    if weakest is not None:
        found = weakest.estimate.interval()
        scale = math.exp if claim.ratio else float
        effect, interval = scale(found.mean), [scale(found.low), scale(found.high)]
    return {
        "says": claim.says,
        "verdict": judged.verdict,
        "what": weakest.what.replace("log ratio", "ratio") if weakest else "",
        "effect": effect,
        "interval": interval,
        "p_value": judged.p_value,
        "corrected": judged.corrected,
        "signed": not claim.ratio and not claim.level,
        "seeds": seeds,
        "why": why,
    }

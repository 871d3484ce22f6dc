"""`reproduce`: a table or figure of a paper with the numbers in print beside those of finished runs, and verdicts.

What is judged are the claims of the table, differences between its rows, by the rule of `quoth.experiments.verdicts`:
another encoder on other data has other scores, but the paper says that a difference is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from quoth.answer.record import read_answers
from quoth.data import Dataset
from quoth.experiments.compare_answers import Answers, score_answers
from quoth.experiments.paper_items import Claim, Item, chosen_rows, find_item
from quoth.experiments.reproduce_values import SIZES, Finished, Found, find_row
from quoth.experiments.run_results import Result
from quoth.experiments.verdicts import LEVEL, Judged, Tested, judge
from quoth.score.analysis import abstentions, outcome, second_answers
from quoth.score.seeds import Estimate, difference_of_means, difference_of_seeds, seeds_interval

Facts = dict[str, Any]

COUNTED = ("trainable_parameters", "total_parameters")  # the same for every seed
ANALYSIS = ("called_no_answer", "second_right")  # of figure 4 of BERTVision
RULE = (
    f"A claim is confirmed if a test over seeds and questions, corrected by Holm's method for all claims of the table, "
    f"rejects its opposite (p < {LEVEL:g}); refuted if it rejects the claim; else it is within noise."
)


def reproduce_facts(
    name: str,
    folders: Sequence[str | Path],
    questions: Callable[[str], Dataset | None] = lambda source: None,
    rows: tuple[str, ...] = (),
    tasks: tuple[str, ...] = (),
) -> Facts:
    """What `quoth reproduce PAPER/ITEM --json` prints of the finished runs in these folders, earlier ones first.

    questions(source): those that were evaluated on, as recipes name them; without them only stored scores and seeds
    say what is noise
    """
    _, paper, item = find_item(name)
    finished = Finished(paper)
    for folder in folders:
        finished.add(Path(folder))
    every = [find_row(finished, row, item.columns, tasks or tuple(paper.tasks)) for row in chosen_rows(item, rows)]
    found = {one.row.name: one for one in every}
    compared = list(_distinct(every))
    source = next((result.data for result in compared if result.answers), None)
    dataset = questions(source) if source else None
    answers = score_answers(dataset, compared)
    analysis = _analysis(every, dataset) if set(ANALYSIS) & set(item.columns) else {}
    return {
        "item": name,
        "paper": paper.title,
        "title": item.title,
        "shows": item.shows,
        "note": item.note,
        "columns": [column for column in item.columns if not column.endswith("_curve")],
        "by": item.by,
        "settings": settings_facts(every),
        "rows": [_row_facts(one, answers, analysis.get(one.row.name, {})) for one in every],
        "claims": _claims(item, found, answers),
        "rule": RULE,
    }


def _distinct(every: Sequence[Found]) -> Iterator[Result]:
    """All results whose answers are compared, each once."""
    known = {str(result.folder): result for one in every for result in one.results if result.answers or result.scores}
    yield from known.values()


def settings_facts(every: Sequence[Found]) -> list[str]:
    """In words what the runs were trained with: the encoder, data, epochs, seeds; a line where rows differ."""
    lines: dict[str, None] = {}
    for one in every:
        for result in one.results[:1]:
            recipe = result.recipe
            lines[f"{_trained(recipe)}, {len(one.results)} seed{'s' if len(one.results) > 1 else ''}"] = None
    return list(lines)


def _trained(recipe: Facts) -> str:
    """The encoder, the epochs, and the data of training and evaluation."""
    data, trained = recipe.get("data", {}), recipe.get("optimisation", {})
    epochs = f"{trained['epochs']:g} epochs" if "epochs" in trained else "pruned"
    names = data.get("train") or "?"
    train = ", ".join(names) if isinstance(names, list) else str(names)
    part = f" ({100 * data['fraction']:g} %)" if data.get("fraction", 1) != 1 else ""
    return f"{recipe.get('model', '?')}, {epochs} of {train}{part}, scored on {data.get('evaluate') or 'held-out text'}"


def _row_facts(found: Found, answers: Answers | None, analysis: Facts) -> Facts:
    """A row: the numbers in print, and the mean, the interval and each seed's of what was found."""
    row = found.row
    columns = {}
    for column, values in found.values.items():
        columns[column] = {"mean": mean(values), "interval": _interval(found, column, answers), "seeds": values}
    return {
        "name": row.name,
        "paper": {**row.paper, **({"sizes": row.sizes} if row.sizes else {})},
        "found": {
            **columns,
            **{key: {"mean": value, "interval": None, "seeds": []} for key, value in analysis.items()},
        },
        "runs": [str(one.folder) for one in found.results],
        "seeds": [one.seed for one in found.results],
        "curves": {name: [list(map(list, curve)) for curve in each] for name, each in found.curves.items()},
        "layer_weights": found.results[0].layer_weights if found.results else {},
        "sizes": [{"hidden": one.hidden, "layers": list(one.layers)} for one in found.results if one.layers],
        "why": found.why,
    }


def _interval(found: Found, column: str, answers: Answers | None) -> list[float] | None:
    """The 95 % interval of a score over seeds and questions, in per cent."""
    scores = answers.scores(found.results, column) if answers and found.results else None
    if scores is None or answers is None:
        return None
    low, high = seeds_interval(scores, answers.groups).percent()
    return [max(low, 0.0), min(high, 100.0)]


def _analysis(every: Sequence[Found], dataset: Dataset | None) -> dict[str, Facts]:
    """Of the first seed, in per cent: how many wrong answers are "no answer", how often the second is right."""
    if dataset is None:
        return {}
    found = {}
    for one in every:
        if one.results and one.results[0].answers:
            run = outcome(one.row.name, dataset.questions, read_answers(one.results[0].answers))
            second = second_answers(dataset.questions, run)["second"]["all"]["share"]
            shares = (abstentions(run)["called_no_answer"]["share"], second)
            found[one.row.name] = {name: share for name, share in zip(ANALYSIS, shares) if share is not None}
    return found


def _claims(item: Item, found: dict[str, Found], answers: Answers | None) -> list[Facts]:
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
    return [_claim_facts(*one) for one in zip(item.claims, judge(tested), reasons)]


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
    mine = answers.scores(one.results, by) if answers and one.results else None
    theirs = answers.scores(other.results, by) if answers and other.results else None
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
    if not any(len(values) > 2 for values in seeds):
        raise _Untestable(f"{found.row.name}: has no {by} of three layers or more")
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


def _claim_facts(claim: Claim, judged: Judged, why: str) -> Facts:
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
        "why": why,
    }

"""`compare`: all methods of runs and sweeps on the same axes, as facts ready for JSON.

A row is a method: the results that differ in their seed alone. Its scores are means over seeds, with a 95 % interval
over seeds and questions (`quoth.score.seeds`); its costs are means over seeds. A row is Pareto-optimal for a cost if no
other costs as little and scores as much. Any two rows are compared on the same questions, and the p-values of all pairs
are corrected by Holm's method. Two rows are "within noise" of each other if the corrected p-value is 0.05 or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean
from typing import Any

from quoth.data import Dataset
from quoth.errors import QuothError
from quoth.experiments.compare_answers import METRICS, Answers, score_answers
from quoth.experiments.compare_curves import by_key, curves
from quoth.experiments.compare_text import summary
from quoth.experiments.run_results import COSTS, Result, Unfinished
from quoth.score.pareto import pareto
from quoth.score.quality import NAMES
from quoth.score.seeds import compare_seeds, holm, seeds_interval

LEVEL = 0.05
LOWER = ("mlm_loss", "perplexity")  # scores of which less is better: no row is judged by them

Facts = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A method. name: unlike that of any other row; results: its seeds."""

    name: str
    results: tuple[Result, ...]

    def value(self, metric: str) -> float | None:
        """The mean of a score over seeds; None if a seed has none."""
        found = [result.quality.get(metric) for result in self.results]
        known = [value for value in found if value is not None]
        return mean(known) if len(known) == len(found) else None

    def order(self, metric: str) -> tuple[float, str]:
        """Sorts rows: the highest score first, those without one last."""
        value = self.value(metric)
        return (math.inf if value is None else -value), self.name

    def cost(self, name: str) -> float | None:
        """The mean of a cost over seeds; None if a seed does not say."""
        found = [result.costs[name] for result in self.results]
        known = [value for value in found if value is not None]
        return mean(known) if len(known) == len(found) else None


def compare_results(
    results: Sequence[Result],
    unfinished: Sequence[Unfinished] = (),
    dataset: Dataset | None = None,
    metric: str | None = None,
    progress: Callable[[int, int], None] = lambda done, all: None,
) -> Facts:
    """What `quoth compare --json` prints. dataset: the questions that were evaluated on; without it no intervals.

    metric: that rows are sorted and judged by, by default F1, else the first score that all rows have
    """
    rows = make_rows(results)
    chosen = _metric(rows, metric)
    rows.sort(key=lambda row: row.order(chosen))
    answers = score_answers(dataset, results, progress)
    facts: Facts = {
        "metric": chosen,
        "data": dataset.report.source if dataset else results[0].data,
        "questions": len(answers.groups.number) if answers else None,
        "groups": {"what": answers.groups.what, "count": answers.groups.count} if answers else None,
        "rows": [_row_facts(number, row, answers, chosen) for number, row in enumerate(rows, 1)],
        "pairs": _pairs(rows, answers, chosen),
        "curves": {
            "epochs": curves(rows, chosen) + by_key(rows, "optimisation.epochs", chosen),
            "data": by_key(rows, "data.fraction", chosen),
            "risk_coverage": _risk_coverage(rows, answers),
        },
        "unfinished": [{"run": str(one.folder), "why": one.why} for one in unfinished],
        "machines": sorted({result.machine for result in results if result.machine}),
    }
    _mark_pareto(facts["rows"], chosen)
    _mark_noise(facts)
    return {**facts, "summary": summary(facts)}


def make_rows(results: Sequence[Result]) -> list[Row]:
    """One row for the results that differ in their seed alone, in the order in which they came."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.key, []).append(result)
    rows: list[Row] = []
    taken: set[str] = set()
    for group in groups.values():
        first = group[0]
        base = f"{first.name}: {first.part}" if first.part else first.name
        others = (f"{base} ({first.folder})", *(f"{base} ({i})" for i in range(2, len(taken) + 3)))
        name = next(name for name in (base, *others) if name not in taken)
        taken.add(name)
        rows.append(Row(name, tuple(sorted(group, key=lambda result: result.seed))))
    return rows


def _metric(rows: Sequence[Row], wanted: str | None) -> str:
    """The score that rows are judged by."""
    known = [name for name in NAMES if name not in LOWER and any(row.value(name) is not None for row in rows)]
    if wanted is not None and wanted not in known:
        raise QuothError(
            f"--by {wanted}: no run has this score; choose {', '.join(known) or 'none, since none has any'}"
        )
    if not known:
        raise QuothError("no run has a score: their recipes name no data.evaluate, so there is nothing to compare")
    shared = [name for name in ("f1", *known) if all(row.value(name) is not None for row in rows)]
    return wanted or (shared or known)[0]


def _row_facts(number: int, row: Row, answers: Answers | None, metric: str) -> Facts:
    quality = {}
    for name in NAMES:
        value = row.value(name)
        if value is not None:
            scores = answers.scores(row.results, name) if answers and name in METRICS else None
            found = _interval(scores, answers)
            each = [result.quality[name] for result in row.results]
            quality[name] = {"mean": value, "interval": found, "seeds": each}
    costs = {name: row.cost(name) for name in COSTS}
    first = row.results[0]
    return {
        "number": number,
        "name": row.name,
        "runs": [str(result.folder) for result in row.results],
        "seeds": [result.seed for result in row.results],
        "quality": quality,
        "costs": costs,
        "spread": {name: _spread(row, name) for name in COSTS},
        "efficiency": _efficiency(row.value(metric), costs["trainable_parameters"]),
        "layer_weights": _mean_weights(row),
        "layers": list(first.layers),
    }


def _interval(scores: Any, answers: Answers | None) -> list[float] | None:
    """[low, high] in per cent; a mean of scores cannot be below 0 or above 100."""
    if scores is None or answers is None:
        return None
    low, high = seeds_interval(scores, answers.groups).percent()
    return [max(low, 0.0), min(high, 100.0)]


def _efficiency(score: float | None, trainable: float | None) -> float | None:
    """(F1 − 50) / log₁₀(trainable parameters), as Hulburd 2020 has it."""
    return (score - 50) / math.log10(trainable) if score is not None and trainable and trainable > 1 else None


def _spread(row: Row, name: str) -> list[float] | None:
    """The smallest and the largest of a cost over seeds."""
    known = [result.costs[name] for result in row.results]
    values = [value for value in known if value is not None]
    return [min(values), max(values)] if len(values) == len(known) > 1 else None


def _mean_weights(row: Row) -> dict[str, list[float]]:
    """Layer weights by name, the mean over seeds."""
    found = {}
    for name, first in row.results[0].layer_weights.items():
        each = [result.layer_weights.get(name, []) for result in row.results]
        if all(len(values) == len(first) for values in each):
            found[name] = [mean(values) for values in zip(*each)]
    return found


def _pairs(rows: Sequence[Row], answers: Answers | None, metric: str) -> list[Facts]:
    """Every two rows whose answers are there: the better one minus the other, p-values corrected."""
    if answers is None or metric not in METRICS:
        return []
    scores = [answers.scores(row.results, metric) for row in rows]
    found = [
        {"rows": [i + 1, j + 1], **compare_seeds(one, other, answers.groups).to_json()}
        for (i, one), (j, other) in combinations(enumerate(scores), 2)
        if one is not None and other is not None
    ]
    corrected = holm([pair["p_value"] for pair in found])
    return [{**pair, "corrected": p} for pair, p in zip(found, corrected)]


def _mark_pareto(rows: list[Facts], metric: str) -> None:
    """Give each row the costs for which it is Pareto-optimal."""
    qualities = [row["quality"].get(metric, {}).get("mean") for row in rows]
    for row in rows:
        row["pareto"] = []
    for cost in COSTS:
        for row, optimal in zip(rows, pareto([row["costs"][cost] for row in rows], qualities)):
            row["pareto"] += [cost] if optimal else []


def _mark_noise(facts: Facts) -> None:
    """Which row is the best, and of which it is not known whether they are worse."""
    facts["best"] = 1
    pairs = {tuple(pair["rows"]): pair for pair in facts["pairs"]}
    with_best = {row["number"]: pairs.get((1, row["number"])) for row in facts["rows"][1:]}
    facts["within_noise"] = [number for number, pair in with_best.items() if pair and pair["corrected"] >= LEVEL]
    facts["worse"] = [number for number, pair in with_best.items() if pair and pair["corrected"] < LEVEL]


def _risk_coverage(rows: Sequence[Row], answers: Answers | None) -> list[Facts]:
    """Of each row with answers, the curve of its first seed."""
    if answers is None:
        return []
    found = []
    for number, row in enumerate(rows, 1):
        answered = answers.answered.get(str(row.results[0].folder))
        if answered is not None:
            coverage, risk = answered.curve
            found.append({"row": number, "seed": row.results[0].seed, "coverage": coverage, "risk": risk})
    return found

"""Lines of a comparison: scores over the epochs of a run, and over rows that differ in one key of the recipe alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from quoth.config import flat

if TYPE_CHECKING:
    from quoth.experiments.compare import Row

Line = dict[str, Any]


def curves(rows: Sequence[Row], metric: str) -> list[Line]:
    """The scores of rows that were evaluated more than once, by epoch: the mean, least and most over seeds."""
    found = []
    for number, row in enumerate(rows, 1):
        first = row.results[0].curve
        each = [{epoch: scores[metric] for epoch, scores in one.curve if metric in scores} for one in row.results]
        epochs = [epoch for epoch, _ in first if all(epoch in one for one in each)]
        if len(epochs) > 1:
            values = [[one[epoch] for one in each] for epoch in epochs]
            found.append(line_facts(row.name, [number] * len(epochs), epochs, values))
    return found


def by_key(rows: Sequence[Row], key: str, metric: str) -> list[Line]:
    """Rows of one family, which differ in this key alone, such as `data.fraction`: a line each with two points."""
    families: dict[str, list[tuple[float, int, Row]]] = {}
    for number, row in enumerate(rows, 1):
        recipe = flat(row.results[0].recipe)
        value = recipe.pop(key, None)
        if type(value) in (int, float) and row.value(metric) is not None:
            family = json.dumps([recipe, row.results[0].part], sort_keys=True)
            families.setdefault(family, []).append((float(value), number, row))
    found = []
    for members in families.values():
        members.sort(key=lambda member: member[:2])
        if len({value for value, _, _ in members}) > 1:
            values = [[result.quality[metric] for result in row.results] for _, _, row in members]
            numbers = [number for _, number, _ in members]
            found.append(
                line_facts(f"{members[-1][2].name}, separate runs", numbers, [value for value, _, _ in members], values)
            )
    return found


def line_facts(name: str, numbers: Sequence[int], x: Sequence[float], values: Sequence[Sequence[float]]) -> Line:
    """A line of a figure. numbers: of the rows of its points; values: (points, seeds)."""
    return {
        "name": name,
        "rows": list(numbers),
        "x": list(x),
        "mean": [mean(some) for some in values],
        "low": [min(some) for some in values],
        "high": [max(some) for some in values],
        "seeds": min(len(some) for some in values),
    }

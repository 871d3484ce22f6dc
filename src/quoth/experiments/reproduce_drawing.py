"""What the figure of a reproduced item shows: points of cost and F1, or lines with the least and most of the seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

from quoth.config import flat
from quoth.experiments.compare_answers import Answers
from quoth.experiments.compare_curves import line_facts
from quoth.experiments.paper_items import Item, Paper, Row, run_table
from quoth.experiments.reproduce_claims import interval_of
from quoth.experiments.reproduce_values import ENCODER, Found
from quoth.experiments.run_results import COSTS, Result
from quoth.score.pareto import pareto

Facts = dict[str, Any]
Lines = list[Facts]
Points = list[tuple[float, list[float]]]  # x, and a value for each seed


def drawing(item: Item, paper: Paper, every: Sequence[Found], answers: Answers | None) -> Facts | None:
    """`points` of a cost or `lines`, as `quoth.report.paper_figures` draws them; None if there is nothing to draw."""
    if not item.draw:
        return None
    if item.draw in COSTS:
        points = _cost_points(item.draw, every, answers)
        return {"draw": item.draw, "points": points, "lines": []} if len(points) > 1 else None
    if item.draw in ("epochs", "data"):
        lines = _moments(item.draw, paper, every)
    elif item.draw == "curve":
        lines = list(_curves(every))
    else:
        lines = list(_weights(every) if item.draw == "layer_weights" else _sizes(item.draw, every))
    return {"draw": item.draw, "points": [], "lines": lines} if lines else None


def _cost_points(cost: str, every: Sequence[Found], answers: Answers | None) -> list[Facts]:
    """Rows that have the cost and F1, in the form of the rows of a comparison."""
    points: list[Facts] = []
    for found in every:
        if found.values.get(cost) and found.values.get("f1"):
            values, f1 = found.values[cost], mean(found.values["f1"])
            points.append({
                "number": len(points) + 1, "name": found.row.name, "costs": {cost: mean(values)},
                "quality": {"f1": {"mean": f1, "interval": interval_of(found, "f1", answers)}},
                "spread": {cost: [min(values), max(values)] if len(values) > 1 else None},
            })  # fmt: skip
    optimal = pareto([one["costs"][cost] for one in points], [one["quality"]["f1"]["mean"] for one in points])
    return [{**one, "pareto": [cost] if best else []} for one, best in zip(points, optimal)]


def _moments(over: str, paper: Paper, every: Sequence[Found]) -> Lines:
    """Rows of one run, or of one head of it, are the points of a line. A row that is alone is a level line."""
    groups: dict[str, Points] = {}
    for found in every:
        values = found.values.get("f1")
        if values and found.results:
            groups.setdefault(_group(found.row), []).append((_moment(over, paper, found.row, found.results[0]), values))
    several = [x for points in groups.values() if len(points) > 1 for x, _ in points]
    if not several:
        return []
    ends = (min(several), max(several))
    level = {name: [(x, points[0][1]) for x in ends] for name, points in groups.items() if len(points) == 1}
    return [_line(name, level.get(name, points)) for name, points in groups.items()]


def _group(row: Row) -> str:
    name = "BERT itself" if row.head in ("", ENCODER) else row.head
    return f"{name}, {row.epoch:g} e" if row.epoch is not None else name


def _moment(over: str, paper: Paper, row: Row, result: Result) -> float:
    """When a row is: in epochs as they were run, or in per cent of the data."""
    section = "frozen" if row.head else "optimisation"
    nominal = run_table(paper.run(row.run))[section].get("epochs", 1.0)
    at = nominal if row.at is None else row.at
    if over == "data":
        return float(100 * at)
    return float(at * (flat(result.recipe).get(f"{section}.epochs", 1.0) / nominal))


def _curves(every: Sequence[Found]) -> Iterator[Facts]:
    """The first curve of each row, where its seeds have the same moments."""
    for found in every:
        for seeds in list(found.curves.values())[:1]:
            moments = [epoch for epoch, _ in seeds[0]]
            if moments and all([epoch for epoch, _ in one] == moments for one in seeds):
                yield _line(found.row.name, [(x, [one[i][1] for one in seeds]) for i, x in enumerate(moments)])


def _weights(every: Sequence[Found]) -> Iterator[Facts]:
    """Learned layer weights, layer 0 first, the embeddings."""
    for found in every:
        for name in found.results[0].layer_weights if found.results else ():
            each = [one.layer_weights.get(name, []) for one in found.results]
            if each[0] and all(len(weights) == len(each[0]) for weights in each):
                points = [(float(i), list(values)) for i, values in enumerate(zip(*each))]
                yield _line(found.row.name if name == "model" else f"{found.row.name}: {name}", points)


def _sizes(size: str, every: Sequence[Found]) -> Iterator[Facts]:
    """A size of each layer of pruned models, the bottom layer first, 1."""
    for found in every:
        each = [one.layers for one in found.results]
        if each and each[0] and all(len(layers) == len(each[0]) for layers in each):
            points = [(i + 1.0, [float(layers[i][size]) for layers in each]) for i in range(len(each[0]))]
            yield _line(found.row.name, points)


def _line(name: str, points: Points) -> Facts:
    return line_facts(name, [], [x for x, _ in points], [values for _, values in points])

"""The figures of a comparison. matplotlib is optional: what needs it imports it.

Costs against the score with error bars, the Pareto front drawn and every point labelled; scores over epochs and over
the part of the data; risk over coverage; layer weights; the sizes of pruned layers. Colours are those of Okabe and Ito
(2008), which colour-blind readers can tell apart; marks and dashes differ as well, so that grey is enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from quoth.report.label_places import Box, place_labels
from quoth.report.plots import PANELS, STYLE, plain_text, subplots
from quoth.score.quality import NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Facts = dict[str, Any]
Segment = tuple[tuple[float, float], tuple[float, float]]

SIZE = (5.4, 4.3)  # inches: legible on a phone, two beside each other on a screen
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6F6F6F", "#8A6D00")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":")
LINES = 8  # in a figure of lines, the best rows
LISTED = 6  # names in a caption
NAMED = 14  # rows, above which labels are their numbers
LONGEST = 28  # characters of a label
INK = "#010203"  # text and axes; the page puts its own colour in its place
INTERVAL_NOTE = "Bars are 95 % intervals over seeds and questions."
COSTS = {
    "train_seconds": ("training time, seconds", "Training time against {score}", 1.0),
    "inference_seconds": ("inference time on the evaluation data, seconds", "Inference time against {score}", 1.0),
    "trainable_parameters": ("trainable parameters", "Trainable parameters against {score}", 1.0),
    "bytes": ("size on disk, MB", "Size on disk against {score}", 1e-6),
    "total_parameters": ("parameters in all", "All parameters against {score}", 1.0),
}


@dataclass(frozen=True)
class Drawn:
    """A figure, its file name, its title and a caption that says what to see."""

    name: str
    title: str
    caption: str
    figure: Figure


def draw_comparison(facts: Facts) -> list[Drawn]:
    """All figures for which the rows have the data. Call inside `matplotlib.rc_context(figure_style())`."""
    return list(_figures(facts))


def figure_style() -> dict[str, Any]:
    """Settings of matplotlib; text becomes outlines, so that it is as wide everywhere as where it was placed."""
    ink = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    return {
        **STYLE, **ink, "svg.fonttype": "path", "font.size": 9, "axes.labelsize": 9, "legend.fontsize": 8,
        "axes.grid": True, "grid.color": "#808080", "grid.alpha": 0.25, "axes.axisbelow": True,
        "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
    }  # fmt: skip


def _figures(facts: Facts) -> Iterator[Drawn]:
    score = NAMES[facts["metric"]]
    for cost, (label, title, unit) in COSTS.items():
        rows = [row for row in facts["rows"] if row["costs"][cost] is not None and facts["metric"] in row["quality"]]
        if len({row["costs"][cost] for row in rows}) > 1:
            yield draw_cost(facts["metric"], rows, cost, label, title.format(score=score), unit)
    lines = facts["curves"]
    if lines["epochs"]:
        yield _score_lines(lines["epochs"], "epochs", "epochs of training", f"Epochs against {score}", score)
    if lines["data"]:
        data = [{**line, "x": [100 * x for x in line["x"]]} for line in lines["data"]]
        yield _score_lines(data, "data", "part of the training data, per cent", f"Training data against {score}", score)
    if lines["risk_coverage"]:
        yield _risk_coverage(facts, lines["risk_coverage"])
    weighted = [(row, *item) for row in facts["rows"] for item in row["layer_weights"].items()]
    if weighted:
        yield _layer_weights(weighted)
    cut = [row for row in facts["rows"] if row["layers"]]
    if cut:
        yield _layer_sizes(cut)


def draw_cost(metric: str, rows: Sequence[Facts], cost: str, label: str, title: str, unit: float) -> Drawn:
    """A point a row; the front as steps: with a cost up to x this is the best score that there is."""
    figure, axes = subplots(SIZE)
    points = [(unit * row["costs"][cost], row["quality"][metric]["mean"]) for row in rows]
    for row, (x, y) in zip(rows, points):
        colour, mark = _look(row["number"])
        found, spread = row["quality"][metric]["interval"], row["spread"][cost]
        bars = [[max(y - found[0], 0)], [max(found[1] - y, 0)]] if found else None
        across = [[max(x - unit * spread[0], 0)], [max(unit * spread[1] - x, 0)]] if spread else None
        axes.errorbar([x], [y], yerr=bars, xerr=across, fmt=mark, color=colour, ms=6, lw=0.9, alpha=0.95, capsize=2)
    front = sorted(point for row, point in zip(rows, points) if cost in row["pareto"])
    axes.step(*zip(*front), where="post", color=INK, lw=1, linestyle=(0, (4, 2)), zorder=1)
    values = [x for x, _ in points]
    if min(values) > 0 and max(values) > 20 * min(values):
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter(_short_number)
    axes.margins(x=0.12, y=0.12)
    axes.set_xlabel(label)
    axes.set_ylabel(f"{NAMES[metric]}, per cent")
    _label_points(figure, axes, points, _names(rows), [*_segments(front), *_bars(rows, points, metric, cost, unit)])
    optimal = [plain_text(row["name"]) for row in rows if cost in row["pareto"]]
    best = ", ".join(optimal[:LISTED]) + (f" and {len(optimal) - LISTED} more" if len(optimal) > LISTED else "")
    numbers = " Numbers are those of the table's rows." if len(rows) > NAMED else ""
    intervals = f" {INTERVAL_NOTE}" if any(row["quality"][metric]["interval"] for row in rows) else ""
    caption = (
        f"Further up is better, further left is cheaper. The dashed line joins the Pareto-optimal rows ({best}): "
        f"below it, another row costs as little and scores as much.{intervals}{numbers}"
    )
    return Drawn(cost.replace("_", "-"), title, caption, figure)


def _segments(front: Sequence[tuple[float, float]]) -> list[Segment]:
    """The steps of a front: across, then up."""
    steps = list(pairwise(front))
    return [((x, y), (u, y)) for (x, y), (u, _) in steps] + [((u, y), (u, v)) for (_, y), (u, v) in steps]


def _bars(
    rows: Sequence[Facts], points: Sequence[tuple[float, float]], metric: str, cost: str, unit: float
) -> list[Segment]:
    """The error bars of all rows that have them, upright and level ones."""
    upright = [(x, row["quality"][metric]["interval"]) for row, (x, _) in zip(rows, points)]
    level = [(y, row["spread"][cost]) for row, (_, y) in zip(rows, points)]
    found = [((x, low), (x, high)) for x, (low, high) in ((x, ends) for x, ends in upright if ends)]
    return found + [((unit * low, y), (unit * high, y)) for y, (low, high) in ((y, ends) for y, ends in level if ends)]


def _label_points(
    figure: Figure,
    axes: Any,
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    lines: Sequence[Segment],
) -> None:
    """Write each name beside its point, where it covers nothing; a thin line leads to it if it is far."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_layout_engine("tight")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    figure.set_layout_engine("none")  # the axes stay where they are now
    renderer = canvas.get_renderer()
    pixels = [tuple(axes.transData.transform(point)) for point in points]
    texts = [axes.text(0, 0, name, fontsize=7.5, transform=None, va="bottom", ha="left") for name in names]
    extents = [text.get_window_extent(renderer) for text in texts]
    area = axes.get_window_extent(renderer)
    bounds = Box(area.x0, area.y0, area.x1, area.y1)
    radius = 7.0 * figure.dpi / 100
    ends = [axes.transData.transform(line) for line in lines]
    clear = [Box(*(end.min(0) - 1), *(end.max(0) + 1)) for end in ends]
    boxes = place_labels(pixels, [(e.width + 5, e.height + 3) for e in extents], bounds, radius, clear)
    for text, box, (x, y) in zip(texts, boxes, pixels):
        if box is None:  # no place is left: the number in the table has to do
            text.remove()
            continue
        # in pixels of this figure at its own resolution, which the files may change: so as a share of the axes
        left, bottom = axes.transAxes.inverted().transform((box.left + 1, box.bottom + 1))
        text.set(transform=axes.transAxes, x=left, y=bottom)
        near_x, near_y = min(max(x, box.left), box.right), min(max(y, box.bottom), box.top)
        if math.dist((x, y), (near_x, near_y)) > 2.5 * radius:
            leader = axes.transAxes.inverted().transform([(x, y), (near_x, near_y)])
            axes.plot(leader[:, 0], leader[:, 1], transform=axes.transAxes, color=INK, lw=0.4, alpha=0.6, zorder=1)


def _score_lines(lines: Sequence[Facts], name: str, label: str, title: str, score: str) -> Drawn:
    """Mean scores over epochs or data, the least and most of the seeds as bars."""
    shown = sorted(lines, key=lambda line: -max(line["mean"]))[:LINES]
    left_out = f" The {LINES} best of {len(lines)} are shown." if len(lines) > LINES else ""
    what = "training data" if name == "data" else "epochs"
    caption = f"Where a line is flat, more {what} gain nothing.{seeds_note(shown)}{left_out}"
    return Drawn(name, title, caption, draw_lines(shown, label, f"{score}, per cent"))


def draw_lines(lines: Sequence[Facts], across: str, up: str, bottom: float | None = None) -> Figure:
    """Means as lines, with bars from the least to the most of the seeds; across, up: what the axes are."""
    figure, axes = subplots(SIZE)
    for number, line in enumerate(lines, 1):
        colour, mark = _look(number)
        below = [max(mean - low, 0) for mean, low in zip(line["mean"], line["low"])]
        above = [max(high - mean, 0) for mean, high in zip(line["mean"], line["high"])]
        axes.errorbar(
            line["x"], line["mean"], yerr=[below, above] if line["seeds"] > 1 else None, marker=mark, ms=4, capsize=2,
            color=colour, linestyle=DASHES[(number - 1) % len(DASHES)], lw=1.2, label=_cut(line["name"]),
        )  # fmt: skip
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_ylim(bottom=bottom)
    _legend_below(figure, axes)
    return figure


def seeds_note(lines: Sequence[Facts]) -> str:
    """What the bars of `draw_lines` are, where there are any."""
    return " Bars reach from the least to the most of the seeds." if any(line["seeds"] > 1 for line in lines) else ""


def _risk_coverage(facts: Facts, curves: Sequence[Facts]) -> Drawn:
    figure, axes = subplots(SIZE)
    names = {row["number"]: row["name"] for row in facts["rows"]}
    for curve in curves[:LINES]:
        colour, _ = _look(curve["row"])
        dash = DASHES[(curve["row"] - 1) % len(DASHES)]
        coverage, risk = ([100 * x for x in curve[key]] for key in ("coverage", "risk"))
        axes.plot(coverage, risk, color=colour, linestyle=dash, lw=1.3, label=_cut(names[curve["row"]]))
    axes.set_xlabel("coverage: questions that are answered, the surest first, per cent")
    axes.set_ylabel("risk: 100 − F1 of these questions, per cent")
    axes.set_ylim(bottom=0)
    _legend_below(figure, axes)
    left_out = f" The {LINES} best rows of {len(curves)} are shown." if len(curves) > LINES else ""
    caption = (
        "Lower is better. A line that rises from left to right belongs to a model that knows when it is right; "
        f"at 100 % all questions count. The first seed of each row.{left_out}"
    )
    return Drawn("risk-coverage", "Risk and coverage", caption, figure)


def _layer_weights(weighted: Sequence[tuple[Facts, str, list[float]]]) -> Drawn:
    figure, axes = subplots(SIZE)
    for number, (row, name, values) in enumerate(weighted[:LINES], 1):
        colour, mark = _look(number)
        dash = DASHES[(number - 1) % len(DASHES)]
        label = _cut(row["name"] if name == "model" else f"{row['name']}: {name}")
        axes.plot(range(len(values)), values, color=colour, marker=mark, ms=4, linestyle=dash, lw=1.2, label=label)
    axes.set_xlabel("layer (0: the embeddings)")
    axes.set_ylabel("weight, without a unit")
    _legend_below(figure, axes)
    caption = "How much a head reads of each layer, the mean over seeds. High on the left: it reads the lower layers."
    return Drawn("layer-weights", "Learned layer weights", caption, figure)


def _layer_sizes(rows: Sequence[Facts]) -> Drawn:
    """A panel for each of f, a, k, v, a line a pruned model."""
    figure, panels = subplots((SIZE[0], 1.25 * SIZE[1]), 2, 2)
    for axes, (key, what) in zip(panels.flatten(), PANELS.items()):
        for row in rows[:LINES]:
            colour, mark = _look(row["number"])
            sizes = [layer[key] for layer in row["layers"]]
            axes.plot(range(1, len(sizes) + 1), sizes, color=colour, marker=mark, ms=3, lw=1, label=_cut(row["name"]))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("layer")
        axes.set_ylabel(f"{what}, units" if key != "heads" else "heads, number")
    _legend_below(figure, panels[0, 0])
    caption = "What pruning left of each layer, from the bottom (1) to the top. A low place is where much was cut."
    return Drawn("layer-sizes", "Sizes of pruned layers", caption, figure)


def _legend_below(figure: Figure, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    rows = math.ceil(len(labels) / 2)
    share = 0.03 + 0.04 * rows
    figure.legend(handles, labels, loc="lower center", ncols=2, handlelength=3)
    figure.set_layout_engine("tight", rect=(0, share, 1, 1))


def _short_number(value: float, place: int) -> str:
    """A number at an axis: 20,000,000 is 20 M, and not a power of ten with an exponent."""
    for unit, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _look(number: int) -> tuple[str, str]:
    """The colour and the mark of a row: 64 pairs."""
    turn = (number - 1) // len(COLOURS)
    return COLOURS[(number - 1) % len(COLOURS)], MARKS[(number - 1 + turn) % len(MARKS)]


def _names(rows: Sequence[Facts]) -> list[str]:
    """Labels of points: names, or numbers where there are many."""
    return [str(row["number"]) for row in rows] if len(rows) > NAMED else [_cut(row["name"]) for row in rows]


def _cut(name: str) -> str:
    """A name that is not too long, cut in its middle, where names of one sweep differ least."""
    name = plain_text(name)
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[:half]}…{name[-half + 1 :]}"

"""The figures of the papers, drawn from stored runs in the manner of `quoth.report.comparison_figures`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quoth.report.comparison_figures import COSTS, LINES, Drawn, draw_cost, draw_lines, seeds_note
from quoth.report.plots import PANELS

Facts = dict[str, Any]

FLAT = "Where a line is flat, more epochs gain nothing."
# By what is drawn: the title, the axes, and what to see.
AXES = {
    "epochs": (
        "F1 over epochs", "epochs", "F1, per cent",
        f"{FLAT} A level line is a model without moments of its own.",
    ),
    "data": (
        "F1 over the part of the data", "part of the training data, per cent", "F1, per cent",
        "Where a line is flat, more training data gain nothing. Level: the encoder itself.",
    ),
    "layer_weights": (
        "Learned layer weights", "layer (0: the embeddings)", "weight, without a unit",
        "How much a head reads of each layer. High on the right: it reads the upper layers.",
    ),
    "f1": ("F1 over epochs", "epochs", "F1, per cent", FLAT),
    "exact": ("EM over epochs", "epochs", "EM, per cent", FLAT),
    "loss": ("Training loss over epochs", "epochs", "training loss, nats", "The loss falls as training goes on."),
}  # fmt: skip
PRUNED = "What pruning left of each layer, from the bottom (1) to the top. A low place is where much was cut."


def draw_item(facts: Facts) -> Drawn | None:
    """The figure of an item, if it has one. Call inside `matplotlib.rc_context(figure_style())`."""
    found = facts["drawing"]
    if found is None:
        return None
    name = facts["item"].replace("/", "-")
    if found["points"]:
        label, title, unit = COSTS[found["draw"]]
        drawn = draw_cost("f1", found["points"], found["draw"], label, title.format(score="F1"), unit)
        return Drawn(name, drawn.title, drawn.caption, drawn.figure)
    title, across, up, says = _axes(found["draw"], facts)
    lines = found["lines"][:LINES]
    bottom = 0.0 if found["draw"] in PANELS else None
    left_out = f" The first {LINES} of {len(found['lines'])} lines are shown." if len(found["lines"]) > LINES else ""
    return Drawn(name, title, f"{says}{seeds_note(lines)}{left_out}", draw_lines(lines, across, up, bottom))


def _axes(draw: str, facts: Facts) -> Sequence[str]:
    """The title, the labels of both axes, and what to see."""
    if draw in PANELS:
        words = PANELS[draw]
        return f"{words.capitalize()} by layer", "layer", f"{words}, {'number' if draw == 'heads' else 'units'}", PRUNED
    return AXES[facts["curves"][0] if draw == "curve" else draw]

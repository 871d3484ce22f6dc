"""An analysis, and the sizes of an encoder, as SVG plots. matplotlib is optional: what needs it imports it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quoth.encoder import Shape
from quoth.errors import QuothError
from quoth.files import atomic_file
from quoth.report.tables import SLICES
from quoth.score.quality import NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 20  # slices in a plot, the largest ones
FACTOR = 20  # between the first and the last epoch of a curve, above which its axis is logarithmic
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "quoth",  # equal figures make equal files
    "text.parse_math": False,  # an article may be called "A$AP"
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}

PANELS = {"ffn": "feed-forward size", "heads": "heads", "key": "key size", "value": "value size"}

Facts = dict[str, Any]


def check_plots() -> None:
    """Raise an error before the work starts where plots cannot be made."""
    if find_spec("matplotlib") is None:
        raise QuothError("plots need matplotlib: pip install 'quoth[report]'")


def plot_analysis(facts: Facts, folder: str | Path) -> list[Path]:
    """Write the plots of what `quoth analyse --json` prints into a folder; returns the files.

    - slices-*.svg: F1 by slice with its 95 % interval, a colour a run; none where all questions are in one slice
    - layer-weights.svg: where a run has them
    - uniquely-right.svg: where there are several runs
    """
    return _write(folder, _figures(facts))


def plot_curves(facts: Facts, folder: str | Path) -> list[Path]:
    """Write curves-STAGE.svg for each stage of what `quoth analyse --curves --json` prints; returns the files."""
    names: list[str] = []
    for stage in facts["stages"]:
        name = f"curves-{Path(stage['stage']).resolve().name}"
        same = sum(other == name or other.startswith(f"{name}~") for other in names)
        names.append(f"{name}~{same + 1}" if same else name)
    return _write(folder, ((name, _curves(stage)) for name, stage in zip(names, facts["stages"])))


def plot_shape(name: str, shape: Shape, path: str | Path) -> Path:
    """Draw a panel for each of f, a, k, v, over the layers: figures 3 to 6 of schuBERT (ACL 2020); returns the file."""
    check_plots()
    path = Path(path)
    if path.is_dir():
        raise QuothError(f"{path}: is a folder; name an .svg file to write to")
    figure, panels = subplots((9, 6), 2, 2)
    figure.set_layout_engine("constrained")
    numbers = range(1, len(shape.layers) + 1)
    for axes, (key, what) in zip(panels.flatten(), PANELS.items()):
        axes.plot(numbers, [getattr(layer, key) for layer in shape.layers], marker="o", ms=4)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("layer")
        axes.set_ylabel(what)
    figure.suptitle(plain_text(f"{name}: hidden {shape.hidden}"))
    return _write(path.parent, iter([(path.name.removesuffix(".svg"), figure)]))[0]


def _write(folder: str | Path, figures: Iterator[tuple[str, Figure]]) -> list[Path]:
    """Each figure as an SVG in the folder, by its name."""
    check_plots()
    import matplotlib

    paths = []
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that the font lacks is drawn by the viewer's font
        for name, figure in figures:
            path = Path(folder) / f"{name}.svg"
            with atomic_file(path) as part:
                figure.savefig(part, format="svg", metadata={"Date": None}, bbox_inches="tight")
            paths.append(path)
    return paths


def _figures(facts: Facts) -> Iterator[tuple[str, Figure]]:
    runs: list[Facts] = facts["runs"]
    for name, what in SLICES.items():
        if len(runs[0]["slices"][name]) > 1:
            yield f"slices-{name.replace('_', '-')}", _slices(name, what, runs)
    if any(run.get("layer_weights") for run in runs):
        yield "layer-weights", _layer_weights(runs)
    if "together" in facts:
        yield "uniquely-right", _uniquely_right(facts["together"]["uniquely_right"])


def _slices(name: str, what: str, runs: list[Facts]) -> Figure:
    first = sorted(runs[0]["slices"][name], key=lambda row: -row["questions"])[:ROWS]
    shown = {row["label"] for row in first}
    labels = [f"{row['label']} ({row['questions']:,})" for row in runs[0]["slices"][name] if row["label"] in shown]
    figure, axes = subplots((7, 1.2 + len(labels) * (0.25 + 0.1 * len(runs))))
    for i, (run, colour) in enumerate(zip(runs, _colours(len(runs)))):
        rows = [row for row in run["slices"][name] if row["label"] in shown]
        places = [place + 0.7 * ((i + 0.5) / len(runs) - 0.5) for place in range(len(rows))]
        scores = [row["f1"] for row in rows]
        # rounding may put an end of the interval a hair beyond the mean
        below = [max(row["f1"] - row["interval"]["f1"][0], 0.0) for row in rows]
        above = [max(row["interval"]["f1"][1] - row["f1"], 0.0) for row in rows]
        axes.errorbar(scores, places, xerr=[below, above], fmt="o", ms=4, color=colour, label=plain_text(run["run"]))
    axes.set_yticks(range(len(labels)), [plain_text(label) for label in labels])
    axes.invert_yaxis()
    axes.set_xlabel("F1, per cent, with 95 % interval")
    axes.set_title(f"by {what}")
    _legend(axes)
    return figure


def _curves(stage: Facts) -> Figure:
    """A panel a metric, a line a head, the encoder's own head dashed."""
    metrics, epochs, heads = stage["metrics"], stage["epochs"], stage["heads"]
    figure, panels = subplots((1 + 5 * len(metrics), 4.5), 1, len(metrics), squeeze=False)
    for axes, metric in zip(panels[0], metrics):
        for (name, curve), colour in zip(heads.items(), _colours(len(heads))):
            axes.plot(epochs, [look[metric] for look in curve], marker="o", ms=3, color=colour, label=plain_text(name))
        if "encoder" in stage:
            axes.axhline(stage["encoder"][metric], color="black", linestyle="--", label="the encoder's own")
        if epochs[-1] > FACTOR * epochs[0]:
            axes.set_xscale("log")
        axes.set_xlabel("epochs of the heads (up to 1: the part of the data)")
        axes.set_ylabel(NAMES.get(metric, metric))
    figure.suptitle(plain_text(stage["stage"]))
    _legend(panels[0, -1])
    return figure


def _layer_weights(runs: list[Facts]) -> Figure:
    figure, axes = subplots((7, 4))
    lines = [(run["run"], *item) for run in runs for item in run.get("layer_weights", {}).items()]
    for (run, name, weights), colour in zip(lines, _colours(len(lines))):
        axes.plot(range(len(weights)), weights, marker="o", ms=3, color=colour, label=plain_text(f"{run}: {name}"))
    axes.set_xlabel("layer")
    axes.set_ylabel("weight")
    axes.set_title("layer weights")
    _legend(axes)
    return figure


def _uniquely_right(rows: list[Facts]) -> Figure:
    figure, (counts, lengths) = subplots((9, 1.4 + 0.35 * len(rows)), 1, 2, sharey=True)
    places = range(len(rows))
    counts.barh(places, [row["questions"] for row in rows], color=_colours(len(rows)))
    counts.set_yticks(places, [plain_text(row["run"]) for row in rows])
    counts.invert_yaxis()
    counts.set_xlabel("questions that it alone gets right")
    lengths.barh(places, [row["context_words"] or 0.0 for row in rows], color=_colours(len(rows)))
    lengths.set_xlabel("their mean context length, words")
    figure.suptitle("uniquely right")
    return figure


def subplots(size: tuple[float, float], rows: int = 1, columns: int = 1, **settings: Any) -> tuple[Figure, Any]:
    """A new figure and its axes, one or an array of them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    return figure, figure.subplots(rows, columns, **settings)


def _colours(count: int) -> list[Any]:
    from matplotlib import colormaps

    if count <= 10:
        return [colormaps["tab10"](i) for i in range(count)]
    return [colormaps["viridis"](i / (count - 1)) for i in range(count)]


def _legend(axes: Any) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")


def plain_text(text: str) -> str:
    """Without characters that an SVG may not hold."""
    return "".join(char if char.isprintable() else " " for char in text)

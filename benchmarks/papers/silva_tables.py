"""Tables and plots of benchmarks.papers.silva."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pool import spread
from benchmarks.race import markdown
from quoth.files import atomic_file

SCORES = {"f1": "F1 at 0", "exact": "EM at 0", "best_f1": "F1 at best"}
CURVES = {
    "best_f1": "F1 at the best threshold",
    "f1": "F1 at threshold 0",
    "best_exact": "EM at the best threshold",
    "exact": "EM at threshold 0",
}


@dataclass(frozen=True)
class Row:
    """A row of the table: its recipe, and the paper's F1 / EM after 2 and after 5 epochs."""

    name: str
    recipe: str
    short: str = "–"
    long: str = "–"


ROWS = (
    Row("plain encoder", "albert", "79.64 / 76.54", "77.74 / 73.92"),
    Row("weighted", "weighted", "78.14 / 75.16"),
    Row("dot", "dot", "79.95 / 76.88", "78.40 / 74.58"),
    Row("multiplicative", "multiplicative", long="76.82 / 72.92"),
    Row("encoder block", "encoder", long="76.57 / 72.64"),
)


def chosen(results: dict[str, Any], row: str, kind: str) -> list[dict[str, Any]]:
    """The runs of a row at its rate, by seed."""
    wanted = {"row": row, "kind": kind, "rate": results["rates"][row]}
    found = [run for run in results["runs"].values() if wanted.items() <= run.items()]
    return sorted(found, key=lambda run: int(run["seed"]))


def table(results: dict[str, Any]) -> str:
    """The tables of benchmarks/results/silva.md: the learning rates, and the rows so far as they were run."""
    found = results["scores"].items()
    searched = [[name, " · ".join(f"{rate}: {value:.1f}" for rate, value in rates.items())] for name, rates in found]
    settings = results["settings"]
    times = {"short": f"{settings['epochs']:g} e", "long": f"{settings['long']:g} e"}
    heads = [f"{label}, {time}" for time in times.values() for label in (*SCORES.values(), "s")]
    heads = ["head", "own parameters", "learning rate", *heads, "paper F1 / EM, 2 e", "paper F1 / EM, 5 e"]
    plain = results["head_parameters"][ROWS[0].name]
    rows = []
    for row in ROWS:
        own = results["head_parameters"][row.name] - plain
        cells = [row.name, f"{own:,}", f"{results['rates'][row.name]:g}"]
        for kind in times:
            runs = chosen(results, row.name, kind)
            cells += [spread([run["quality"][key] for run in runs]) if runs else "–" for key in SCORES]
            cells.append(f"{np.mean([run['train_seconds'] for run in runs]):.0f}" if runs else "–")
        rows.append([*cells, row.short, row.long])
    search = markdown(["search of learning rates: F1 at best on held-out articles", ""], searched)
    return f"{search}\n\n{markdown(heads, rows)}"


def smooth(values: np.ndarray, width: int = 5) -> np.ndarray:
    """The mean of `width` neighbours; of fewer at the ends."""
    ones = np.ones(min(width, len(values)))
    return np.asarray(np.convolve(values, ones, "same") / np.convolve(np.ones(len(values)), ones, "same"))


def plot(results: dict[str, Any], folder: Path) -> list[Path]:
    """The paper's figures 2–7: training loss over steps, F1 and EM over epochs."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    settings = results["settings"]
    seeds = f"{settings['seeds']} seeds"
    titles = {"short": f"{settings['epochs']:g} epochs, {seeds}", "long": f"{settings['long']:g} epochs, one seed"}
    style = {"svg.fonttype": "none", "svg.hashsalt": "quoth", "axes.spines.top": False, "axes.spines.right": False}
    paths = []
    with matplotlib.rc_context(style):
        for name, draw, panels in (("loss", draw_losses, 1), ("dev", draw_scores, len(CURVES))):
            figure, axes = pyplot.subplots(
                panels, 2, figsize=(9, 1.2 + 2.6 * panels), sharex="col", sharey="row", squeeze=False
            )
            for column, (kind, title) in enumerate(titles.items()):
                axes[0, column].set_title(title, fontsize=10)
                for place, row in enumerate(ROWS):
                    runs = chosen(results, row.name, kind)
                    if runs:
                        draw(axes[:, column], runs, f"C{place}", row.name)
            handles, labels = axes[0, 0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="lower center", ncols=len(ROWS), frameon=False, fontsize=8)
            figure.tight_layout(rect=(0, 0.3 / figure.get_figheight(), 1, 1))
            paths.append(folder / f"silva-{name}.svg")
            with atomic_file(paths[-1]) as part:
                figure.savefig(part, format="svg", metadata={"Date": None})
            pyplot.close(figure)
    return paths


def draw_losses(axes: Any, runs: Sequence[dict[str, Any]], colour: str, label: str) -> None:
    """The mean over seeds. The steps are the same for all seeds: they follow from the lengths of the windows."""
    values = np.mean([run["losses"]["loss"] for run in runs], 0)
    axes[0].plot(runs[0]["losses"]["steps"], smooth(values), color=colour, label=label, linewidth=1.2)
    axes[0].set(xlabel="step", ylabel="training loss", yscale="log")
    axes[0].yaxis.set_major_formatter("{x:g}")
    axes[0].yaxis.set_minor_formatter("{x:g}")
    axes[0].tick_params(axis="y", which="minor", labelsize=6)


def draw_scores(axes: Any, runs: Sequence[dict[str, Any]], colour: str, label: str) -> None:
    """The mean over seeds, with a band of one deviation to each side."""
    epochs = [look["epoch"] for look in runs[0]["evaluations"]]
    for axis, (key, name) in zip(axes, CURVES.items()):
        values = np.array([[look[key] for look in run["evaluations"]] for run in runs])
        mean = values.mean(0)
        axis.plot(epochs, mean, color=colour, label=label, linewidth=1.2, marker=".", markersize=4)
        if len(runs) > 1:
            deviation = values.std(0, ddof=1)
            axis.fill_between(epochs, mean - deviation, mean + deviation, color=colour, alpha=0.15, linewidth=0)
        axis.set_ylabel(name, fontsize=8)
    axes[-1].set_xlabel("epoch")

"""Tables and plot of benchmarks.papers.classes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pool import spread
from benchmarks.race import markdown
from quoth.files import atomic_file

AT = (0.2, 1, 3)  # epochs of the encoder
ENCODER = "encoder"  # its own head, trained with it
CONTROL = "linear"  # the linear head on the pooler's output alone, trained anew
ANSWERABLE = "answerable"
# Recipe, score, and the authors' follow-up: BERT-base after 1 epoch → with a head.
GLUE = {
    "MRPC": ("mrpc", "acc", "82.0 → 84.0"),
    "RTE": ("rte", "acc", "63.9 → 72.6"),
    "SST-2": ("sst2", "acc", "92.7 → 92.7"),
    "CoLA": ("cola", "mcc", "53.4 → 60.0"),
}
# The paper, BERT-large: EM / F1 after 0.2, 1 and 3 epochs.
PAPER = {
    ENCODER: ("68.7 / 63.6", "76.1 / 72.0", "80.4 / 79.0"),
    CONTROL: ("control, ours",) * 3,
    "lp": ("69.7 / 65.0", "78.2 / 76.3", "81.1 / 79.5"),
    "lp-adapter-386": ("68.5 / 64.6", "78.1 / 76.5", "–"),
    "ap-adapter-386": ("69.1 / 62.4", "77.9 / 76.5", "–"),
    "xception-short": ("67.3 / 70.2", "78.5 / 78.2", "–"),
    "xception-short-cls": ("67.2 / 56.4", "78.3 / 78.0", "–"),
    "xception-full": ("70.7 / 71.0", "78.3 / 76.6", "–"),
}


def chosen(results: dict[str, Any], task: str, at: float) -> list[dict[str, Any]]:
    """The heads of the runs of a task after so many epochs, by seed: the encoder's own first."""
    found = [run for run in results["runs"].values() if (run["task"], run["at"]) == (task, at)]
    found.sort(key=lambda run: int(run["seed"]))
    order = sorted(found[0]["heads"], key=lambda name: name != ENCODER) if found else []
    return [{name: run["heads"][name] for name in order} for run in found]


def table(results: dict[str, Any]) -> str:
    """The tables of benchmarks/results/classification.md, so far as they were run."""
    return "\n\n".join(filter(None, (answerable_table(results), glue_table(results))))


def answerable_table(results: dict[str, Any]) -> str:
    """Answer or no answer: a row a head and epoch of the encoder."""
    rows = []
    for number, at in enumerate(AT):
        seeds = chosen(results, ANSWERABLE, at)
        for name in seeds[0] if seeds else ():
            heads = [heads[name] for heads in seeds]
            looks = [max(head["curve"], key=lambda look: look["f1"]) for head in heads if "curve" in head]
            best = pair(looks) if looks else "–"
            size = f"{heads[0]['parameters']:,}" if "parameters" in heads[0] else "–"
            scores = [pair([head["quality"] for head in heads]), best, pair(heads, "best_")]
            rows.append([f"{at:g}", name, size, *scores, PAPER[name][number]])
    heads_of_columns = ["epochs", "head", "parameters", "EM / F1", "at its best epoch", "at the best thresholds"]
    return markdown([*heads_of_columns, "paper, BERT-large"], rows) if rows else ""


def pair(values: Sequence[dict[str, float]], prefix: str = "") -> str:
    """EM / F1, of several seeds their means."""
    return " / ".join(spread([value[prefix + key] for value in values]) for key in ("exact", "f1"))


def glue_table(results: dict[str, Any]) -> str:
    """GLUE: a row a task and epoch of the encoder.

    The best head is that of the highest mean on the same dev set, the control left out.
    """
    rows: list[list[str]] = []
    columns: list[str] = []
    for task, (_, key, paper) in GLUE.items():
        for at in AT:
            seeds = chosen(results, task, at)
            if not seeds:
                continue
            scores = {name: [heads[name]["quality"][key] for heads in seeds] for name in seeds[0]}
            names = [name for name in scores if name != ENCODER]
            best = max((name for name in names if name != CONTROL), key=lambda name: statistics.mean(scores[name]))
            columns = columns or names
            cells = [f"{task}, {key}", f"{at:g}", spread(scores[ENCODER]), f"{spread(scores[best])} ({best})"]
            cells += [*(spread(scores[name]) for name in names), paper if at == 1 else ""]
            rows.append(cells)
    columns = ["task", "epochs", "full tuning", "best head", *columns, "follow-up, BERT-base, 1 epoch"]
    return markdown(columns, rows) if rows else ""


def plot(results: dict[str, Any], folder: Path) -> Path | None:
    """The paper's figure 3: F1 over the epochs of the heads, a panel an epoch of the encoder."""
    import matplotlib
    from matplotlib.figure import Figure

    from quoth.report.plots import STYLE

    panels = {at: seeds for at in AT if (seeds := chosen(results, ANSWERABLE, at))}
    if not panels:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.5 + 3.2 * len(panels), 3.8))
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (at, seeds) in zip(axes, panels.items()):
            own = statistics.mean(heads[ENCODER]["quality"]["f1"] for heads in seeds)
            axis.axhline(own, color="black", linestyle="--", label="encoder itself")
            for name, epochs, scores in curves(seeds):
                axis.plot(epochs, scores, marker="o", ms=3, label=name)
            axis.set_title(f"encoder after {at:g} epoch{'s' if at != 1 else ''}", fontsize="medium")
            axis.set_xlabel("epochs of the heads")
        axes[0].set_ylabel('F1 of "no answer"')
        axes[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
        path = folder / "answerable.svg"
        with atomic_file(path) as part:
            figure.savefig(part, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return path


def curves(seeds: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[float], list[float]]]:
    """Of every head on frozen states its name, the epochs at which it was scored, and F1 there, the mean over seeds."""
    for name, head in seeds[0].items():
        if "curve" not in head:
            continue
        looks = zip(*([look["f1"] for look in heads[name]["curve"]] for heads in seeds))
        yield name, [look["epoch"] for look in head["curve"]], [statistics.mean(values) for values in looks]

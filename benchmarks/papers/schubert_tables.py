"""Speeds, tables and plots of benchmarks.papers.schubert."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.schubert_runs import score
from benchmarks.pool import Facts, spread
from benchmarks.race import Contender, markdown, race
from quoth.encoder.shape import Shape
from quoth.files import atomic_file

ORDER = ("unpruned", "all", "h", "f", "a", "uniform", "layers", "albert-e")
TASKS = {
    "SQuAD": (("best_f1", "SQuAD 2.0 best F1"), ("f1", "F1 at 0"), ("answered_f1", "answerable F1")),
    "MRPC": (("acc", "MRPC acc"), ("f1", "MRPC F1")),
    "RTE": (("acc", "RTE acc"),),
    "SST-2": (("acc", "SST-2 acc"),),
}
PANELS = {"ffn": "feed-forward size f", "heads": "heads a", "key": "key size k", "value": "value size v"}
DRAWN = {"all": tuple(PANELS), "f": ("ffn",), "a": ("heads",)}  # what varies from layer to layer, of each kind
NAMES = {"task": "Task loss", "more": "Task loss, other baselines", "reader": "Readers at half"}
TITLES = {"task": "task loss", "text": "pre-training loss"}


def speeds(results: Facts, options: argparse.Namespace, device: str) -> Facts:
    """Of every shape windows/s of the encoder (GPU) or questions/s of the reader (CPU); the ratio to the teacher."""
    from quoth.answer.reader import Reader
    from quoth.data import read
    from quoth.encoder.encoder import Encoder
    from quoth.heads.linear import SpanHead
    from quoth.model.loading import load
    from quoth.model.model import Model
    from quoth.runtime.torch_runner import TorchRunner
    from quoth.windows.questions import make_windows
    from quoth.windows.tokenizer import Tokenizer

    base, tokens = load(options.model), Tokenizer.load(options.model)
    found = {"teacher": base.encoder.shape}
    for name, run in results["runs"].items():
        shape = Shape.from_json(run["shape"]) if run.get("seed") == 0 and "shape" in run else None
        if shape is not None and shape not in found.values():  # layers are the same under both losses
            found[name] = shape
    questions = read(options.evaluate).questions
    if device == "cpu":
        questions = [questions[i] for i in np.linspace(0, len(questions) - 1, options.questions).astype(int)]
    texts: dict[str, Any] = {"question": [q.question for q in questions], "context": [q.context for q in questions]}
    windows = make_windows(questions, tokens)
    contenders: dict[str, Contender] = {}
    count = len(questions) if device == "cpu" else len(windows)
    for name, shape in found.items():
        model = Model(Encoder(shape, base.encoder.style), SpanHead(shape.hidden), origin=base.origin)
        reader = Reader(TorchRunner(model, device), tokens)
        step = partial(reader, **texts) if device == "cpu" else partial(reader.logits, windows)
        contenders[name] = Contender(step, count)
    times = race(contenders, options.passes)
    rates = {name: {"rate": times.rate(name), "ratio": times.ratio(name, "teacher").median} for name in contenders}
    return {"device": device, "count": count, "passes": options.passes, "rates": rates}


def rows_of(results: Facts, loss: str) -> Iterator[tuple[str, float, list[Facts]]]:
    """The rows of a loss from large to small: row, part, and its runs by seed."""
    found: dict[tuple[float, int, str], list[Facts]] = {}
    for name, run in results["runs"].items():
        if name.startswith(f"{loss}/"):
            place = ORDER.index(run["row"]) if run["row"] in ORDER else len(ORDER)
            found.setdefault((-run["keep"], place, run["row"]), []).append({**run, "name": name})
    for key in sorted(found):
        runs = sorted(found[key], key=lambda run: int(run["seed"]))
        yield runs[0]["row"], runs[0]["keep"], runs


def sizes(value: Facts) -> list[str]:
    """Parameters of an encoder of this shape, in millions: without embeddings, and all. Neither pooler nor head."""
    shape = Shape.from_json(value)
    parts = shape.parameters()
    outside = parts["embeddings"] + parts["projection"]
    return [f"{(shape.total() - outside) / 1e6:.2f}", f"{shape.total() / 1e6:.2f}"]


def speed_cells(results: Facts, runs: Sequence[Facts]) -> list[str]:
    """GPU windows/s and CPU questions/s, each with the ratio to the teacher's; of the first seed's shape."""
    cells = []
    for stage in ("time", "cpu"):
        rates = results.get(stage, {}).get("rates", {})
        shape = runs[0].get("shape")
        same = [name for name in rates if name != "teacher" and results["runs"][name]["shape"] == shape]
        found = rates.get(same[0] if same else "teacher" if shape is None else "")
        cells.append(f"{found['rate']:,.0f} ({found['ratio']:.2f} ×)" if found else "–")
    return cells


def mean(runs: Sequence[Facts], part: str, key: str) -> str:
    """Mean ± deviation of a score or a loss of runs, – where there is none."""
    values = [float(run[part][key]) for run in runs if key in run.get(part, {})]
    if not values or part != "losses":
        return spread(values) if values else "–"
    more = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{more}"


def table(results: Facts) -> str:
    """All tables of benchmarks/results/schubert.md, so far as they were run."""
    made = [search_table(results), task_table(results, "task"), task_table(results, "more"), text_table(results)]
    made += [task_table(results, "reader"), sizes_table(results)]
    return "\n\n".join(part for part in made if part)


def search_table(results: Facts) -> str:
    """The trials of both studies, then the learning rates of recovery, row by row."""
    found = {name: run for name, run in results["runs"].items() if name.startswith("search/")}
    trials = [run for name, run in found.items() if "-trial" in name]
    rows = [
        [TITLES[run["loss"]], *(f"{value:.3g}" for value in run["gates"]), f"{seen(run):.2f}"]
        for run in sorted(trials, key=lambda run: (run["loss"], -score(run)))
    ]
    heads = ["gates at 0.6", "γ", "learning rate", "steps", "F1 at best, or loss, on what was held out"]
    made = [markdown(heads, rows)] if rows else []
    rates: dict[tuple[str, str], list[str]] = {}
    for name, run in found.items():
        if "-trial" not in name:
            rates.setdefault((run["loss"], run["row"]), []).append(f"{run['rate']:g}: {seen(run):.2f}")
    rows = [[TITLES[loss], row, " · ".join(texts)] for (loss, row), texts in rates.items()]
    made += [markdown(["recovery at 0.6", "row", "learning rate: score"], rows)] if rows else []
    return "\n\n".join(made)


def seen(run: Facts) -> float:
    return abs(score(run))


def task_table(results: Facts, loss: str) -> str:
    """Pruned by the task: the teacher first."""
    rows = []
    teacher = results["runs"].get("teacher/teacher")
    found = [line for found in rows_of(results, loss) for line in (*started(*found), found)]
    for row, keep, runs in ([("teacher", 1.0, [teacher])] if teacher and found else []) + found:
        size = sizes(runs[0].get("shape") or found[0][2][0]["unpruned"]["shape"])
        scores = [mean(runs, "quality", key) for key, _ in TASKS["SQuAD"]]
        losses = [mean(runs, "losses", key) for key in ("before", "cut", "recovered")]
        cells = [row, f"{keep:g}", *size, *scores, *losses]
        rows.append([*cells, *speed_cells(results, runs), f"{np.mean([run['wall'] for run in runs]):.0f}"])
    heads = ["row", "part", "M without embeddings", "M", *(name for _, name in TASKS["SQuAD"])]
    heads += ["loss before", "after the cut", "recovered", "GPU windows/s", "CPU questions/s", "s in all"]
    return f"**{NAMES[loss]}**, {trained_by(found[-1][2])}\n\n{markdown(heads, rows)}" if found else ""


def trained_by(runs: Sequence[Facts]) -> str:
    """What gates and recovery of these runs were trained by; runs from before the choice had distillation alone."""
    return "by distillation" if runs[0].get("distilled", True) else "by the loss itself"


def started(row: str, keep: float, runs: Sequence[Facts]) -> list[tuple[str, float, list[Facts]]]:
    """What a row's runs were before any gate, where they began with fewer layers or smaller embeddings."""
    starts = [{**run, **run["start"]} for run in runs if "start" in run]
    return [(f"{row}: before gates", 1.0, starts)] if starts else []


def text_table(results: Facts) -> str:
    """Pruned on plain text, then tuned on every task: the unpruned encoder first."""
    tuned: dict[tuple[str, float, str], list[Facts]] = {}
    for name, run in results["runs"].items():
        if name.startswith("tune/"):
            tuned.setdefault((run["row"], run["keep"], run["task"]), []).append(run)
    pruned = list(rows_of(results, "text"))
    rows = []
    for row, keep, runs in ([("unpruned", 1.0, [])] if pruned else []) + pruned:
        shape = runs[0]["shape"] if runs else pruned[0][2][0]["unpruned"]["shape"]
        cells = [row, f"{keep:g}", *sizes(shape)]
        cells += [mean(runs, "losses", key) for key in ("before", "cut", "recovered")]
        for task, scores in TASKS.items():
            cells += [mean(tuned.get((row, keep, task), []), "quality", key) for key, _ in scores]
        rows.append([*cells, *speed_cells(results, runs or [{}])])
    heads = ["row", "part", "M without embeddings", "M", "loss before", "after the cut", "recovered"]
    heads += [name for scores in TASKS.values() for _, name in scores] + ["GPU windows/s", "CPU questions/s"]
    text = f"**Pre-training loss**, {trained_by(pruned[0][2])}\n\n{markdown(heads, rows)}" if rows else ""
    fit = results["runs"].get("teacher/heads")
    if fit:
        how = "flat" if fit["flat"] else "not yet flat"
        text += (
            f"\n\nHeads: {fit['steps']} steps, held-out loss {fit['losses'][0]:.3f} to {fit['losses'][-1]:.3f}, {how}."
        )
    return text.strip()


def sizes_table(results: Facts) -> str:
    """Sizes from the first to the last layer, seed 0."""
    rows = []
    for loss in (*TITLES, "more", "reader"):
        for row, keep, runs in rows_of(results, loss):
            layers = runs[0]["shape"]["layers"]
            lists = [" ".join(str(layer[key]) for layer in layers) for key in PANELS]
            rows.append([TITLES.get(loss, loss), row, f"{keep:g}", str(runs[0]["shape"]["hidden"]), *lists])
    return markdown(["loss", "row", "part", "h", "f by layer", "a", "k", "v"], rows) if rows else ""


def plot(results: Facts, folder: Path) -> list[Path]:
    """The paper's figures 3–6, a file a kind: sizes over layers, a line a part, the two losses side by side."""
    import matplotlib
    from matplotlib.figure import Figure

    from quoth.report.plots import STYLE

    paths = []
    for kind, panels in DRAWN.items():
        found = {loss: [row for row in rows_of(results, loss) if row[0] == kind] for loss in TITLES}
        if not any(found.values()):
            continue
        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=(9, 0.8 + 2.2 * len(panels)), layout="constrained")
            axes = figure.subplots(len(panels), 2, sharex=True, sharey="row", squeeze=False)
            for column, (loss, rows) in enumerate(found.items()):
                axes[0, column].set_title(f"{kind}, {TITLES[loss]}", fontsize="medium")
                axes[-1, column].set_xlabel("layer")
                for axis, key in zip(axes[:, column], panels):
                    draw(axis, rows, key)
            for axis, key in zip(axes[:, 0], panels):
                axis.set_ylabel(PANELS[key])
                axis.set_ylim(bottom=0)
            paths.append(folder / f"prune-{kind}.svg")
            with atomic_file(paths[-1]) as part:
                figure.savefig(part, format="svg", metadata={"Date": None})
    return paths


def draw(axis: Any, rows: Sequence[tuple[str, float, list[Facts]]], key: str) -> None:
    """A line a part and seed; seeds of a part have one colour."""
    for place, (_, keep, runs) in enumerate(rows):
        for number, run in enumerate(runs):
            layers = run["shape"]["layers"]
            label = f"{keep:g}, h = {run['shape']['hidden']}" if number == 0 else None
            values = [layer[key] for layer in layers]
            axis.plot(range(1, len(values) + 1), values, color=f"C{place}", marker="o", ms=3, lw=1.2, label=label)
    if rows:
        axis.legend(fontsize="x-small")

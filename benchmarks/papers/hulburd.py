"""The tables and plots of Hulburd 2020 on one GPU: search a learning rate for each row, then train.

    python -m benchmarks.papers.hulburd --model M --train train.json --evaluate dev.json --out runs/hulburd
    python -m benchmarks.papers.hulburd --plot runs/hulburd/results.json --plots benchmarks/plots

"Exploring BERT Parameter Efficiency on the Stanford Question Answering Dataset v2.0", by the recipes hulburd/…:
1. search: each row at each of its learning rates for `--search-epochs`, on `--train` without some articles, scored by
   F1 at the best threshold on those articles: `--evaluate` has no say in the rate
2. train: each row at its rate for 2 epochs, all of `--train`, `--seeds` seeds, scored on `--evaluate`
3. time: each row alone on the machine, in turns, medians: windows a second of training, seconds of inference

Steps 1 and 2 run in `--workers` parallel processes: a small encoder does not fill a large GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.pool import Job, best_rate, collect, overrides, read, slug, spread, submit, workers
from benchmarks.questions import hold_out
from benchmarks.race import Contender, markdown, race

FULL = (5e-5, 1e-4, 2e-4, 4e-4)
PART = (2e-4, 4e-4, 8e-4, 1.6e-3)
SMALL = (5e-4, 1e-3, 2e-3, 4e-3)
TINY = (1e-3, 3e-3, 1e-2, 3e-2)
COLOURS = {"CACNN": "C3", "-A": "C1", "LoRA": "C2", "BitFit": "C2"}  # of points in plots; others are C0


@dataclass(frozen=True)
class Row:
    """A row of the table: its recipe, the learning rates to try, and overrides."""

    name: str
    recipe: str
    rates: tuple[float, ...]
    overrides: tuple[str, ...] = ()


ROWS = (
    Row("L0", "l0", TINY),
    Row("L1", "l1", PART),
    Row("L3", "l3", PART),
    Row("L6", "l6", PART),
    Row("L12", "l12", FULL),
    Row("L0-A64", "l0-a64", SMALL),
    Row("L0-A384", "l0-a768", SMALL, ("tuning.size=384",)),
    Row("L12-A64", "l12-a64", FULL),
    Row("LoRA 16", "lora", SMALL),
    Row("BitFit", "bitfit", TINY),
    Row("L0 CACNN vectorised 3", "l0-cacnn-vectorised-3", SMALL),
    Row("L0 CACNN vectorised 5", "l0-cacnn-vectorised-5", SMALL),
    Row("L0 CACNN 16 maps, vectorised 5", "l0-cacnn-vectorised-5-maps-16", SMALL),
    Row("L0 CACNN simple 3", "l0-cacnn-simple-3", SMALL),
    Row("L0 CACNN simple 5", "l0-cacnn-simple-5", SMALL),
)
SIX_ABOVE = Row('L6, norms "above"', "l6", PART, ("tuning.norms=above",))
BEST_CNN_FULL = Row("L12 CACNN", "l12-cacnn-vectorised-5", FULL)


def make_job(
    options: argparse.Namespace, row: Row, rate: float, epochs: float, data: tuple[Any, Any], out: str, *more: str
) -> Job:
    """A row at some learning rate; data: to train on, to be scored on."""
    over = overrides(options.model, *data, rate, epochs)
    changes = (*row.overrides, *over, *more)
    return Job(f"hulburd/{row.recipe}", changes, options.batch_tokens, f"{options.out}/{out}")


def search_jobs(row: Row, options: argparse.Namespace) -> list[Job]:
    """A row at each of its rates."""
    data, name = (options.search_train, options.held_out), slug(row.name)
    return [make_job(options, row, rate, options.search_epochs, data, f"search/{name}-{rate:g}") for rate in row.rates]


def final_jobs(row: Row, rate: float, options: argparse.Namespace) -> list[Job]:
    """A row at its rate, with each seed."""
    data, name = (options.train, options.evaluate), slug(row.name)
    return [
        make_job(options, row, rate, options.epochs, data, f"final/{name}-seed{seed}", f"seed={seed}")
        for seed in range(options.seeds)
    ]


def by_rate(row: Row, found: dict[str, dict[str, Any]], options: argparse.Namespace) -> dict[str, float]:
    """F1 at the best threshold on held-out articles, by rate."""
    jobs = zip(row.rates, search_jobs(row, options))
    return {f"{rate:g}": found[job.out]["quality"]["best_f1"] for rate, job in jobs}


def timing(rows: Sequence[Row], rates: dict[str, float], options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Each row alone, in turns: windows a second of training, seconds of inference over `--evaluate`."""
    import torch
    from accelerate import Accelerator

    from quoth.tasks import prepare
    from quoth.train.build import build_model
    from quoth.train.fine_tuning import FineTuning
    from quoth.train.loop import Loop

    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    contenders: dict[str, Contender] = {}
    task: Any = None
    feed: Any = None
    for row in rows:
        recipe = read(make_job(options, row, rates[row.name], 1000, (options.train, options.evaluate), ""))
        model = build_model(recipe)
        task = task or prepare(recipe.data, model)
        feed = feed or task.feed(task.examples, accelerator.device, 0)
        objective = FineTuning(model, task, feed, recipe.optimisation, 0, accelerator)
        loop = Loop(objective, feed.lengths, recipe.optimisation, 0, accelerator)
        windows = len(task.examples) / loop.steps_per_epoch
        contenders[f"{row.name} train"] = Contender(loop.advance, windows, options.timed_steps)
        contenders[f"{row.name} inference"] = Contender(partial(infer, model, task))
    times = race(contenders, options.passes, warmup=options.timed_steps)
    return {
        row.name: {
            "windows_per_second": (pace := times.rate(f"{row.name} train")),
            "train_seconds": options.epochs * len(task.examples) / pace,
            "inference_seconds": times.step_seconds(f"{row.name} inference"),
        }
        for row in rows
    }


def infer(model: Any, task: Any) -> None:
    """Logits of all windows of the evaluation."""
    from quoth.answer.reader import Reader
    from quoth.runtime.torch_runner import TorchRunner

    Reader(TorchRunner(model), task.tokenizer).logits(task.evaluation.windows)


def full_cnn(name: str) -> Row:
    """A row of a context-aware CNN, with all layers tuned beside it."""
    context, width = name.split()[-2:]
    over = (f"head.context={context}", f"head.width={width}", *(["head.maps=16"] if "16 maps" in name else []))
    return replace(BEST_CNN_FULL, name=name.replace("L0", "L12"), overrides=over)


def grid(rows: list[Row], options: argparse.Namespace) -> dict[str, Any]:
    """Search and train all rows; the better context-aware CNN is added to `rows` with all layers tuned."""
    searched = [row for row in rows if row != SIX_ABOVE]
    samples = [*search_jobs(rows[0], options), *final_jobs(rows[0], 1e-4, options)]
    with workers(options.workers, samples) as pool:
        found = collect(submit(pool, [job for row in searched for job in search_jobs(row, options)]))
        scores = {row.name: by_rate(row, found, options) for row in searched}
        extra = None
        cnn = [row for row in rows if "CACNN" in row.name]
        if cnn:
            better = max(cnn, key=lambda row: max(scores[row.name].values()))
            extra = full_cnn(better.name)
        more = submit(pool, search_jobs(extra, options) if extra else [])
        rates = {name: best_rate(table) for name, table in scores.items()}
        if SIX_ABOVE in rows:
            rates[SIX_ABOVE.name] = rates.get("L6", SIX_ABOVE.rates[1])
        waiting = submit(pool, [job for row in rows for job in final_jobs(row, rates[row.name], options)])
        if extra:
            scores[extra.name] = by_rate(extra, collect(more), options)
            rates[extra.name] = best_rate(scores[extra.name])
            waiting += submit(pool, final_jobs(extra, rates[extra.name], options))
            rows.append(extra)
        done = collect(waiting)
    final = {row.name: [done[job.out] for job in final_jobs(row, rates[row.name], options)] for row in rows}
    return {"scores": scores, "rates": rates, "final": final}


def table(results: dict[str, Any]) -> str:
    """The table of benchmarks/results/hulburd.md."""
    head = ["model", "learning rate", "trainable", "F1 at 0", "F1 at best", "EM at 0", "train s", "inference s"]
    rows = []
    for name, runs in results["final"].items():
        rate, cost = results["rates"][name], results["time"][name]
        size = runs[0]["trainable_parameters"]
        means = [spread([run["quality"][key] for run in runs]) for key in ("f1", "best_f1", "exact")]
        score = (statistics.mean(run["quality"]["best_f1"] for run in runs) - 50) / math.log10(size)
        costs = [f"{cost['train_seconds']:.1f}", f"{cost['inference_seconds']:.2f}", f"{score:.2f}"]
        rows.append([name, f"{rate:g}", f"{size:,}", *means, *costs])
    return markdown([*head, "(F1 − 50) / log₁₀ n"], rows)


def plot(results: dict[str, Any], folder: Path) -> None:
    """The paper's three figures: F1 against training time, inference time and trainable parameters."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    axes = {
        "train": ("training, seconds for two epochs, alone on the GPU", False),
        "inference": ("inference, seconds for the validation set", False),
        "parameters": ("trainable parameters", True),
    }
    for kind, (label, logarithmic) in axes.items():
        figure, axis = pyplot.subplots(figsize=(7, 4.5))
        for name, runs in results["final"].items():
            cost = results["time"][name]
            x = runs[0]["trainable_parameters"] if kind == "parameters" else cost[f"{kind}_seconds"]
            y = statistics.mean(run["quality"]["best_f1"] for run in runs)
            colour = next((colour for part, colour in COLOURS.items() if part in name), "C0")
            axis.plot(x, y, "o", color=colour)
            axis.annotate(name, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7)
        if logarithmic:
            axis.set_xscale("log")
        axis.set_xlabel(label)
        axis.set_ylabel("F1 at the best threshold")
        axis.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        figure.savefig(folder / f"hulburd-{kind}.svg", metadata={"Date": None})
        pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bert-base-cased", help="a folder or hub name")
    parser.add_argument("--train", help="a SQuAD 2.0 file to train on")
    parser.add_argument("--evaluate", help="a SQuAD 2.0 file to score on")
    parser.add_argument("--out", default="runs/hulburd", help="the folder of all runs")
    parser.add_argument("--only", nargs="*", help="names of rows")
    parser.add_argument("--batch-tokens", type=int, default=16384, help="tokens a step")
    parser.add_argument("--search-epochs", type=float, default=1.0, help="of each run of the search")
    parser.add_argument("--epochs", type=float, default=2.0, help="of each run of the table")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each row of the table")
    parser.add_argument("--workers", type=int, default=12, help="parallel processes")
    parser.add_argument("--timed-steps", type=int, default=40, help="training steps of a turn")
    parser.add_argument("--passes", type=int, default=3, help="turns of every row")
    parser.add_argument("--results", help="where the figures go; by default OUT/results.json")
    parser.add_argument("--time-only", action="store_true", help="time the rows of RESULTS again")
    parser.add_argument("--plot", help="draw the figures of an earlier run and end")
    parser.add_argument("--plots", default="benchmarks/plots", help="the folder of figures")
    options = parser.parse_args()
    if options.plot:
        results = json.loads(Path(options.plot).read_text(encoding="utf-8"))
        plot(results, Path(options.plots))
        print(table(results))
        return
    path = Path(options.results or f"{options.out}/results.json")
    if options.time_only:
        results = json.loads(path.read_text(encoding="utf-8"))
        known = {row.name: row for row in (*ROWS, SIX_ABOVE)}
        rows = [known.get(name) or full_cnn(name) for name in results["rates"]]
        results["time"] = timing(rows, results["rates"], options)
        path.write_text(json.dumps(results, indent=1), encoding="utf-8")
        print(table(results))
        return
    rows = [row for row in (*ROWS, SIX_ABOVE) if not options.only or row.name in options.only]
    train, held = hold_out(Path(options.train), Path(options.out) / "data", 0.06)
    options.search_train, options.held_out = train, held
    results = grid(rows, options)
    for name, found in results["scores"].items():
        print(f"{name:28s}", "  ".join(f"{rate}: {value:.2f}" for rate, value in found.items()))
    results["time"] = timing(rows, results["rates"], options)
    path.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()

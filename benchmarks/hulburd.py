"""Paper 1's tables and plots on one GPU, by the recipes of recipes/hulburd: search a rate for each row, then train.

    python benchmarks/hulburd.py --model M --train train.json --evaluate dev.json --out runs/hulburd
    python benchmarks/hulburd.py --plot runs/hulburd/results.json --plots benchmarks/plots

1. search: each row at each of its rates for `--search-epochs`, on `--train` without some articles, scored by F1 at the
   best threshold on those articles: `--evaluate` has no say in the rate
2. train: each row at its rate for 2 epochs, all of `--train`, `--seeds` seeds, scored on `--evaluate`
3. time: each row alone on the machine, in turns, medians: windows a second of training, seconds of inference

Steps 1 and 2 run in `--workers` processes beside each other: a small encoder does not fill a large GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pool import Job, best_rate, collect, hold_out, overrides, read, slug, spread, submit, workers

RECIPES = Path(__file__).parent.parent / "recipes" / "hulburd"
FULL = (5e-5, 1e-4, 2e-4, 4e-4)
PART = (2e-4, 4e-4, 8e-4, 1.6e-3)
SMALL = (5e-4, 1e-3, 2e-3, 4e-3)
TINY = (1e-3, 3e-3, 1e-2, 3e-2)


@dataclass(frozen=True)
class Row:
    """A row of the table: its recipe, what is laid over it, and the rates to try."""

    name: str
    recipe: str
    rates: tuple[float, ...]
    words: tuple[str, ...] = ()


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
    Row("L0 CACNN simple 3", "l0-cacnn-simple-3", SMALL),
    Row("L0 CACNN simple 5", "l0-cacnn-simple-5", SMALL),
)
SIX_ABOVE = Row('L6, norms "above"', "l6", PART, ("tuning.norms=above",))
BEST_CNN_FULL = Row("L12 CACNN", "l12-cacnn-vectorised-5", FULL)


def make_job(
    options: argparse.Namespace, row: Row, rate: float, epochs: float, data: tuple[Any, Any], out: str, *more: str
) -> Job:
    """A row at some rate on such data: those to learn from, those to be scored on."""
    over = overrides(options.model, *data, rate, epochs)
    return Job(RECIPES / f"{row.recipe}.toml", (*row.words, *over, *more), options.tokens, f"{options.out}/{out}")


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

    from quoth.answer.reader import Reader
    from quoth.runtime.torch_runner import TorchRunner
    from quoth.tasks.span_data import Feed
    from quoth.train.build import build_model, prepare
    from quoth.train.loop import Loop

    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    device = accelerator.device
    loops: dict[str, Loop] = {}
    prepared: Any = None
    feed: Any = None
    for row in rows:
        recipe = read(make_job(options, row, rates[row.name], 1000, (options.train, options.evaluate), ""))
        model = build_model(recipe)
        prepared = prepared or prepare(recipe, model)
        feed = feed or Feed(prepared.examples, device)
        loops[row.name] = Loop(model, feed, recipe.optimisation, 0, accelerator)
    spent: dict[str, list[tuple[float, float]]] = {row.name: [] for row in rows}
    for turn in range(options.passes + 1):
        for name, loop in loops.items():
            before, begin = loop.windows, time.perf_counter()
            for _ in range(options.timed_steps):
                loop.advance()
            loop.take_loss()
            pace = (loop.windows - before) / (time.perf_counter() - begin)
            reader = Reader(TorchRunner(loop.model, str(device)), prepared.evaluation.tokens)
            begin = time.perf_counter()
            reader.logits(prepared.evaluation.windows)
            seconds = time.perf_counter() - begin
            if turn:  # the first turn warms up
                spent[name].append((pace, seconds))
    total = len(prepared.examples)
    return {
        name: {
            "windows_per_second": (pace := statistics.median(p for p, _ in values)),
            "train_seconds": options.epochs * total / pace,
            "inference_seconds": statistics.median(s for _, s in values),
        }
        for name, values in spent.items()
    }


def full_cnn(name: str) -> Row:
    """A row of a context-aware CNN, with all layers tuned beside it."""
    context, width = name.split()[-2:]
    over = (f"head.context={context}", f"head.width={width}")
    return replace(BEST_CNN_FULL, name=name.replace("L0", "L12"), words=over)


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
    """The table of RESULTS.md."""
    lines = [
        "| model | rate | trainable | F1 at 0 | F1 at best | EM at 0 | train s | inference s | (F1 − 50) / log₁₀ n |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, runs in results["final"].items():
        rate, cost = results["rates"][name], results["time"][name]
        size = runs[0]["trainable_parameters"]
        means = {key: spread([run["quality"][key] for run in runs]) for key in ("f1", "best_f1", "exact")}
        score = (statistics.mean(run["quality"]["best_f1"] for run in runs) - 50) / math.log10(size)
        lines.append(
            f"| {name} | {rate:g} | {size:,} | {means['f1']} | {means['best_f1']} | {means['exact']} | "
            f"{cost['train_seconds']:.1f} | {cost['inference_seconds']:.2f} | {score:.2f} |"
        )
    return "\n".join(lines)


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
            colour = (
                "C3"
                if "CACNN" in name
                else "C1"
                if "-A" in name
                else "C2"
                if name[0] in "LB" and name[1] in "oi"
                else "C0"
            )
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
    parser.add_argument("--model", default="bert-base-cased")
    parser.add_argument("--train")
    parser.add_argument("--evaluate")
    parser.add_argument("--out", default="runs/hulburd")
    parser.add_argument("--only", nargs="*", help="names of rows")
    parser.add_argument("--tokens", type=int, default=16384, help="a step")
    parser.add_argument("--search-epochs", type=float, default=1.0)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--timed-steps", type=int, default=40)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--results", help="where the figures go; by default OUT/results.json")
    parser.add_argument("--time-only", action="store_true", help="time the rows of RESULTS again")
    parser.add_argument("--plot", help="draw the figures of an earlier run and end")
    parser.add_argument("--plots", default="benchmarks/plots")
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

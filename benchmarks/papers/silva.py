"""The table and curves of Silva 2020 on one GPU: layer attention, trained together with the encoder.

    python -m benchmarks.papers.silva --model M --train train.json --evaluate dev.json --out runs/silva
    python -m benchmarks.papers.silva --plot runs/silva/results.json --plots benchmarks/plots

"Intermediate Pretrained Contextual Embedding Models With Applications in Question Answering", by the recipes silva/…:
1. search: each row at each of `--search-rates` for 1 epoch, on `--train` without some articles, scored by F1 at the
   best threshold on those articles: `--evaluate` has no say in the learning rate, and no row is favoured
2. train: each row at its rate on all of `--train`, for `--epochs` with each seed and for `--long` with seed 0, scored
   on `--evaluate` on the way and at the end

Runs are done in `--workers` parallel processes. RESULTS has every run as soon as it has ended, and what is there is not
run again: `--only search`, then `--only train`, may be two calls, and a call that was cut short is resumed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.silva_tables import ROWS, Row, plot, table
from benchmarks.pool import Job, best_rate, finished, overrides, read, slug, submit, workers
from benchmarks.questions import hold_out
from quoth.files import read_json, write_json

STAGES = ("search", "train")
LOOKS = {"short": 8, "long": 10}  # evaluations of a run
POINTS = 200  # of a curve of losses, at most
KEPT = ("quality", "evaluations", "trainable_parameters", "steps", "windows", "train_seconds", "peak_memory", "wall")


@dataclass(frozen=True)
class Run:
    """A run to be: of which row, for what, and the job."""

    row: str
    kind: str  # search, short or long
    rate: float
    seed: int
    job: Job

    @property
    def name(self) -> str:
        """Its name in RESULTS."""
        return f"{self.kind}/{Path(self.job.out).name}"


def make_run(options: argparse.Namespace, row: Row, kind: str, rate: float, seed: int, *changes: str) -> Run:
    """A run in a folder of its own."""
    out = f"{options.out}/{kind}/{slug(row.name)}-{rate:g}-seed{seed}"
    return Run(row.name, kind, rate, seed, Job(f"silva/{row.recipe}", changes, options.batch_tokens, out))


def search_runs(options: argparse.Namespace, row: Row) -> list[Run]:
    """A row at each of the rates."""
    made = []
    train, held_out = options.searched
    for rate in options.search_rates:
        changes = overrides(options.model, train, held_out, rate, options.search_epochs)
        made.append(make_run(options, row, "search", rate, 0, *changes, "evaluation.at=[]"))
    return made


def train_runs(options: argparse.Namespace, row: Row, rate: float) -> list[Run]:
    """A row at its rate: the long run, and the short ones with each seed."""
    made = []
    for kind, epochs, seeds in (("long", options.long, 1), ("short", options.epochs, options.seeds)):
        at = [epochs * i / LOOKS[kind] for i in range(1, LOOKS[kind] + 1)]
        changes = overrides(options.model, options.train, options.evaluate, rate, epochs)
        for seed in range(seeds):
            made.append(make_run(options, row, kind, rate, seed, *changes, f"seed={seed}", f"evaluation.at={at}"))
    return made


def stage_runs(stage: str, options: argparse.Namespace, rates: dict[str, float]) -> list[Run]:
    """All runs of a stage, the longest first, so that no worker ends long after the others."""
    if stage == "search":
        return [run for row in ROWS for run in search_runs(options, row)]
    made = [run for row in ROWS for run in train_runs(options, row, rates[row.name])]
    return sorted(made, key=lambda run: run.kind != "long")


def choose_rates(results: dict[str, Any], options: argparse.Namespace) -> None:
    """Put the scores of the search and the rate of every row into the results; without a search `--learning-rate`."""
    scores: dict[str, dict[str, float]] = {row.name: {} for row in ROWS}
    for run in results["runs"].values():
        if run["kind"] == "search":
            scores[run["row"]][f"{run['rate']:g}"] = run["quality"]["best_f1"]
    ordered = {name: dict(sorted(found.items(), key=lambda item: float(item[0]))) for name, found in scores.items()}
    results["scores"] = ordered
    results["rates"] = {name: best_rate(found) if found else options.learning_rate for name, found in ordered.items()}


def losses(folder: str) -> dict[str, list[float]]:
    """The losses that a run logged, as means of as few neighbours as make them `POINTS` at most."""
    with (Path(folder) / "log.jsonl").open(encoding="utf-8") as file:
        lines = [line for line in map(json.loads, file) if "loss" in line]
    size = -(-len(lines) // POINTS)
    groups = [lines[i : i + size] for i in range(0, len(lines), size)]
    means = [float(np.mean([line["loss"] for line in group])) for group in groups]
    return {"steps": [group[-1]["step"] for group in groups], "loss": [round(mean, 5) for mean in means]}


def record(run: Run, facts: dict[str, Any]) -> dict[str, Any]:
    """What tables and plots need of a run, and its overrides, by which it is recognised later."""
    own = {"row": run.row, "kind": run.kind, "rate": run.rate, "seed": run.seed, "overrides": run.job.identity}
    kept = {key: facts[key] for key in (*KEPT, "layer_weights") if key in facts}
    return {**own, **kept, "losses": losses(run.job.out)}


def carry_out(pool: Any, runs: Sequence[Run], results: dict[str, Any], path: Path) -> list[str]:
    """Do the runs that the results lack; write the results after each. Returns what failed."""
    known = results["runs"]
    left = [run for run in runs if known.get(run.name, {}).get("overrides") != run.job.identity]
    print(f"{len(runs) - len(left)} of {len(runs)} runs are there, {len(left)} to go", flush=True)
    failed = []
    by_folder = {run.job.out: run for run in left}
    for out, facts in finished(submit(pool, [run.job for run in left])):
        run = by_folder[out]
        if "error" in facts:
            failed.append(run.name)
            continue
        known[run.name] = record(run, facts)
        results["machine"] = {"hardware": facts["hardware"], "versions": facts["versions"]}
        write_json(path, results)
    return failed


def head_parameters(options: argparse.Namespace) -> dict[str, int]:
    """Of each row the parameters of its head, queries and all."""
    from quoth.train.build import build_model

    models = {row.name: build_model(read(train_runs(options, row, 1e-4)[0].job)) for row in ROWS}
    return {name: sum(value.numel() for value in model.head.parameters()) for name, model in models.items()}


def measure(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """The stages asked for, over what the results file has already."""
    stages = [options.only] if options.only else STAGES
    results: dict[str, Any] = read_json(path) if path.exists() else {"runs": {}}
    keys = ["model", "train", "evaluate", "batch_tokens", "epochs", "long", "seeds"]
    keys += ["search_epochs", "search_rates"] if "search" in stages else []
    results["settings"] = {**results.get("settings", {}), **{key: getattr(options, key) for key in keys}}
    results["head_parameters"] = head_parameters(options)
    options.searched = hold_out(Path(options.train), Path(options.out) / "data", 0.06)
    anyhow = {row.name: options.learning_rate for row in ROWS}
    samples = [run.job for stage in stages for run in stage_runs(stage, options, anyhow)]
    with workers(options.workers, samples) as pool:
        for stage in stages:
            choose_rates(results, options)
            failed = carry_out(pool, stage_runs(stage, options, results["rates"]), results, path)
            choose_rates(results, options)
            write_json(path, results)
            if failed and stage == "train":  # a rate that fails is just not chosen
                raise SystemExit(f"{', '.join(failed)}: failed; {path} has the others")
    return results


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="albert-base-v2", help="a folder or hub name")
    parser.add_argument("--train", help="a SQuAD 2.0 file to train on")
    parser.add_argument("--evaluate", help="a SQuAD 2.0 file to score on")
    parser.add_argument("--out", default="runs/silva", help="the folder of all runs")
    parser.add_argument("--only", choices=STAGES, help="one of the two stages")
    parser.add_argument("--epochs", type=float, default=2.0, help="of the short runs")
    parser.add_argument("--long", type=float, default=5.0, help="epochs of the long run")
    parser.add_argument("--seeds", type=int, default=3, help="short runs of a row")
    parser.add_argument("--batch-tokens", type=int, default=16384, help="tokens a step")
    parser.add_argument("--learning-rate", type=float, default=2e-4, help="of a row without a search")
    parser.add_argument("--search-rates", type=float, nargs="*", default=[5e-5, 1e-4, 2e-4, 4e-4], help="to try")
    parser.add_argument("--search-epochs", type=float, default=1.0, help="of each run of the search")
    parser.add_argument("--workers", type=int, default=12, help="parallel processes")
    parser.add_argument("--results", help="the file of figures, written and resumed from; by default OUT/results.json")
    parser.add_argument("--plot", help="draw the figures of an earlier run and end")
    parser.add_argument("--plots", default="benchmarks/plots", help="the folder of figures")
    options = parser.parse_args()
    if not options.plot and not (options.train and options.evaluate):
        parser.error("--train and --evaluate are needed")
    return options


def main() -> None:
    options = parse()
    if options.plot:
        results = read_json(options.plot)
        plot(results, Path(options.plots))
    else:
        results = measure(options, Path(options.results or f"{options.out}/results.json"))
    print(table(results))


if __name__ == "__main__":
    main()

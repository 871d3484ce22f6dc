"""The classification tables of BERTVision (Jiang, Benge, King 2022) on one GPU: heads on the first token's states.

    python -m benchmarks.papers.classes --model M --squad-train train.json --squad-dev dev.json --glue GLUE --out RUNS
    python -m benchmarks.papers.classes --plot runs/classes/results.json --plots benchmarks/plots

Answer or no answer, and MRPC, RTE, SST-2, CoLA (GLUE/MRPC/train.tsv.gz, dev.tsv.gz, …), after 0.2, 1 and 3 epochs of
the encoder, each a run of its own: the learning rate is constant, so a run of 0.2 epoch is the beginning of that of 3.
Dev sets of GLUE are small: without several seeds, differences are noise.

Runs are done in `--workers` parallel processes. RESULTS has every run as soon as it has ended, and what is there is not
run again; a run that was cut short is resumed.
"""

from __future__ import annotations

import argparse
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.classes_tables import ANSWERABLE, AT, ENCODER, GLUE, plot, table
from benchmarks.pool import Facts, Job, overrides, prepared_task, read, work, workers
from benchmarks.questions import thin
from quoth.files import read_json, write_json

LARGEST_FIRST = (ANSWERABLE, "SST-2", "CoLA", "MRPC", "RTE")


@dataclass(frozen=True)
class Run:
    """A run to be: a task, so many epochs of the encoder and heads on it, a seed."""

    task: str
    at: float
    seed: int
    job: Job

    @property
    def name(self) -> str:
        """Its name in RESULTS."""
        return Path(self.job.out).name


def make_runs(options: argparse.Namespace) -> list[Run]:
    """All runs asked for, the longest first, so that no worker ends long after the others."""
    tasks = {"answerable": (ANSWERABLE,), "glue": tuple(GLUE)}.get(options.only, LARGEST_FIRST)
    return [
        make_run(options, task, at, seed)
        for task in LARGEST_FIRST
        if task in tasks
        for at in sorted(AT, reverse=True)
        for seed in range(options.answerable_seeds if task == ANSWERABLE else options.seeds)
    ]


def make_run(options: argparse.Namespace, task: str, at: float, seed: int) -> Run:
    """A recipe brought to this model, these data, so many epochs."""
    if task == ANSWERABLE:
        recipe, train, dev = ANSWERABLE, options.squad_train, options.squad_dev
        rate, tokens = options.learning_rate, options.batch_tokens
        more = [f"frozen.batch_size={options.head_batch_size}"]
    else:
        recipe = GLUE[task][0]
        train, dev = (Path(options.glue) / task / f"{part}.tsv.gz" for part in ("train", "dev"))
        rate, tokens = options.glue_learning_rate, options.glue_batch_tokens
        more = [f"data.fraction={options.sst2_fraction}"] if task == "SST-2" else []
    changes = (
        *overrides(options.model, train, dev, rate, at),
        f"frozen.at=[{at:g}]",
        f"frozen.learning_rate={options.head_learning_rate}",
        f"seed={seed}",
        *more,
        *options.set,
    )
    out = f"{options.out}/{recipe}-{at:g}-seed{seed}"
    return Run(task, at, seed, Job(f"bertvision/{recipe}", changes, tokens, out))


def carry_out(run: Run) -> tuple[Run, Facts]:
    """In a worker: train, and what tables and plots need of it."""
    _, facts = work(run.job)
    if "error" in facts:
        return run, facts
    (stage,) = facts["frozen"].values()
    heads = {
        name: {key: head[key] for key in ("quality", "curve", "parameters") if key in head}
        for name, head in stage["heads"].items()
    }
    if run.task == ANSWERABLE:
        for name, best in at_best_threshold(run).items():
            heads[name] |= best
    kept = {key: facts[key] for key in ("train_seconds", "windows_per_second", "wall", "hardware", "versions")}
    return run, {**kept, "heads_seconds": stage["train_seconds"], "heads": heads}


def at_best_threshold(run: Run) -> dict[str, dict[str, float]]:
    """The scores of every head at the thresholds of the logits that are best for them.

    Where "no answer" is rarer in the training data than in the dev data, every head says it too seldom by itself.
    """
    from quoth.encoder.device import Device  # needs torch
    from quoth.model.loading import load
    from quoth.tasks.classification import class_logits

    recipe, folder = read(run.job), Path(run.job.out)
    stage = folder / "frozen" / f"epoch-{run.at:g}"
    places = {ENCODER: folder / "model", **{name: stage / name / "model" for name in recipe.frozen.heads}}
    evaluation = prepared_task(run.job).evaluation
    questions = evaluation.windows.question
    labels = evaluation.classes
    found = {}
    for name, place in places.items():
        logits = class_logits(load(place), evaluation.windows, Device.choose(None, None))
        scores = np.full(len(labels), -np.inf)
        np.maximum.at(scores, questions, logits[:, 1] - logits[:, 0])  # any window that says "no answer"
        found[name] = thresholds(scores, labels)
    return found


def thresholds(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The highest accuracy and the highest F1 of "scores ≥ threshold", over all thresholds, in per cent. (n,), (n,)"""
    order = np.argsort(-scores, kind="stable")
    said = np.arange(len(labels) + 1)
    hits = np.append(0, np.cumsum(labels[order]))
    ends = np.append(np.append(True, np.diff(scores[order]) != 0), True)  # equal scores fall on one side
    right = hits + (len(labels) - labels.sum()) - (said - hits)
    f1 = 2 * hits / np.maximum(said + labels.sum(), 1)
    return {"best_exact": 100 * float(right[ends].max()) / len(labels), "best_f1": 100 * float(f1[ends].max())}


def measure(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Do the runs that the results file lacks; it is written after each."""
    results: dict[str, Any] = read_json(path) if path.exists() else {"runs": {}}
    runs = make_runs(options)
    left = [run for run in runs if results["runs"].get(run.name, {}).get("overrides") != run.job.identity]
    print(f"{len(runs) - len(left)} of {len(runs)} runs are there, {len(left)} to go", flush=True)
    failed = []
    if left:
        with workers(min(options.workers, len(left)), [run.job for run in left]) as pool:
            for future in as_completed([pool.submit(carry_out, run) for run in left]):
                run, facts = future.result()
                print(f"{run.name:24s} {summary(run, facts)}", flush=True)
                if "error" in facts:
                    failed.append(run.name)
                    continue
                own = {"task": run.task, "at": run.at, "seed": run.seed, "overrides": run.job.identity}
                results["machine"] = {key: facts.pop(key) for key in ("hardware", "versions")}
                results["runs"][run.name] = {**own, **facts}
                write_json(path, results)
    if failed:
        raise SystemExit(f"{', '.join(failed)}: failed; {path} has the others")
    return results


def summary(run: Run, facts: Facts) -> str:
    if "error" in facts:
        return str(facts["error"])
    key = "f1" if run.task == ANSWERABLE else GLUE[run.task][1]
    scores = " ".join(f"{head['quality'][key]:.1f}" for head in facts["heads"].values())
    seconds = [facts[name] for name in ("train_seconds", "heads_seconds", "wall")]
    return f"{key} {scores}  encoder {seconds[0]:.1f} s, heads {seconds[1]:.1f} s, all {seconds[2]:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bert-base-uncased", help="a folder or hub name")
    parser.add_argument("--squad-train", help="a SQuAD 2.0 file to train on")
    parser.add_argument("--squad-dev", help="a SQuAD 2.0 file to score on")
    parser.add_argument("--glue", help="a folder with MRPC, RTE, SST-2 and CoLA, each with train.tsv.gz and dev.tsv.gz")
    parser.add_argument("--out", default="runs/classes", help="the folder of all runs")
    parser.add_argument("--only", choices=("answerable", "glue"), help="one of the two tables")
    parser.add_argument(
        "--share", type=float, help="of unanswerable questions in training, by leaving others out (SQuAD 2.0: 0.33)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs of each GLUE row")
    parser.add_argument("--answerable-seeds", type=int, default=1, help="runs of each answerable row")
    parser.add_argument("--workers", type=int, default=8, help="parallel processes")
    parser.add_argument("--batch-tokens", type=int, default=16384, help="tokens a step of the encoder; answerable")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="of the encoder; answerable")
    parser.add_argument(
        "--glue-batch-tokens", type=int, default=1024, help="some 16 pairs, as in the recipes, or 80 sentences"
    )
    parser.add_argument("--glue-learning-rate", type=float, default=5e-5, help="of the encoder; GLUE")
    parser.add_argument("--head-batch-size", type=int, default=128, help="windows a step of the heads; answerable")
    parser.add_argument("--head-learning-rate", type=float, default=1e-3, help="of the heads")
    parser.add_argument("--sst2-fraction", type=float, default=0.3, help="of SST-2's training data")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="overrides of every recipe")
    parser.add_argument("--results", help="where the figures go; by default OUT/results.json")
    parser.add_argument(
        "--plot", metavar="RESULTS", help="draw the figure of an earlier run, print its tables, and end"
    )
    parser.add_argument("--plots", default="benchmarks/plots", help="the folder of figures")
    options = parser.parse_args()
    if options.plot:
        results = read_json(options.plot)
        print(f"wrote {plot(results, Path(options.plots))}\n")
    else:
        for key in {"answerable": ("squad_train", "squad_dev"), "glue": ("glue",)}.get(
            options.only, ("squad_train", "squad_dev", "glue")
        ):
            if not getattr(options, key):
                parser.error(f"--{key.replace('_', '-')} is needed")
        if options.share:
            options.squad_train = thin(Path(options.squad_train), Path(options.out) / "data", options.share)
        results = measure(options, Path(options.results or f"{options.out}/results.json"))
    print(table(results))


if __name__ == "__main__":
    main()

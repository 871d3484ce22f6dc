"""Which made-up unanswerable questions help a reader: it is tuned with and without each kind, several seeds of each.

    for maker in moved lookalike entity negation; do quoth negatives train.json --$maker 0.1 --out $maker.json; done
    python -m benchmarks.reader.negatives --model M --train train.json --evaluate dev.json --made *.json --out RUNS

Rows: the training data alone; with each file of `--made`; with all of them; the same with `--more` data. Runs are done
in `--workers` parallel processes, each of which tokenises its own data. RESULTS has every run as soon as it has ended,
and what is there is not run again; after `--seconds` none is begun.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.pool import Facts, overrides, spread
from benchmarks.race import markdown
from quoth.errors import QuothError
from quoth.files import read_json, write_json

KEYS = {"best_f1": "F1 at best", "f1": "F1 at 0", "answered_f1": "F1, without abstention"}
NONE = "none"


def rows(options: argparse.Namespace) -> dict[str, list[str]]:
    """The training files of each row."""
    made = {NONE: [], **{Path(path).name.split(".")[0]: [path] for path in options.made}}
    if len(options.made) > 1:
        made["all"] = list(options.made)
    found = {name: [options.train, *files] for name, files in made.items()}
    if options.more:
        found |= {f"{name}, more": [*files, *options.more] for name, files in found.items() if name in (NONE, "all")}
    return found


def changes(options: argparse.Namespace, files: list[str], seed: int) -> list[str]:
    """A recipe as overrides of an empty one."""
    data = json.dumps(files), options.evaluate
    made = overrides(options.model, *data, options.learning_rate, options.epochs)
    return [*made, f"optimisation.batch_tokens={options.batch_tokens}", f"seed={seed}"]


def work(name: str, recipe: list[str], out: str, until: float) -> tuple[str, Facts]:
    """One run: its scores or, under `error`, why it has none."""
    import torch

    from quoth.train.recipe import make_recipe, override
    from quoth.train.run import train

    torch.set_num_threads(1)
    if time.time() > until:
        return name, {"error": "not begun: the time is up"}
    table: dict[str, Any] = {}
    for change in recipe:
        override(table, change)
    try:
        train(make_recipe(table), out)
    except QuothError as error:
        return name, {"error": str(error)}
    facts = read_json(Path(out) / "metrics.json")
    shutil.rmtree(out, ignore_errors=True)
    return name, {"quality": facts["quality"], "seconds": facts["train_seconds"], "steps": facts["steps"]}


def measure(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Do the runs that the results file lacks; it is written after each."""
    results: dict[str, Any] = read_json(path) if path.exists() else {"runs": {}}
    until = time.time() + options.seconds
    jobs = {
        f"{row}-seed{seed}": (row, changes(options, files, seed))
        for seed in range(options.seeds)
        for row, files in rows(options).items()
    }
    left = {name: job for name, job in jobs.items() if results["runs"].get(name, {}).get("overrides") != job[1]}
    print(f"{len(jobs) - len(left)} of {len(jobs)} runs are there", flush=True)
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        futures = [
            pool.submit(work, name, recipe, f"{options.out}/{name.replace(', ', '-')}", until)
            for name, (_, recipe) in left.items()
        ]
        for future in as_completed(futures):
            name, facts = future.result()
            shown = facts.get("error") or "  ".join(f"{KEYS[key]} {facts['quality'][key]:.2f}" for key in KEYS)
            print(f"{time.time() - until + options.seconds:6.0f} s  {name:28s} {shown}", flush=True)
            if "error" not in facts:
                results["runs"][name] = {"row": left[name][0], "overrides": left[name][1], **facts}
                write_json(path, results)
    return results


def table(results: dict[str, Any]) -> str:
    """The table of benchmarks/results/embedded.md."""
    found: dict[str, list[Facts]] = {}
    for run in results["runs"].values():
        found.setdefault(run["row"], []).append(run["quality"])
    rows = [
        [row, str(len(seeds)), *(spread([quality[key] for quality in seeds]) for key in KEYS)]
        for row, seeds in found.items()
    ]
    return markdown(["negatives", "seeds", *KEYS.values()], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder or hub name")
    parser.add_argument("--train", required=True, help="a SQuAD 2.0 file to train on")
    parser.add_argument("--evaluate", required=True, help="a SQuAD 2.0 file to score on")
    parser.add_argument("--made", nargs="*", default=[], help="files of `quoth negatives`, one a maker")
    parser.add_argument("--more", nargs="*", default=[], help="further questions, for two rows more")
    parser.add_argument("--out", default="runs/negatives", help="the folder of all runs")
    parser.add_argument("--results", help="where the figures go; by default OUT/results.json")
    parser.add_argument("--epochs", type=float, default=2.0, help="of each run")
    parser.add_argument("--learning-rate", type=float, default=2e-4, help="of each run")
    parser.add_argument("--batch-tokens", type=int, default=16384, help="tokens a step")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each row")
    parser.add_argument("--workers", type=int, default=12, help="parallel processes")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no run is begun")
    options = parser.parse_args()
    print(table(measure(options, Path(options.results or f"{options.out}/results.json"))))


if __name__ == "__main__":
    main()

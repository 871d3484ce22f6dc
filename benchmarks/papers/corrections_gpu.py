"""Small runs for each corrected point of the papers' methods, before and after, on one GPU.

    git archive 6c4af0a src | tar -x -C OLD                     # the code before the corrections
    python -m benchmarks.papers.corrections_gpu --model M --train train.json.gz --evaluate validation.json.gz
        --text books.txt.gz --glue GLUE --old OLD/src --out runs/corrections --seconds 205
    python -m benchmarks.papers.corrections_gpu --table results.json

Runs (`corrections_runs`) are done in `--workers` processes of this code and `--old-workers` of the old one. RESULTS has
every run as soon as it has ended, and what is there is not run again, unless its model is needed and gone. After
`--seconds` all ends: the same call again goes on. Latency is measured before the first run, with nothing else on the
GPU; with `--speeds`, speeds after the last one too. The last lines are the tables of benchmarks/results/corrections.md.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers.corrections_bench import Bench, start_workers
from benchmarks.papers.corrections_tables import table
from benchmarks.papers.schubert_tables import speeds
from benchmarks.questions import thin
from quoth.data.source import read_source
from quoth.files import read_json, write_json

SHARE = 1 / 3  # of questions without an answer, for point 5, as in SQuAD 2.0
TIMED = ("1/task, task", "9/", "3/layers")  # runs whose shapes are timed


def prepare(options: argparse.Namespace) -> None:
    """Files that are made of `--train` and `--evaluate`: answerable questions alone, and a third without an answer."""
    folder = Path(options.out) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    options.thinned = thin(Path(options.train), folder, SHARE)
    options.answerable = tuple(answerable(Path(getattr(options, key)), folder, key) for key in ("train", "evaluate"))


def answerable(source: Path, folder: Path, name: str) -> Path:
    """A SQuAD file with the answerable questions of another."""
    data = json.loads(read_source(source))
    for article in data["data"]:
        for passage in article["paragraphs"]:
            passage["qas"] = [qa for qa in passage["qas"] if qa["answers"]]
        article["paragraphs"] = [passage for passage in article["paragraphs"] if passage["qas"]]
    path = folder / f"answerable-{name}.json"
    write_json(path, {"version": "v2.0", "data": [article for article in data["data"] if article["paragraphs"]]})
    return path


def timed(results: dict[str, Any]) -> dict[str, Any]:
    """The runs whose shapes are timed."""
    found = {name: run for name, run in results["runs"].items() if run["name"].startswith(TIMED) and "shape" in run}
    return {"runs": found}


def show(path: Path) -> None:
    """Print the tables, as `--table` will again."""
    try:
        print(table(read_json(path)), flush=True)
    except Exception:  # no reason to lose what comes after it
        traceback.print_exc()


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="an encoder without heads")
    parser.add_argument("--train", help="a SQuAD 2.0 file to train on")
    parser.add_argument("--evaluate", help="a SQuAD 2.0 file to score on")
    parser.add_argument("--text", help="plain text, for the loss of pre-training; 3 MB are enough")
    parser.add_argument("--glue", help="a folder with MRPC")
    parser.add_argument("--old", help="the src folder of the commit before the corrections; without it no such runs")
    parser.add_argument("--out", default="runs/corrections", help="the folder of all runs")
    parser.add_argument("--results", help="where the figures go; by default OUT/results.json")
    parser.add_argument("--only", nargs="*", help="beginnings of the names of runs: these, and what they begin from")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which all runs end")
    parser.add_argument("--least", type=float, default=25, help="seconds that must be left to begin a run")
    parser.add_argument("--limit", type=float, default=180, help="seconds of one run, at most")
    parser.add_argument("--workers", type=int, default=12, help="processes")
    parser.add_argument("--old-workers", type=int, default=3, help="processes of the old code")
    parser.add_argument("--seeds", type=int, default=2, help="of what differences are claimed of")
    parser.add_argument("--fraction", type=float, default=0.4, help="of the questions, to recover or tune after a cut")
    parser.add_argument("--heads-fraction", type=float, default=0.5, help="of the questions, for heads (point 6)")
    parser.add_argument("--repeated-fraction", type=float, default=0.08, help="of the questions, for equal bits")
    parser.add_argument("--epochs", type=float, default=1.0, help="of tuning on all questions")
    parser.add_argument("--label-epochs", type=float, default=2.0, help="of tuning on answer or no answer")
    parser.add_argument("--recovery-epochs", type=float, default=1.0, help="of recovery, and of tuning after text")
    parser.add_argument("--text-epochs", type=float, default=3.0, help="of recovery and training on text")
    parser.add_argument("--batch-size", type=int, default=64, help="windows a step")
    parser.add_argument("--learning-rate", type=float, default=2e-4, help="of tuning and recovery")
    parser.add_argument("--gamma", type=float, default=2e-3, help="of the gates")
    parser.add_argument("--gate-learning-rate", type=float, default=3e-3, help="of the gates")
    parser.add_argument("--gate-steps", type=int, default=100, help="of the gates")
    parser.add_argument("--gate-batch-size", type=int, default=32, help="windows a step of the gates")
    parser.add_argument("--head-steps", type=int, default=600, help="of the heads of pre-training, at most")
    parser.add_argument("--embedding", type=int, default=128, help="size of ALBERT-e's embeddings")
    parser.add_argument("--passes", type=int, default=3, help="of the speeds")
    parser.add_argument("--speeds", action="store_true", help="time shapes after the runs")
    parser.add_argument("--table", metavar="RESULTS", help="print the tables of an earlier run, and end")
    options = parser.parse_args(arguments)
    for name in ("model", "train", "evaluate", "text", "glue"):
        if not options.table and not getattr(options, name):
            parser.error(f"--{name} is needed")
    options.results = options.results or f"{options.out}/results.json"
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    begin, options = time.time(), parse(arguments)
    if options.table:
        print(table(read_json(options.table)))
        return
    crew = start_workers(options)
    prepare(options)
    bench = Bench(options, crew, begin)
    bench.go()
    show(bench.path)
    if options.speeds:
        import torch

        options.questions = 24  # on a CPU
        found = speeds(timed(bench.results), options, "cuda" if torch.cuda.is_available() else "cpu")
        bench.results["speeds"] = found
        write_json(bench.path, bench.results)
        bench.say(f"speeds: {json.dumps(found['rates'])}")
    missing = bench.missing()
    if missing:
        raise SystemExit(f"missing: {', '.join(missing)}; the same call again goes on")


if __name__ == "__main__":
    main()

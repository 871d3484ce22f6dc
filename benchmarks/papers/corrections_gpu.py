"""One small run for each corrected point of the papers' methods, before and after, on one GPU.

    git archive 6c4af0a src | tar -x -C OLD                     # the code before the corrections
    python -m benchmarks.papers.corrections_gpu --model M --train train.json.gz --evaluate validation.json.gz \\
        --text books.txt.gz --glue GLUE --old OLD/src --out runs/corrections --seconds 240
    python -m benchmarks.papers.corrections_gpu --table results.json

Runs (`corrections_runs`) are done in `--workers` processes of this code and `--old-workers` of the old one. RESULTS has
every run as soon as it has ended, and what is there is not run again, unless its model is needed and gone. After
`--seconds` all ends: the same call again goes on. Latency is measured before the first run and speeds after the last
one, with nothing else on the GPU. The last lines are the tables of benchmarks/results/corrections.md.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from benchmarks.papers.corrections_runs import Run, make_runs
from benchmarks.papers.corrections_tables import table
from benchmarks.papers.schubert_tables import speeds
from benchmarks.questions import thin
from quoth.data.source import read_source
from quoth.files import read_json, write_json

WORKER = "benchmarks.papers.corrections_worker"
EARLY = 6  # runs at once while those are trained that most others begin from
SHARE = 1 / 3  # of questions without an answer, for point 5, as in SQuAD 2.0


class Worker:
    """A process that does runs, one after another; a run that takes too long is ended with it."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder, self.log = folder, log
        self.process: subprocess.Popen[str] | None = None

    def do(self, order: dict[str, Any], limit: float) -> dict[str, Any]:
        """The facts of a run or, under `error`, why there are none."""
        process = self.process or self.start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            answer = _line(process.stdout, limit)
        except OSError:
            answer = ""
        if answer is None or not answer:
            self.end()
            return {"error": f"ended after {limit:.0f} s" if answer is None else f"the process died: see {self.log}"}
        found: dict[str, Any] = json.loads(answer)
        return found

    def start(self) -> subprocess.Popen[str]:
        """Start the process, which takes some seconds to import torch."""
        own = {"PYTHONPATH": os.pathsep.join([str(self.folder), os.getcwd()]), "OMP_NUM_THREADS": "1"}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", WORKER],
                env={**os.environ, "RAYON_NUM_THREADS": "2", **own},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self.process

    def end(self) -> None:
        """End the process, whatever it does."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


def _line(stream: IO[str], limit: float) -> str | None:
    """The next line; None if it does not come in time. One line is written for each that is read."""
    ready, _, _ = select.select([stream], [], [], max(limit, 0))
    return stream.readline() if ready else None


class Bench:
    """The results, the runs that are left, and who does them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.path = options, Path(options.results)
        self.begin = time.time()
        self.results: dict[str, Any] = read_json(self.path) if self.path.exists() else {"runs": {}}
        self.runs = {
            run.id: run for run in make_runs(options) if not options.only or run.id.startswith(tuple(options.only))
        }
        self.every = {run.id: run for run in make_runs(options)}
        self.todo = self._todo()
        self.on: set[str] = set()
        self.failed: set[str] = set()
        self.change = threading.Condition()

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return float(self.options.seconds) - (time.time() - self.begin)

    def _known(self, run: Run) -> bool:
        return self.results["runs"].get(run.id, {}).get("overrides") == list(run.overrides)

    def _todo(self) -> list[Run]:
        """Runs without results, and those whose models they begin from, in the order of importance."""
        wanted = {run.id for run in self.runs.values() if not self._known(run)}
        for _ in range(3):
            bases = {self.every[name].base for name in wanted} - {""}
            wanted |= {name for name in bases if not Path(self.every[name].model(self.options.out)).exists()}
        return [run for run in self.every.values() if run.id in wanted]

    def go(self) -> None:
        """Do all that is left."""
        known = len(self.runs) - sum(not self._known(run) for run in self.runs.values())
        print(f"{known} of {len(self.runs)} runs are there, {len(self.todo)} to go", flush=True)
        crew = [("new", Path("src"))] * self.options.workers
        crew += [("old", Path(self.options.old))] * self.options.old_workers if self.options.old else []
        logs = Path(self.options.out)
        logs.mkdir(parents=True, exist_ok=True)
        workers = [Worker(folder.absolute(), logs / f"{source}-{n}.log") for n, (source, folder) in enumerate(crew)]
        for worker in workers:
            worker.start()
        if self.todo and "latency" not in self.results:  # by the time they have imported torch it is done
            self.results["latency"] = latency(self.options)
            print(f"{time.time() - self.begin:5.0f} s  latency of blocks measured", flush=True)
        threads = [
            threading.Thread(target=self._work, args=(source, worker)) for (source, _), worker in zip(crew, workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, source: str, worker: Worker) -> None:
        """Take runs until there are none."""
        try:
            while (run := self._next(source)) is not None:
                order = run.order(self.options) | {"latency": self.results.get("latency")}
                self._note(run, worker.do(order, min(self.options.limit, self.left)))
        finally:
            worker.end()

    def _next(self, source: str) -> Run | None:
        """The first run of this source whose base is there; wait for one if it may still come."""
        with self.change:
            while self.left > 5:
                mine = [run for run in self.todo if run.source == source and run.base not in self.failed]
                if not mine:
                    return None
                ready = [run for run in mine if not run.base or self._made(run.base)]
                if ready and (len(self.on) < EARLY or not self._bases_left()):
                    self.todo.remove(ready[0])
                    self.on.add(ready[0].id)
                    return ready[0]
                self.change.wait(1)
        return None

    def _bases_left(self) -> bool:
        """Whether a run that others wait for, and that waits for none itself, is still to be done."""
        waiting = {run.base for run in self.todo} & (self.on | {run.id for run in self.todo})
        return any(not self.every[name].base for name in waiting)

    def _made(self, name: str) -> bool:
        """Whether a run's model is there, and whole."""
        waiting = self.on | {run.id for run in self.todo}
        return name not in waiting and Path(self.every[name].model(self.options.out)).exists()

    def _note(self, run: Run, facts: dict[str, Any]) -> None:
        """Print and keep what a run gave."""
        with self.change:
            self.on.discard(run.id)
            print(f"{time.time() - self.begin:5.0f} s  {run.id:42s} {line(facts)}", flush=True)
            if "error" in facts:
                self.failed.add(run.id)
            else:
                machine = {key: facts.pop(key) for key in ("hardware", "versions") if key in facts}
                self.results |= {"machine": machine} if machine and run.source == "new" else {}
                own = {"name": run.name, "seed": run.seed, "source": run.source, "recipe": run.recipe}
                self.results["runs"][run.id] = {**own, "overrides": list(run.overrides), **facts}
                write_json(self.path, self.results)
            if not any(other.base == run.id for other in self.every.values()):
                shutil.rmtree(f"{self.options.out}/{run.id}", ignore_errors=True)
            self.change.notify_all()


def line(facts: dict[str, Any]) -> str:
    """What is printed of a run."""
    if "error" in facts:
        return str(facts["error"])
    names = {"best_f1": "best F1", "f1": "F1", "acc": "acc", "loss": "loss"}
    scores = [f"{name} {facts['quality'][key]:.2f}" for key, name in names.items() if key in facts.get("quality", {})]
    return f"{'  '.join(scores)}  {facts['wall']:.0f} s"


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


def latency(options: argparse.Namespace) -> dict[str, Any]:
    """The table of latencies of the encoder's blocks, for windows as long as those of the runs."""
    from benchmarks.papers.corrections_runs import SPAN
    from quoth.model.loading import load
    from quoth.prune.latency import measure_latency

    encoder = load(options.model).encoder
    return measure_latency(encoder.shape, length=SPAN, style=encoder.style).to_json()


def timed(results: dict[str, Any]) -> dict[str, Any]:
    """The runs whose shapes are timed: of points 3 and 9, and the one that both share."""
    wanted = ("1/task, task", "3/", "9/")
    return {"runs": {name: run for name, run in results["runs"].items() if run["name"].startswith(wanted)}}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="an encoder without heads")
    parser.add_argument("--train", help="a SQuAD 2.0 file to train on")
    parser.add_argument("--evaluate", help="a SQuAD 2.0 file to score on")
    parser.add_argument("--text", help="plain text, for the loss of pre-training")
    parser.add_argument("--glue", help="a folder with MRPC")
    parser.add_argument("--old", help="the src folder of the commit before the corrections; without it no such runs")
    parser.add_argument("--out", default="runs/corrections", help="the folder of all runs")
    parser.add_argument("--results", help="where the figures go; by default OUT/results.json")
    parser.add_argument("--only", nargs="*", help="beginnings of the names of runs: these, and what they begin from")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which all ends")
    parser.add_argument("--limit", type=float, default=150, help="seconds of one run, at most")
    parser.add_argument("--workers", type=int, default=12, help="processes")
    parser.add_argument("--old-workers", type=int, default=3, help="processes of the old code")
    parser.add_argument("--seeds", type=int, default=2, help="of the teacher and of points 1, 2, 4, 5 and 6")
    parser.add_argument("--fraction", type=float, default=0.5, help="of the questions, to recover from a cut")
    parser.add_argument("--epochs", type=float, default=2.0, help="of tuning on all questions")
    parser.add_argument("--recovery-epochs", type=float, default=1.0, help="of recovery, and of tuning after text")
    parser.add_argument("--text-epochs", type=float, default=3.0, help="of recovery and training on text")
    parser.add_argument("--batch-size", type=int, default=64, help="windows a step")
    parser.add_argument("--learning-rate", type=float, default=2e-4, help="of tuning and recovery")
    parser.add_argument("--gamma", type=float, default=2e-3, help="of the gates")
    parser.add_argument("--gate-learning-rate", type=float, default=3e-3, help="of the gates")
    parser.add_argument("--gate-steps", type=int, default=100, help="of the gates")
    parser.add_argument("--gate-batch-size", type=int, default=32, help="windows a step of the gates")
    parser.add_argument("--head-steps", type=int, default=1000, help="of the heads of pre-training, at most")
    parser.add_argument("--embedding", type=int, default=128, help="size of ALBERT-e's embeddings")
    parser.add_argument("--passes", type=int, default=3, help="of the speeds")
    parser.add_argument("--no-speeds", action="store_true", help="time no shapes")
    parser.add_argument("--table", metavar="RESULTS", help="print the tables of an earlier run, and end")
    options = parser.parse_args(arguments)
    for name in ("model", "train", "evaluate", "text", "glue"):
        if not options.table and not getattr(options, name):
            parser.error(f"--{name} is needed")
    options.results = options.results or f"{options.out}/results.json"
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    if options.table:
        print(table(read_json(options.table)))
        return
    prepare(options)
    bench = Bench(options)
    bench.go()
    if bench.left > 15 and not options.no_speeds and not bench.todo:
        import torch

        options.questions = 24  # on a CPU
        found = speeds(timed(bench.results), options, "cuda" if torch.cuda.is_available() else "cpu")
        bench.results["speeds"] = found
        write_json(bench.path, bench.results)
    print(table(bench.results))
    missing = [run.id for run in bench.runs.values() if not bench._known(run)]
    if missing:
        raise SystemExit(f"missing: {', '.join(missing)}; the same call again goes on")


if __name__ == "__main__":
    main()

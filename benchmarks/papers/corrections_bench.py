"""How the runs of benchmarks.papers.corrections_gpu are done: by several processes, each result kept at once."""

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
from pathlib import Path
from typing import IO, Any

from benchmarks.papers.corrections_runs import Run, make_runs
from quoth.files import read_json, write_json

WORKER = "benchmarks.papers.corrections_worker"
EARLY = 7  # runs at once while those are trained that most others begin from


class Worker:
    """A process that does runs, one after another; a run that takes too long is ended with it."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder, self.log = folder, log
        self.process: subprocess.Popen[str] | None = None

    def do(self, order: dict[str, Any], limit: float) -> dict[str, Any]:
        """The facts of a run or, under `error`, why there are none."""
        process = self.process or self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            answer = _line(process.stdout, limit)
        except OSError:
            answer = ""
        if answer is None or not answer.endswith("\n"):
            self.end()
            return {"error": f"ended after {limit:.0f} s" if answer is None else f"the process died: see {self.log}"}
        found: dict[str, Any] = json.loads(answer)
        return found

    def start(self) -> subprocess.Popen[str]:
        """Start the process, which takes some seconds to import torch."""
        own = {"PYTHONPATH": os.pathsep.join([str(self.folder), str(Path.cwd())]), "OMP_NUM_THREADS": "1"}
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
        """End the process, whatever it does. A run in its midst is begun anew, so nothing has to be saved."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def _line(stream: IO[str], limit: float) -> str | None:
    """The next line; None if it does not come in time. One line is written for each that is read."""
    ready, _, _ = select.select([stream], [], [], max(limit, 0))
    return stream.readline() if ready else None


def start_workers(options: argparse.Namespace) -> list[tuple[str, Worker]]:
    """The processes of either code, which import torch while the parent does other things."""
    sources = [("new", Path("src"))] * options.workers
    if options.old:
        sources += [("old", Path(options.old))] * options.old_workers
    folder = Path(options.out)
    (folder / "windows").mkdir(parents=True, exist_ok=True)
    crew = [(source, Worker(code.absolute(), folder / f"{source}-{n}.log")) for n, (source, code) in enumerate(sources)]
    for _, worker in crew:
        worker.start()
    return crew


class Bench:
    """The results, the runs that are left, and who does them. begin: when the time began"""

    def __init__(self, options: argparse.Namespace, crew: list[tuple[str, Worker]], begin: float) -> None:
        self.options, self.path, self.begin, self.crew = options, Path(options.results), begin, crew
        self.results: dict[str, Any] = read_json(self.path) if self.path.exists() else {"runs": {}}
        self.results |= {"failed": {}, "settings": {key: str(value) for key, value in vars(options).items()}}
        self.every = {run.id: run for run in make_runs(options)}
        wanted = tuple(options.only or ("",))
        self.runs = {name: run for name, run in self.every.items() if name.startswith(wanted)}
        self.todo = self._todo()
        self.on: set[str] = set()
        self.failed: set[str] = set()
        self.change = threading.Condition()

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return float(self.options.seconds) - (time.time() - self.begin)

    def missing(self) -> list[str]:
        """The runs that were wanted and have no results."""
        return [run.id for run in self.runs.values() if not self._known(run)]

    def say(self, text: str) -> None:
        """A line of progress."""
        print(f"{time.time() - self.begin:5.0f} s  {text}", flush=True)

    def _known(self, run: Run) -> bool:
        return bool(self.results["runs"].get(run.id, {}).get("overrides") == list(run.overrides))

    def _todo(self) -> list[Run]:
        """Runs without results, and those whose models they begin from, in the order of importance."""
        wanted = set(self.missing())
        for _ in range(3):
            bases = {self.every[name].base for name in wanted} - {""}
            wanted |= {name for name in bases if not self._model_is_there(self.every[name])}
        return [run for run in self.every.values() if run.id in wanted]

    def _model_is_there(self, run: Run) -> bool:
        """Whether the model of a run is there, and whole: that of another call may have been ended in its midst."""
        return self._known(run) and Path(run.model(self.options.out)).exists()

    def go(self) -> None:
        """Do all that is left."""
        self.say(f"{len(self.runs) - len(self.missing())} of {len(self.runs)} runs are there, {len(self.todo)} to go")
        if self.todo and "latency" not in self.results:  # by the time they have imported torch it is done
            try:
                self.results["latency"] = latency(self.options)
                self.say("latency of blocks measured")
            except Exception as error:  # then the run that needs it measures for itself
                self.say(f"latency of blocks: {type(error).__name__}: {error}")
        threads = [threading.Thread(target=self._work, args=pair) for pair in self.crew]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, source: str, worker: Worker) -> None:
        """Take runs until there are none."""
        try:
            while (run := self._next(source)) is not None:
                order = run.order(self.options) | {"latency": self.results.get("latency")}
                facts = worker.do(order, max(min(self.options.limit, self.left), 1))
                with self.change:
                    self._note(run, facts)
                    self.change.notify_all()
        finally:
            worker.end()

    def _next(self, source: str) -> Run | None:
        """The first run of this source whose base is there; wait for one if it may still come."""
        with self.change:
            while self.left > self.options.least:
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
        waiting = {run.base for run in self.todo} & self._waiting()
        return any(not self.every[name].base for name in waiting)

    def _waiting(self) -> set[str]:
        return self.on | {run.id for run in self.todo}

    def _made(self, name: str) -> bool:
        """Whether a run's model is there, and whole."""
        return name not in self._waiting() and Path(self.every[name].model(self.options.out)).exists()

    def _note(self, run: Run, facts: dict[str, Any]) -> None:
        """Print and keep what a run gave."""
        self.on.discard(run.id)
        self.say(f"{run.id:42s} {line(facts)}")
        if "error" in facts:
            self.results["failed"][run.id] = facts["error"]
            self._give_up(run.id)
        else:
            machine = {key: facts.pop(key) for key in ("hardware", "versions") if key in facts}
            self.results |= {"machine": machine} if machine and run.source == "new" else {}
            own = {"name": run.name, "seed": run.seed, "source": run.source, "recipe": run.recipe}
            self.results["runs"][run.id] = {**own, "overrides": list(run.overrides), **facts}
        write_json(self.path, self.results)
        if not any(other.base == run.id for other in self.every.values()):
            shutil.rmtree(f"{self.options.out}/{run.id}", ignore_errors=True)

    def _give_up(self, name: str) -> None:
        """A run has failed, and with it all that begin from it."""
        self.failed.add(name)
        for run in self.every.values():
            if run.base == name and run.id not in self.failed:
                self._give_up(run.id)


def line(facts: dict[str, Any]) -> str:
    """What is printed of a run."""
    if "error" in facts or "refused" in facts:
        return str(facts.get("error", facts.get("refused")))
    names = {"best_f1": "best F1", "f1": "F1", "acc": "acc", "loss": "loss"}
    scores = [f"{name} {facts['quality'][key]:.2f}" for key, name in names.items() if key in facts.get("quality", {})]
    return f"{'  '.join(scores)}  {facts['wall']:.0f} s"


def latency(options: argparse.Namespace) -> dict[str, Any]:
    """The table of latencies of the encoder's blocks, for windows as long as those of the runs."""
    from benchmarks.papers.corrections_runs import SPAN
    from quoth.model.loading import load  # needs torch, as does the next
    from quoth.prune.latency import measure_latency

    encoder = load(options.model).encoder
    found: dict[str, Any] = json.loads(
        json.dumps(measure_latency(encoder.shape, length=SPAN, style=encoder.style).to_json())
    )
    return found  # as it will be read: lists, no tuples

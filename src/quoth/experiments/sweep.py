"""`sweep`: train all runs of a grid, each in a process of its own. The same command goes on where it stopped.

    runs = sweep(read_grid("grid.toml"), "runs/grid")

A run that fails, crashes or is killed does not stop the others; the same command tries it again. What many runs have in
common is done once: questions are tokenised, and teachers asked, for the first run that needs it. Many heads on one
encoder are one run, with a table [frozen] in its recipe.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from quoth.errors import QuothError
from quoth.experiments.grid import Planned
from quoth.experiments.model_folders import remove_models
from quoth.experiments.sweep_process import Ended, Place, RunProcess, in_thread
from quoth.experiments.sweep_record import FILE, SweepRun, claim_sweep, write_sweep
from quoth.experiments.time_left import seconds_left
from quoth.train.guard import Stop
from quoth.train.run import check_device
from quoth.train.run_folder import RunFolder

PAUSE = 0.2  # seconds between two looks at the signals


class SweepStopped(Exception):  # noqa: N818 - it is no error
    """The sweep was asked to stop, and its runs have written checkpoints."""

    def __init__(self, signal: int) -> None:
        super().__init__("stopped; the same command goes on from there")
        self.signal = signal


@dataclass
class Board:
    """How far a sweep is, for the command line. status: of each running one, what its process said last."""

    runs: list[SweepRun]
    workers: int = 1
    status: dict[str, dict[str, Any]] = field(default_factory=dict)

    def count(self, *states: str) -> int:
        """How many runs are in one of these states."""
        return sum(run.state in states for run in self.runs)

    @property
    def seconds_left(self) -> float | None:
        """An estimate of the time that is left; None where nothing is known yet."""
        return seconds_left(self.runs, self.status, self.workers)


Tell = Callable[[Board, str], None]
"""Called with the board whenever it has changed, and a line if there is one to tell."""


def sweep(
    planned: Sequence[Planned],
    out: str | Path,
    *,
    device: str | None = None,
    jobs: int | None = None,
    keep_models: bool = True,
    keep_others: bool = False,
    tell: Tell | None = None,
) -> list[SweepRun]:
    """Train all runs that have not finished; what has become of each.

    jobs: at a time; by default one a GPU, else one. keep_models: False removes the models of runs that have finished
    keep_others: the folder may have runs that are not planned; they stay as they are

    Raises `SweepStopped` if it was interrupted.
    """
    check_device(device)
    if jobs is not None and jobs < 1:
        raise QuothError(f"--jobs is {jobs}; at least 1 is wanted")
    gpus = torch.cuda.device_count() if device != "cpu" and torch.cuda.is_available() else 0
    count = jobs or max(gpus, 1)
    places = [Place(device, i % gpus if gpus > 1 else None) for i in range(count)]
    folder = RunFolder(out, FILE)
    with Stop() as stop, folder.held():
        runs = claim_sweep(folder, planned, keep_others)
        write_sweep(folder.path, runs)
        mine, others = runs[: len(planned)], runs[len(planned) :]
        told = tell or (lambda board, line: None)
        return _Sweep(folder.path, Board(mine, count), others, stop, keep_models, told).go(places)


@dataclass
class _Sweep:
    folder: Path
    board: Board
    others: Sequence[SweepRun]
    stop: Stop
    keep_models: bool
    tell: Tell
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: dict[str, RunProcess] = field(default_factory=dict)
    _broken: list[BaseException] = field(default_factory=list)

    def go(self, places: Sequence[Place]) -> list[SweepRun]:
        """Work on all runs that have not finished, one thread a place; wait for them, or for a signal.

        The first seed of all methods comes before the second of any, so that they can be compared early.
        """
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number, run in sorted(enumerate(self.board.runs), key=lambda pair: pair[1].seed):
            if run.state != "finished":
                self._set(number, replace(run, state="waiting", error=""))
                waiting.put(number)
            elif not self.keep_models:
                remove_models(self.folder / run.folder)
        self._tell("")
        threads = [in_thread(lambda place=place: self._work(place, waiting)) for place in places]  # type: ignore[misc]
        while any(thread.is_alive() for thread in threads):
            time.sleep(PAUSE)
            if self._ending:
                self._stop_all(threads)
        if self._broken:
            raise self._broken[0]
        if self.stop.signal and self.board.count("waiting"):
            raise SweepStopped(self.stop.signal)
        return self.board.runs

    @property
    def _ending(self) -> bool:
        """Whether no further run is to be started: a signal has come, or the sweep itself cannot go on."""
        return bool(self.stop.signal or self._broken)

    def _work(self, place: Place, waiting: queue.SimpleQueue[int]) -> None:
        """Run after run, until there is none left."""
        try:
            while not self._ending:
                try:
                    number = waiting.get_nowait()
                except queue.Empty:
                    return
                self._one(number, place)
        except BaseException as error:
            self._broken.append(error)

    def _one(self, number: int, place: Place) -> None:
        run = self.board.runs[number]
        with self._lock:
            if self._ending:
                return
            process = self._running[run.folder] = RunProcess(self.folder, run, place)
        self._set(number, replace(run, state="running"))
        self._tell("")
        ended = process.listen(lambda message: self._heard(run, message))
        with self._lock:
            del self._running[run.folder]
            self.board.status.pop(run.folder, None)
        if ended.state == "finished" and not self.keep_models:
            remove_models(process.out)
        done = replace(run, state=ended.state, seconds=run.seconds + ended.seconds, error=ended.error)
        self._set(number, done)
        self._tell(_line(done, ended))

    def _heard(self, run: SweepRun, message: dict[str, Any]) -> None:
        if "status" in message:
            with self._lock:
                self.board.status[run.folder] = message["status"]
        says = message.get("says")
        self._tell(f"{run.folder}: {says}" if says else "")

    def _set(self, number: int, run: SweepRun) -> None:
        with self._lock:
            self.board.runs[number] = run
            write_sweep(self.folder, [*self.board.runs, *self.others])

    def _tell(self, line: str) -> None:
        with self._lock:
            self.tell(self.board, line)

    def _stop_all(self, threads: Sequence[threading.Thread]) -> None:
        """Ask all runs to stop, once, and wait for them. A second signal ends the sweep, and the runs with it."""
        with self._lock:
            running = list(self._running.values())
        for process in running:
            process.stop()
        for thread in threads:
            thread.join()


def _line(run: SweepRun, ended: Ended) -> str:
    if ended.state == "failed":
        return f"{run.folder}: failed: {run.error}"
    if ended.state == "finished":
        return f"{run.folder}: finished in {time.strftime('%H:%M:%S', time.gmtime(run.seconds))}"
    return f"{run.folder}: stopped"

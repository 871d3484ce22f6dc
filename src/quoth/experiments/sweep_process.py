"""A run of a sweep as seen from the sweep: its process is started, listened to, and asked to stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quoth.experiments.sweep_child import STOPPED
from quoth.experiments.sweep_record import LOGS, WINDOWS, State, SweepRun
from quoth.train.metrics import FILE as METRICS

Heard = Callable[[dict[str, Any]], None]
MODULE = "quoth.experiments.sweep_child"


@dataclass(frozen=True)
class Place:
    """Where a run is computed. device: as of `quoth train`; gpu: its number, where there are several."""

    device: str | None = None
    gpu: int | None = None


@dataclass(frozen=True)
class Ended:
    """How the process of a run ended: "waiting" if it was asked to stop. seconds: that it took."""

    state: State
    seconds: float
    error: str = ""


class RunProcess:
    """The process of a run, from its start."""

    def __init__(self, sweep: Path, run: SweepRun, place: Place) -> None:
        self.out, self.log = sweep / run.folder, sweep / LOGS / f"{run.folder}.log"
        self.log.parent.mkdir(exist_ok=True)
        self._began, self._asked = time.monotonic(), False
        job = {
            "recipe": asdict(run.full_recipe(sweep)),
            "out": str(self.out),
            "device": place.device,
            "windows": str(sweep / WINDOWS),
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(place),
                start_new_session=True,  # so that Ctrl+C reaches the sweep alone, which then asks the run to stop
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()

    def listen(self, heard: Heard) -> Ended:
        """Pass each message on until the process ends. If `heard` fails, the run is stopped, and waited for, first."""
        try:
            return self._listen(heard)
        except BaseException:
            self.stop()
            assert self._process.stdout is not None
            self._process.stdout.read()  # what it still says; its checkpoint is written by then
            self._process.wait()
            raise

    def _listen(self, heard: Heard) -> Ended:
        error = ""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):
                message = json.loads(line)
                error = message.get("error", error)
                heard(message)
        code = self._process.wait()
        seconds = time.monotonic() - self._began
        if code == 0 and (self.out / METRICS).exists():
            return Ended("finished", seconds)
        if code == STOPPED or (self._asked and code == -signal.SIGTERM):  # it may have been too young to listen
            return Ended("waiting", seconds)
        return Ended("failed", seconds, error or self._why(code))

    def stop(self) -> None:
        """Ask the run to write a checkpoint and to stop."""
        self._asked = True
        with suppress(ProcessLookupError):
            self._process.terminate()

    def _why(self, code: int) -> str:
        """What is known of a process that ended without a word."""
        if code < 0:
            return f"its process was ended by signal {-code} (9: by the system or a user, perhaps for memory)"
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"exit code {code}"
        return f"{last} (see {self.log})"


def _environment(place: Place) -> dict[str, str]:
    """That of the sweep, with the GPU of this run; and the folder that this very package lies in."""
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    gpu = {} if place.gpu is None else {"CUDA_VISIBLE_DEVICES": _visible(place.gpu)}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **gpu}


def _visible(number: int) -> str:
    """The name of the n-th GPU that the sweep may use."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return named.split(",")[number] if named else str(number)


def in_thread(target: Callable[[], None]) -> threading.Thread:
    """Start a thread that does not keep the program alive."""
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread

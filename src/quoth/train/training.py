"""`Training`: runs a loop to its end with log, evaluations, snapshots and checkpoints, through any interruption."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from quoth.errors import QuothError
from quoth.train.guard import Stop
from quoth.train.log import Log, Status, Tell
from quoth.train.loop import Loop
from quoth.train.metrics import EvaluationPoint, to_json
from quoth.train.resume import read_checkpoint, write_checkpoint

EVERY = 10  # steps between two lines of the log, and between two moments at which processes agree to stop


class Interrupted(Exception):  # noqa: N818 - it is no error
    """The run was asked to stop and has written a checkpoint. The same command goes on from there."""

    def __init__(self, step: int, steps: int, signal: int) -> None:
        super().__init__(f"stopped at step {step} of {steps}; the same command goes on from there")
        self.signal = signal


class DivergedError(QuothError):
    """The loss of a run is not finite."""


@dataclass
class Training:
    """A loop, and when to evaluate it and to save it.

    folder: where log and checkpoints go; identity: what must not change while the run is interrupted
    evaluate(): scores, called at the epochs `at` (0: before the first step) and at the end
    save(folder): called at the epochs of `snapshots`
    pause: seconds between two checkpoints; seconds: of training so far, evaluation left out
    """

    folder: Path
    loop: Loop
    stop: Stop
    identity: dict[str, str]
    pause: float
    evaluate: Callable[[], dict[str, Any]] | None = None
    save: Callable[[Path], None] | None = None
    at: tuple[float, ...] = ()
    snapshots: tuple[float, ...] = ()
    seconds: float = 0.0
    evaluations: list[EvaluationPoint] = field(default_factory=list)
    _told: bool = False

    def go(self, *, tensorboard: bool = False, tell: Tell | None = None) -> None:
        """Run the loop to its end, from the last checkpoint if there is one."""
        loop = self.loop
        facts = read_checkpoint(self.folder, loop, self.identity, tell or (lambda _: None))
        self.seconds = facts.get("seconds", 0.0)
        self.evaluations = [EvaluationPoint.from_json(point) for point in facts.get("evaluations", [])]
        main = loop.accelerator.is_main_process
        self._log = Log(self.folder, loop.step, tensorboard=tensorboard, tell=tell) if main else None
        if facts and self._log:
            self._log.say(f"going on from step {loop.step} of {loop.steps}")
        with closing(self._log) if self._log else nullcontext():
            self._train()

    def _train(self) -> None:
        loop = self.loop
        at = {loop.step_at(epoch) for epoch in self.at if epoch} | {loop.steps}
        self._resume_clock()
        self._written = time.monotonic()
        if loop.step == 0 and 0 in self.at and self.evaluate:
            self._evaluate()
        while loop.step < loop.steps:
            loop.advance()
            self._tell_fallback()
            if loop.step % EVERY == 0 or loop.step == loop.steps:
                self._log_losses()
            if loop.step in at and self.evaluate:
                self._evaluate()
            for epoch in self.snapshots:
                if loop.step == loop.step_at(epoch):
                    self._snapshot(self.folder / "snapshots" / f"epoch-{epoch:g}")
            self._write_if_due()
        self._pause_clock()

    def _tell_fallback(self) -> None:
        """Say once why steps are not captured as CUDA graphs."""
        if self.loop.why_no_graphs and not self._told and self._log:
            self._told = True
            self._log.say(f"steps are launched kernel by kernel, not as CUDA graphs: {self.loop.why_no_graphs}")

    def _log_losses(self) -> None:
        loop = self.loop
        losses = loop.take_losses()  # waits for the device, so the clock below is true
        self._pause_clock()
        self._resume_clock()
        for name, loss in losses.items():
            if not math.isfinite(loss):
                of = "" if len(losses) == 1 else f" of {name}"
                raise DivergedError(
                    f"the loss{of} is {loss} at step {loop.step}; lower its learning_rate (with another --out)"
                )
        if self._log:
            pace = loop.windows / max(self.seconds, 1e-9)
            mean = sum(losses.values()) / len(losses)
            status = Status(loop.step, loop.steps, loop.epoch, mean, loop.learning_rate, pace, self.seconds)
            self._log.status(status, losses if len(losses) > 1 else None)

    def _evaluate(self) -> None:
        self._pause_clock()
        loop = self.loop
        if self._log and self.evaluate:
            quality = self.evaluate()
            self.evaluations.append(EvaluationPoint(loop.step, loop.epoch, quality))
            self._log.evaluation(loop.step, loop.epoch, quality)
        loop.accelerator.wait_for_everyone()
        self._resume_clock()

    def _snapshot(self, folder: Path) -> None:
        self._pause_clock()
        if self._log and self.save:
            self.save(folder)
        self.loop.accelerator.wait_for_everyone()
        self._resume_clock()

    def _write_if_due(self) -> None:
        """Write a checkpoint if it is time, or if the run is asked to stop; all processes decide alike."""
        loop = self.loop
        due = time.monotonic() - self._written >= self.pause
        signal = self.stop.signal
        if loop.accelerator.num_processes > 1:
            if loop.step % EVERY:
                return
            asked: Any = loop.accelerator.gather(torch.tensor([int(due), signal], device=loop.accelerator.device))
            due, signal = bool(asked[::2].any()), int(asked[1::2].max())
        if (not due and not signal) or loop.step == loop.steps:
            return
        self._pause_clock()
        if self._log:
            self._log.flush()
            facts = {"seconds": self.seconds, "evaluations": to_json(self.evaluations), **self.identity}
            write_checkpoint(self.folder, loop, facts)
        loop.accelerator.wait_for_everyone()
        self._written = time.monotonic()
        if signal:
            raise Interrupted(loop.step, loop.steps, signal)
        self._resume_clock()

    def _pause_clock(self) -> None:
        if self.loop.accelerator.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds += time.perf_counter() - self._began

    def _resume_clock(self) -> None:
        self._began = time.perf_counter()

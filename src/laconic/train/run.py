"""A training run from recipe to model folder, which a kill at any moment only delays.

RUN/recipe.toml      the recipe as run, all defaults written out
RUN/log.jsonl        loss, rate and pace every ten steps, and every evaluation
RUN/checkpoints/     what the same command goes on from, while the run has not ended
RUN/snapshots/       models at the epochs that the recipe asks for
RUN/model/           the result
RUN/metrics.json     quality and cost; written last
"""

from __future__ import annotations

import math
import time
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from laconic.encoder.model import save
from laconic.errors import LaconicError
from laconic.files import read_json, write_json, write_text
from laconic.train.build import Prepared, build_model, prepare
from laconic.train.checkpoint import read_checkpoint, remove_checkpoints, sweep, write_checkpoint
from laconic.train.guard import Stop, exact_on_cpu, only_one
from laconic.train.log import Log, Status, Tell
from laconic.train.loop import Loop, precision_of
from laconic.train.metrics import metrics
from laconic.train.recipe import Recipe, read_recipe
from laconic.train.spans import Feed

EVERY = 10  # steps between two lines of the log, and between two moments at which processes agree to stop


class Interrupted(Exception):  # noqa: N818 - it is no error
    """The run was asked to stop and has written a checkpoint. The same command goes on from there."""

    def __init__(self, step: int, steps: int, signal: int) -> None:
        super().__init__(f"stopped at step {step} of {steps}; the same command goes on from there")
        self.signal = signal


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    device: str | None = None,
    tensorboard: bool = False,
    tell: Tell | None = None,
    prepared: Prepared | None = None,
) -> dict[str, Any]:
    """Run a recipe in the folder `out`, or go on with the run that is there. Returns what metrics.json holds.

    prepared: what `prepare(recipe)` gave, for many runs over the same data in one process
    """
    run = Path(out)
    accelerator = _accelerator(device)
    with Stop() as stop, only_one(run) if accelerator.is_main_process else nullcontext():
        if accelerator.is_main_process:
            _check(run, recipe)
        accelerator.wait_for_everyone()
        if (run / "metrics.json").exists():
            remove_checkpoints(run)  # in case of a kill between the two
            return dict(read_json(run / "metrics.json")) if accelerator.is_main_process else {}
        model = build_model(recipe)
        prepared = prepared or prepare(recipe, model)
        with exact_on_cpu(accelerator.device):
            feed = Feed(prepared.examples, accelerator.device)
            loop = Loop(model, feed, recipe.optimisation, recipe.seed, accelerator)
            if accelerator.is_main_process:
                write_text(run / "recipe.toml", recipe.to_toml())  # now that it is known to be sound
            return _Run(run, recipe, loop, prepared, stop).go(tensorboard, tell)


@dataclass
class _Run:
    run: Path
    recipe: Recipe
    loop: Loop
    prepared: Prepared
    stop: Stop

    def go(self, tensorboard: bool, tell: Tell | None) -> dict[str, Any]:
        loop, main = self.loop, self.loop.accelerator.is_main_process
        self.identity = self.prepared.identity
        if loop.model.base:  # what does not learn is in no checkpoint
            self.identity["model"] = loop.model.base.sha256
        facts = read_checkpoint(self.run, loop, self.identity)
        self.seconds: float = facts.get("seconds", 0.0)
        self.evaluations: list[dict[str, Any]] = facts.get("evaluations", [])
        self.log = Log(self.run, loop.step, tensorboard=tensorboard, tell=tell) if main else None
        if facts and self.log:
            self.log.say(f"going on from step {loop.step} of {loop.steps}")
        with closing(self.log) if self.log else nullcontext():
            return self._learn()

    def _learn(self) -> dict[str, Any]:
        loop = self.loop
        at = {loop.step_at(epoch) for epoch in self.recipe.evaluation.at} | {loop.steps}
        self._resume_clock()
        self.written = time.monotonic()
        while loop.step < loop.steps:
            loop.advance()
            if loop.step % EVERY == 0 or loop.step == loop.steps:
                self._log()
            if loop.step in at and self.prepared.evaluation:
                self._evaluate()
            for epoch in self.recipe.evaluation.snapshots:
                if loop.step == loop.step_at(epoch):
                    self._save(self.run / "snapshots" / f"epoch-{epoch:g}")
            self._keep()
        self._pause_clock()
        return self._finish()

    def _log(self) -> None:
        loop = self.loop
        loss = loop.take_loss()  # waits for the device, so the clock below is true
        self._pause_clock()
        self._resume_clock()
        if not math.isfinite(loss):
            raise LaconicError(
                f"the loss is {loss} at step {loop.step}; lower optimisation.rate, and use another --out"
            )
        if self.log:
            pace = loop.windows / max(self.seconds, 1e-9)
            self.log.status(Status(loop.step, loop.steps, loop.epoch, loss, loop.rate, pace, self.seconds))

    def _evaluate(self) -> None:
        self._pause_clock()
        loop = self.loop
        if self.log and self.prepared.evaluation:
            quality = self.prepared.evaluation(loop.model, str(loop.accelerator.device), precision_of(loop.settings))
            self.evaluations.append({"step": loop.step, "epoch": loop.epoch, **quality})
            self.log.evaluation(loop.step, loop.epoch, quality)
        loop.accelerator.wait_for_everyone()
        self._resume_clock()

    def _save(self, folder: Path) -> None:
        self._pause_clock()
        if self.log:
            save(self.loop.model, folder)
        self.loop.accelerator.wait_for_everyone()
        self._resume_clock()

    def _keep(self) -> None:
        """Write a checkpoint if it is time, or if the run is asked to stop; all processes decide alike."""
        loop = self.loop
        due = time.monotonic() - self.written >= self.recipe.checkpoints.seconds
        signal = self.stop.signal
        if loop.accelerator.num_processes > 1:
            if loop.step % EVERY:
                return
            asked: Any = loop.accelerator.gather(torch.tensor([int(due), signal], device=loop.accelerator.device))
            due, signal = bool(asked[::2].any()), int(asked[1::2].max())
        if (not due and not signal) or loop.step == loop.steps:
            return
        self._pause_clock()
        if self.log:
            self.log.flush()
            facts = {"seconds": self.seconds, "evaluations": self.evaluations, **self.identity}
            write_checkpoint(self.run, loop, facts)
        loop.accelerator.wait_for_everyone()
        self.written = time.monotonic()
        if signal:
            raise Interrupted(loop.step, loop.steps, signal)
        self._resume_clock()

    def _finish(self) -> dict[str, Any]:
        loop = self.loop
        facts: dict[str, Any] = {}
        if self.log:
            save(loop.model, self.run / "model")
            facts = metrics(self.recipe, loop, self.seconds, self.evaluations, self.run / "model")
            write_json(self.run / "metrics.json", facts)
            remove_checkpoints(self.run)
        loop.accelerator.wait_for_everyone()
        return facts

    def _pause_clock(self) -> None:
        if self.loop.accelerator.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds += time.perf_counter() - self._began

    def _resume_clock(self) -> None:
        self._began = time.perf_counter()


def _check(run: Path, recipe: Recipe) -> None:
    """Refuse a folder that is not this run's; remove what a killed process left half-written there."""
    kept = run / "recipe.toml"
    if not kept.exists() and any(not path.name.startswith((".lock", ".recipe.toml.")) for path in run.iterdir()):
        raise LaconicError(f"{run}: exists and is not a run folder; choose another --out")
    sweep(run)
    differences = read_recipe(kept).differences(recipe) if kept.exists() else ()
    if differences:
        raise LaconicError(
            f"{run}: holds a run of another recipe (there, here: {differences[0]}); choose another --out, or remove it"
        )


def _accelerator(device: str | None) -> Accelerator:
    """The processes and the device of this run."""
    if device not in (None, "cpu", "cuda"):
        raise LaconicError(f"device {device!r} is unknown: choose cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise LaconicError("device 'cuda' cannot be used on this machine; leave it out, or choose cpu")
    return Accelerator(cpu=device == "cpu" or not torch.cuda.is_available())

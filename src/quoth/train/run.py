"""A training run from recipe to model folder, which a kill at any moment only delays.

RUN/recipe.toml      the recipe as run, all defaults written out
RUN/log.jsonl        loss, rate and pace every ten steps, and every evaluation
RUN/checkpoints/     what the same command goes on from, while the run has not ended
RUN/snapshots/       models at the epochs that the recipe asks for
RUN/model/           the result
RUN/answers.jsonl.gz the best answers to each question of the last evaluation, for `quoth analyse`
RUN/frozen/          heads on frozen states, by the encoder's epoch and name; each with its own log and checkpoints
RUN/metrics.json     quality and cost; written last
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from quoth.answer.record import write_answers
from quoth.errors import QuothError
from quoth.files import read_json, write_json, write_text
from quoth.model.saving import save
from quoth.tasks.span_data import Feed
from quoth.tasks.span_evaluation import SpanEvaluation
from quoth.train.build import Prepared, build_model, check_task, prepare
from quoth.train.guard import Stop, exact, only_one
from quoth.train.harness import EVERY, Harness, Interrupted
from quoth.train.log import Tell
from quoth.train.loop import Loop, precision_of
from quoth.train.metrics import metrics
from quoth.train.recipe import Recipe, read_recipe
from quoth.train.resume import remove_checkpoints, sweep
from quoth.train.stage import check_stages, run_stages, snapshots_for
from quoth.train.weights import LayerWeights

__all__ = ["EVERY", "Interrupted", "train"]

TUNED = "tuned.json"  # the metrics of the encoder, until those of the heads on its frozen states are there too


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
    accelerator = make_accelerator(device)
    with Stop() as stop, only_one(run) if accelerator.is_main_process else nullcontext():
        if accelerator.is_main_process:
            _check(run, recipe)
        accelerator.wait_for_everyone()
        if (run / "metrics.json").exists():
            remove_checkpoints(run)  # in case of a kill between the two
            (run / TUNED).unlink(missing_ok=True)
            return dict(read_json(run / "metrics.json")) if accelerator.is_main_process else {}
        work = _Work(run, recipe, accelerator, stop, tensorboard, tell)
        return work.go(prepared)


@dataclass
class _Work:
    run: Path
    recipe: Recipe
    accelerator: Accelerator
    stop: Stop
    tensorboard: bool
    tell: Tell | None

    def go(self, prepared: Prepared | None) -> dict[str, Any]:
        recipe, main = self.recipe, self.accelerator.is_main_process
        model = build_model(recipe)
        prepared = prepared or prepare(recipe, model)
        check_task("head", model.head, recipe, prepared.labels)
        check_stages(recipe, model, prepared, self.accelerator)
        feed = prepared.feed(self.accelerator.device, recipe.seed)
        loop = Loop(model, feed, recipe.optimisation, recipe.seed, self.accelerator)
        if main:
            write_text(self.run / "recipe.toml", recipe.to_toml())  # now that it is known to be sound
        tuned = (self.run / TUNED).exists()
        self.accelerator.wait_for_everyone()  # so that none finds what another has just written
        with exact(self.accelerator.device):
            facts: dict[str, Any] = read_json(self.run / TUNED) if tuned else self._tune(loop, prepared)
        remove_checkpoints(self.run)
        del loop, model  # the stages load the encoder anew
        self.accelerator.free_memory()
        if recipe.frozen.heads and isinstance(feed, Feed):
            options = (self.stop, self.tensorboard, self.tell)
            device = self.accelerator.device  # on CUDA nobody has timed heads of convolutions with it
            with exact(device) if device.type == "cpu" else nullcontext():
                stages = run_stages(self.run, recipe, prepared, feed, self.accelerator, *options)
            facts = {**facts, "frozen": stages}
        if main:
            write_json(self.run / "metrics.json", facts)
            (self.run / TUNED).unlink(missing_ok=True)
        self.accelerator.wait_for_everyone()
        return facts if main else {}

    def _tune(self, loop: Loop, prepared: Prepared) -> dict[str, Any]:
        """The encoder's own training: its metrics."""
        recipe = self.recipe
        identity = prepared.identity
        if loop.model.base:  # what does not learn is in no checkpoint
            identity["model"] = loop.model.base.sha256
        model = loop.model
        last: dict[str, Any] = {}

        def evaluate() -> dict[str, Any]:
            with LayerWeights({"model": model.head}, len(model.encoder.shape.layers)) as weights:
                device = str(loop.accelerator.device)
                last["answers"], quality = prepared.evaluate(model, device, precision_of(loop.settings))
            last["weights"] = weights.of("model")
            return quality

        harness = Harness(
            self.run,
            loop,
            self.stop,
            identity,
            evaluate if prepared.evaluation else None,
            lambda folder: save(loop.model, folder),
            recipe.checkpoints.seconds,
            recipe.evaluation.at,
            tuple(dict.fromkeys((*recipe.evaluation.snapshots, *snapshots_for(recipe)))),
        )
        if loop.steps:
            harness.go(tensorboard=self.tensorboard, tell=self.tell)
        facts: dict[str, Any] = {}
        if self.accelerator.is_main_process:
            save(loop.model, self.run / "model")
            if isinstance(prepared.evaluation, SpanEvaluation) and "answers" in last:
                questions = prepared.evaluation.dataset.questions
                write_answers(self.run / "answers.jsonl.gz", questions, last["answers"])
            facts = metrics(recipe, loop, harness.seconds, harness.evaluations, self.run / "model")
            facts |= {"negatives": prepared.examples.negatives} if prepared.examples.negatives else {}
            facts |= {"layer_weights": last["weights"]} if last.get("weights") else {}
            write_json(self.run / TUNED, facts)
        self.accelerator.wait_for_everyone()
        return facts


def _check(run: Path, recipe: Recipe) -> None:
    """Refuse a folder that is not this run's; remove what a killed process left half-written there."""
    kept = run / "recipe.toml"
    if not kept.exists() and any(not path.name.startswith((".lock", ".recipe.toml.")) for path in run.iterdir()):
        raise QuothError(f"{run}: exists and is not a run folder; choose another --out")
    sweep(run)
    differences = read_recipe(kept).differences(recipe) if kept.exists() else ()
    if differences:
        raise QuothError(
            f"{run}: holds a run of another recipe (there, here: {differences[0]}); choose another --out, or remove it"
        )


def make_accelerator(device: str | None) -> Accelerator:
    """The processes and the device of this run."""
    if device not in (None, "cpu", "cuda"):
        raise QuothError(f"device {device!r} is unknown: choose cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise QuothError("device 'cuda' cannot be used on this machine; leave it out, or choose cpu")
    return Accelerator(cpu=device == "cpu" or not torch.cuda.is_available())

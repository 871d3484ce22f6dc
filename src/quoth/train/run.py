"""A training run from recipe to model folder. It may be killed at any moment: the same command resumes it.

RUN/recipe.toml      the recipe as run, all defaults written out
RUN/log.jsonl        loss, learning rate and windows per second every ten steps, and every evaluation
RUN/teacher-logits/  of the teachers that the recipe names, computed before the first step
RUN/checkpoints/     what the same command resumes from, while the run has not ended
RUN/snapshots/       models at the epochs that the recipe asks for
RUN/model/           the result
RUN/answers.jsonl.gz the best answers to each question of the last evaluation, for `quoth analyse`
RUN/frozen/          heads on frozen states, by the encoder's epoch and name; each with its own log and checkpoints
RUN/metrics.json     quality and cost; written last
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from accelerate import Accelerator

from quoth.config import fill
from quoth.encoder import Device
from quoth.errors import QuothError
from quoth.files import read_json, write_json, write_text
from quoth.heads.layer_weights import LayerWeights
from quoth.model import Model, save
from quoth.tasks import Evaluated, Task, prepare
from quoth.tasks.examples import Batches
from quoth.tasks.task import check_head
from quoth.train.build import build_model
from quoth.train.distillation import Distillation, DistillationLoss
from quoth.train.fine_tuning import FineTuning
from quoth.train.frozen_stage import check_stages, run_stages, snapshots_for
from quoth.train.guard import Stop, exact
from quoth.train.log import Tell
from quoth.train.loop import Loop
from quoth.train.metrics import FILE, TrainMetrics, read_metrics, to_json, train_metrics, write_metrics
from quoth.train.recipe import Recipe, read_recipe
from quoth.train.resume import remove_checkpoints
from quoth.train.run_folder import RunFolder
from quoth.train.teacher_logits import Teachers, check_teachers, find_teachers
from quoth.train.training import Interrupted, Training

TUNED = "tuned.json"  # the metrics of the encoder, until those of the heads on its frozen states are there too


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    device: str | None = None,
    tensorboard: bool = False,
    tell: Tell | None = None,
    task: Task | None = None,
    windows: Path | None = None,
) -> TrainMetrics | None:
    """Run a recipe in the folder `out`, or resume the run that is there. Returns what metrics.json holds.

    task: what `quoth.tasks.prepare` gave, for many runs over the same data in one process
    windows: a folder where tokenised questions are kept, for many runs over the same data in processes of their own
    Of several processes only the main one returns metrics.
    """
    accelerator = make_accelerator(device)
    folder, main = RunFolder(out), accelerator.is_main_process
    run = folder.path
    with Stop() as stop, folder.held() if main else nullcontext():
        if main:
            kept = asdict(read_recipe(folder.recipe)) if folder.recipe.exists() else None
            folder.claim(asdict(recipe), kept)
        accelerator.wait_for_everyone()
        if (run / FILE).exists():
            remove_checkpoints(run)  # in case of a kill between the two
            (run / TUNED).unlink(missing_ok=True)
            return read_metrics(run, TrainMetrics) if main else None
        return _Run(run, recipe, accelerator, stop, tensorboard, tell, windows).go(task)


@dataclass
class _Run:
    run: Path
    recipe: Recipe
    accelerator: Accelerator
    stop: Stop
    tensorboard: bool
    tell: Tell | None
    windows: Path | None

    def go(self, task: Task | None) -> TrainMetrics | None:
        recipe, main = self.recipe, self.accelerator.is_main_process
        model = build_model(recipe)
        check_teachers(recipe.teachers, "teachers", model, recipe.data.max_length)
        task = task or prepare(recipe.data, model, recipe.seed, recipe.evaluation.max_answer_tokens, self.windows)
        check_head("head", model.head, task)
        check_stages(recipe, model, task, self.accelerator)
        feed = task.feed(task.examples, self.accelerator.device, recipe.seed)
        tuned = (self.run / TUNED).exists()
        taught = self._teachers(task) if recipe.teachers and not tuned else None
        objective = self._objective(model, task, feed)
        loop = Loop(objective, feed.lengths, recipe.optimisation, recipe.seed, self.accelerator)
        if main:
            write_text(self.run / "recipe.toml", recipe.to_toml())  # now that it is known to be sound
        self.accelerator.wait_for_everyone()  # so that none finds what another has just written
        with exact(self.accelerator.device):
            if taught:
                objective.feed = feed = taught.feed(self.accelerator, self._check_stop, self.tell or (lambda _: None))
            metrics = self._read_tuned() if tuned else self._tune(objective, loop, task, taught)
        remove_checkpoints(self.run)
        del loop, objective, model  # the stages load the encoder anew
        self.accelerator.free_memory()
        metrics = self._stages(metrics, task, feed) if recipe.frozen.heads else metrics
        if metrics is not None:
            write_metrics(self.run, metrics)
            (self.run / TUNED).unlink(missing_ok=True)
        self.accelerator.wait_for_everyone()
        return metrics

    def _teachers(self, task: Task) -> Teachers:
        """The teachers, and which of their logits are there already."""
        recipe = self.recipe
        device = Device.choose(self.accelerator.device, recipe.optimisation.named_precision)
        folder, limit = recipe.distillation.folder(self.run), recipe.distillation.cache_gb
        return find_teachers(recipe.teachers, "teachers", task, folder, limit, device)

    def _objective(self, model: Model, task: Task, feed: Batches) -> FineTuning:
        """On the task's loss or, with teachers, that of distillation."""
        recipe, distillation = self.recipe, None
        if recipe.teachers:
            device = Device.choose(self.accelerator.device, recipe.optimisation.named_precision)
            d = recipe.distillation
            weights = DistillationLoss(d.task_weight, d.logits_weight, 0.0, d.temperature)
            distillation = Distillation(task, weights, device)
        return FineTuning(
            model, task, feed, recipe.optimisation, recipe.seed, self.accelerator, distillation=distillation
        )

    def _check_stop(self) -> None:
        """Stop before the first step, if that is wanted."""
        if self.stop.signal:
            raise Interrupted(0, 0, self.stop.signal)

    def _tune(self, objective: FineTuning, loop: Loop, task: Task, taught: Teachers | None) -> TrainMetrics | None:
        """The encoder's own training: its metrics."""
        recipe, model = self.recipe, objective.model
        identity = {"data": task.examples.identity, **({"teachers": taught.identity} if taught else {})}
        if model.base:  # what is not trained is in no checkpoint
            identity["model"] = model.base.sha256
        weights = LayerWeights({"model": model.head}, len(model.encoder.shape.layers))
        last = Evaluated({})

        def evaluate() -> dict[str, object]:
            nonlocal last, weights
            with LayerWeights({"model": model.head}, len(model.encoder.shape.layers)) as weights:
                last = task.evaluate(model, objective.device)
            return last.quality

        training = Training(
            self.run,
            loop,
            self.stop,
            identity,
            recipe.checkpoints.seconds,
            evaluate if task.evaluation else None,
            lambda folder: save(model, folder),
            recipe.evaluation.at,
            tuple(dict.fromkeys((*recipe.evaluation.snapshots, *snapshots_for(recipe)))),
        )
        if loop.steps:
            training.go(tensorboard=self.tensorboard, tell=self.tell)
        metrics = None
        if self.accelerator.is_main_process:
            save(model, self.run / "model")
            task.write_answers(self.run / "answers.jsonl.gz", last.answers)
            metrics = train_metrics(
                recipe, model, loop, objective.device.precision, training.seconds, training.evaluations,
                self.run / "model", negatives=task.negatives, layer_weights=weights.of("model") if last.quality else {},
                teachers=recipe.teachers, unlabelled=task.unlabelled,
            )  # fmt: skip
            write_json(self.run / TUNED, to_json(metrics))
        self.accelerator.wait_for_everyone()
        return metrics

    def _read_tuned(self) -> TrainMetrics | None:
        if not self.accelerator.is_main_process:
            return None
        return fill(TrainMetrics, read_json(self.run / TUNED), str(self.run / TUNED))

    def _stages(self, metrics: TrainMetrics | None, task: Task, feed: Batches) -> TrainMetrics | None:
        """The metrics with those of the heads on frozen states."""
        with exact(self.accelerator.device):
            stages = run_stages(
                self.run, self.recipe, task, feed, self.accelerator, self.stop, self.tensorboard, self.tell
            )
        return replace(metrics, frozen=stages) if metrics is not None else None


def make_accelerator(device: str | None) -> Accelerator:
    """The processes and the device of this run."""
    check_device(device)
    return Accelerator(cpu=device == "cpu" or not torch.cuda.is_available())


def check_device(device: str | None) -> None:
    """Refuse a device that is unknown, or that this machine does not have."""
    if device not in (None, "cpu", "cuda"):
        raise QuothError(f"device {device!r} is unknown: choose cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise QuothError("device 'cuda' cannot be used on this machine; leave it out, or choose cpu")

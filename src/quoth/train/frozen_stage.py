"""Stages of frozen heads in a run: for each epoch of the encoder that the recipe names, load, train all heads, save.

RUN/frozen/epoch-0.3/log.jsonl, checkpoints/     of all heads together
RUN/frozen/epoch-0.3/cache/                      states of first tokens, for classes, if the recipe wants them kept
RUN/frozen/epoch-0.3/NAME/model/                 a head, as a delta on the encoder's snapshot
RUN/frozen/epoch-0.3/NAME/answers.jsonl.gz       its answers, for `quoth analyse`
RUN/frozen/epoch-0.3/metrics.json                written last
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from quoth.encoder import Device
from quoth.errors import QuothError
from quoth.heads.layer_weights import LayerWeights
from quoth.model import Model, apply, load, open_checkpoint, save, weights_hash
from quoth.score import file_bytes
from quoth.tasks import Evaluated, Task
from quoth.tasks.examples import Batches
from quoth.tasks.task import check_head, windows_of
from quoth.train.cache import EVALUATION, Cache, Plan, fill_cache, remove_cache
from quoth.train.frozen_heads import FrozenHeads, Shared, make_heads
from quoth.train.guard import Stop
from quoth.train.log import Tell
from quoth.train.loop import Loop, make_batches
from quoth.train.metrics import (
    FILE,
    CacheMetrics,
    EvaluationPoint,
    HeadMetrics,
    StageMetrics,
    read_metrics,
    write_metrics,
)
from quoth.train.recipe import Recipe
from quoth.train.resume import remove_checkpoints
from quoth.train.training import Interrupted, Training
from quoth.tune import Freeze, inserted
from quoth.windows import by_length

ENCODER = "encoder"  # the name under which the encoder's own head is scored beside the others
ROWS = 4096  # of a cache, scored together


def snapshots_for(recipe: Recipe) -> tuple[float, ...]:
    """The epochs at which the encoder must be kept for the stages; its beginning and its end are there anyway."""
    return tuple(at for at in recipe.frozen.at if 0 < at < recipe.optimisation.epochs)


def run_stages(
    run: Path,
    recipe: Recipe,
    task: Task,
    feed: Batches,
    accelerator: Accelerator,
    stop: Stop,
    tensorboard: bool,
    tell: Tell | None,
) -> dict[str, StageMetrics]:
    """All stages of a recipe; the metrics of each, by the encoder's epoch."""
    found = {}
    for epoch in _epochs(recipe):
        folder = run / "frozen" / f"epoch-{epoch:g}"
        if not (folder / FILE).exists():
            if tell and accelerator.is_main_process:
                tell(f"heads on the encoder of epoch {epoch:g}")
            model = load(_source(run, recipe, epoch))
            model.windows = recipe.data.window_settings()  # an encoder of epoch 0 has none, or others
            _Stage(folder, model, task, feed, recipe, epoch, accelerator).go(stop, tensorboard, tell)
        accelerator.wait_for_everyone()
        remove_checkpoints(folder)
        remove_cache(folder)
        found[f"{epoch:g}"] = read_metrics(folder, StageMetrics)
    return found


def check_stages(recipe: Recipe, model: Model, task: Task, accelerator: Accelerator) -> None:
    """Refuse heads that cannot be made or trained, before the encoder (`model`) has been trained for hours."""
    frozen = recipe.frozen
    if not frozen.heads:
        return
    with torch.device("meta"):
        heads = make_heads(frozen, model.encoder.shape, recipe.seed)
    epochs = _epochs(recipe)
    loaded = model.pooler is not None and (0 not in epochs or open_checkpoint(recipe.model).pooler)
    for name, head in heads.items():
        check_head(f"frozen.heads.{name}", head, task)
        if head.pooled and not loaded:
            raise QuothError(f"recipe: frozen.heads.{name} reads a pooler, which {recipe.model} does not have")
    make_batches(task.examples.windows.lengths, frozen, recipe.seed, accelerator.num_processes)
    if frozen.cache_gb:
        own = [model.head] if any(epochs) else []
        half = Device.choose(accelerator.device, recipe.optimisation.named_precision).half
        _plan(task, Shared(model, [*heads.values(), *own]), half).check(frozen.cache_gb)


def _plan(task: Task, shared: Shared, half: bool) -> Plan:
    """What the cache of a stage holds: all that heads read of the windows of training and of the evaluation."""
    parts = [examples.windows for examples in (task.examples, task.evaluation) if examples is not None]
    return Plan(tuple(parts), shared.layers, shared.model.encoder.shape.hidden, half)


def _epochs(recipe: Recipe) -> tuple[float, ...]:
    return recipe.frozen.at or (recipe.optimisation.epochs,)


def _source(run: Path, recipe: Recipe, epoch: float) -> str | Path:
    if epoch == 0:
        return recipe.model
    return run / "model" if epoch == recipe.optimisation.epochs else run / "snapshots" / f"epoch-{epoch:g}"


class _Stage:
    def __init__(
        self,
        folder: Path,
        model: Model,
        task: Task,
        feed: Batches,
        recipe: Recipe,
        epoch: float,
        accelerator: Accelerator,
    ) -> None:
        self.folder, self.model, self.task = folder, model, task
        self.frozen, self.pause = recipe.frozen.of_epoch(epoch), recipe.checkpoints.seconds
        self.device = Device.choose(accelerator.device, recipe.optimisation.named_precision)
        self.objective = FrozenHeads(model, task, feed, self.frozen, recipe.seed, accelerator, self.device)
        self.loop = Loop(self.objective, feed.lengths, self.frozen, recipe.seed, accelerator)
        self.heads = dict(self.objective.heads)
        if _same_task(model.head, task):  # the one that the encoder came with
            self.heads[ENCODER] = model.head
        self.last: dict[str, Evaluated] = {}  # of the last evaluation
        self.weights = LayerWeights(self.heads, len(model.encoder.shape.layers))

    def go(self, stop: Stop, tensorboard: bool, tell: Tell | None) -> None:
        main = self.loop.accelerator.is_main_process
        encoder = weights_hash(self.model)
        if self.frozen.cache_gb:
            self.objective.cache = self._cache(encoder, stop, tell if main else None)
        identity = {"data": self.task.examples.identity, "encoder": encoder}
        evaluate = (lambda: self.evaluate(tell)) if self.task.evaluation else None
        training = Training(self.folder, self.loop, stop, identity, self.pause, evaluate, at=self.frozen.evaluate)
        training.go(tensorboard=tensorboard, tell=tell)
        if main:
            self.save(self.folder)
            metrics = self._metrics(training.seconds, training.evaluations)
            for name, head in metrics.heads.items():
                write_metrics(self.folder / name, head)
            write_metrics(self.folder, metrics)

    def _cache(self, encoder: str, stop: Stop, tell: Tell | None) -> Cache:
        """The states of first tokens: those that an interrupted stage has left, or computed now."""

        def check_stop() -> None:
            if stop.signal:
                raise Interrupted(0, self.loop.steps, stop.signal)

        plan = _plan(self.task, Shared(self.model, list(self.heads.values())), self.device.half)
        plan.check(self.frozen.cache_gb)
        if self.loop.accelerator.is_main_process:
            fill_cache(self.folder, plan, encoder, self.model, self.device, check_stop, tell)
        self.loop.accelerator.wait_for_everyone()
        return Cache(self.folder, plan, self.device.place)

    def evaluate(self, tell: Tell | None) -> dict[str, Any]:
        """The scores of all heads; at the end also of the encoder's own, which does not change, and layer weights."""
        loop = self.loop
        if tell and self.frozen.evaluate:
            tell(f"epoch {loop.epoch:.2f} of the heads")
        heads = {name: head for name, head in self.heads.items() if name != ENCODER or loop.step == loop.steps}
        with LayerWeights(heads, len(self.model.encoder.shape.layers)) as self.weights:
            found = self.task.score(self._batches(heads), len(heads))
        self.last = dict(zip(heads, found))
        return {"heads": {name: one.quality for name, one in self.last.items()}}

    @torch.no_grad()
    def _batches(self, heads: Mapping[str, Any]) -> Iterator[tuple[np.ndarray, list[Any]]]:
        """Numbers of evaluation windows and what each head gives for them, from one pass of the encoder or cached."""
        for head in heads.values():
            head.eval()
        shared, windows = Shared(self.model, list(heads.values())), windows_of(self.task.evaluation)
        if self.objective.cache is not None:
            rows = [np.arange(begin, min(begin + ROWS, len(windows))) for begin in range(0, len(windows), ROWS)]
        else:
            rows = list(by_length(windows.lengths, self.device.token_budget(windows.lengths)))
        for indices in rows:
            if self.objective.cache is not None:
                packed, states = self.objective.cache.batch(EVALUATION, indices, shared.layers)
            else:
                packed = windows.packed(indices).to(self.device.place)
                with self.device.autocast():
                    states = shared.states(packed)
            with self.device.autocast():
                outputs = [shared.logits(number, states, packed) for number in range(len(heads))]
            yield indices, outputs

    def _metrics(self, seconds: float, evaluations: list[EvaluationPoint]) -> StageMetrics:
        last = evaluations[-1].quality["heads"] if evaluations else {}
        heads = {}
        if ENCODER in last:
            heads[ENCODER] = HeadMetrics(quality=last[ENCODER], layer_weights=self.weights.of(ENCODER))
        for group in self.objective.groups:
            name, head = group.name, self.heads[group.name]
            several = evaluations if len(evaluations) > 1 else []
            heads[name] = HeadMetrics(
                head.to_json(),
                sum(value.numel() for value in group.parameters.values()),
                group.settings.learning_rate,
                file_bytes(self.folder / name / "model"),
                last.get(name, {}),
                tuple(EvaluationPoint(e.step, e.epoch, e.quality["heads"][name]) for e in several),
                self.weights.of(name),
            )
        cache = self.objective.cache
        speed = self.loop.windows / seconds if seconds > 0 else 0.0
        size = CacheMetrics(cache.bytes, cache.seconds) if cache is not None else None
        return StageMetrics(heads, seconds, speed, self.loop.steps, size)

    def save(self, folder: Path) -> None:
        """Each head as a delta on the encoder, and its answers."""
        model = self.model
        if inserted(model.encoder) is None:  # else its adapters or LoRA stay, and are saved with each head
            apply(model, Freeze(0, norms="above"))
        for group in self.objective.groups:
            model.head = self.heads[group.name]
            save(model, folder / group.name / "model")
        for name, found in self.last.items():
            self.task.write_answers(folder / name / "answers.jsonl.gz", found.answers)


def _same_task(head: Any, task: Task) -> bool:
    """Whether a head can be scored beside those of a task."""
    try:
        check_head("head", head, task)
    except (QuothError, AttributeError):  # another task, another number of classes, or no head
        return False
    return True

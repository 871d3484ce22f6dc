"""Stages of frozen heads in a run: for each epoch of the encoder that the recipe names, load, train all heads, save.

RUN/frozen/epoch-0.3/log.jsonl, checkpoints/     of all heads together
RUN/frozen/epoch-0.3/cache/                      states of first tokens, for classes, if the recipe wants them kept
RUN/frozen/epoch-0.3/NAME/model/                 a head, as a delta on the encoder's snapshot
RUN/frozen/epoch-0.3/NAME/answers.jsonl.gz       its answers, for `quoth analyse`
RUN/frozen/epoch-0.3/metrics.json                written last
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from quoth.answer.decode import Decoded
from quoth.answer.record import write_answers
from quoth.encoder.device import choose
from quoth.errors import QuothError
from quoth.files import read_json, write_json
from quoth.model import apply
from quoth.model.base import weights_hash
from quoth.model.checkpoint import open_checkpoint
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.tasks.classes import ClassEvaluation
from quoth.tasks.span_data import Feed
from quoth.tasks.span_evaluation import SpanEvaluation
from quoth.train.build import Prepared, check_task
from quoth.train.cache import Cache, Plan, fill_cache, remove_cache
from quoth.train.frozen import FrozenLoop, Shared, make_heads
from quoth.train.guard import Stop
from quoth.train.harness import Harness, Interrupted
from quoth.train.log import Tell
from quoth.train.loop import make_batches, precision_of
from quoth.train.recipe import Recipe
from quoth.train.resume import remove_checkpoints
from quoth.train.scoring import score_heads
from quoth.train.weights import LayerWeights
from quoth.tune import inserted
from quoth.tune.freeze import Freeze

ENCODER = "encoder"  # the name under which the encoder's own head is scored beside the others


def snapshots_for(recipe: Recipe) -> tuple[float, ...]:
    """The epochs at which the encoder must be kept for the stages; its beginning and its end are there anyway."""
    return tuple(at for at in recipe.frozen.at if 0 < at < recipe.optimisation.epochs)


def run_stages(
    run: Path,
    recipe: Recipe,
    prepared: Prepared,
    feed: Feed,
    accelerator: Accelerator,
    stop: Stop,
    tensorboard: bool,
    tell: Tell | None,
) -> dict[str, Any]:
    """All stages of a recipe; the metrics of each, by the encoder's epoch."""
    found = {}
    for epoch in _epochs(recipe):
        folder = _folder(run, epoch)
        if not (folder / "metrics.json").exists():
            if tell and accelerator.is_main_process:
                tell(f"heads on the encoder of epoch {epoch:g}")
            _stage(run, epoch, recipe, prepared, feed, accelerator).go(stop, tensorboard, tell)
        accelerator.wait_for_everyone()
        remove_checkpoints(folder)
        remove_cache(folder)
        found[f"{epoch:g}"] = read_json(folder / "metrics.json")
    return found


def check_stages(recipe: Recipe, model: Model, prepared: Prepared, accelerator: Accelerator) -> None:
    """Refuse heads that cannot be made or cannot learn, before the encoder (`model`) has learnt for hours."""
    frozen = recipe.frozen
    if not frozen.heads:
        return
    with torch.device("meta"):
        heads = make_heads(frozen, model.encoder.shape, recipe.seed)
    epochs = _epochs(recipe)
    loaded = model.pooler is not None and (0 not in epochs or open_checkpoint(recipe.model).pooler)
    for name, head in heads.items():
        check_task(f"frozen.heads.{name}", head, recipe, prepared.labels)
        if head.pooled and not loaded:
            raise QuothError(f"recipe: frozen.heads.{name} reads a pooler, which {recipe.model} does not have")
    make_batches(prepared.examples.windows.lengths, frozen, recipe.seed, accelerator.num_processes)
    if frozen.cache:
        own = [model.head] if any(epochs) else []
        half = choose(str(accelerator.device), precision_of(recipe.optimisation))[1]
        _plan(prepared, Shared(model, [*heads.values(), *own]), half).check(frozen.cache)


def _plan(prepared: Prepared, shared: Shared, half: bool) -> Plan:
    """What the cache of a stage holds: all that heads read of the windows of training and of the evaluation."""
    parts = [prepared.examples.windows]
    if isinstance(prepared.evaluation, ClassEvaluation):
        parts.append(prepared.evaluation.data.windows)
    return Plan(tuple(parts), shared.layers, shared.model.encoder.shape.hidden, half)


def _epochs(recipe: Recipe) -> tuple[float, ...]:
    return recipe.frozen.at or (recipe.optimisation.epochs,)


def _folder(run: Path, epoch: float) -> Path:
    return run / "frozen" / f"epoch-{epoch:g}"


def _place(run: Path, recipe: Recipe, epoch: float) -> str | Path:
    if epoch == 0:
        return recipe.model
    return run / "model" if epoch == recipe.optimisation.epochs else run / "snapshots" / f"epoch-{epoch:g}"


def _stage(run: Path, epoch: float, recipe: Recipe, prepared: Prepared, feed: Feed, accelerator: Accelerator) -> _Stage:
    model = load(_place(run, recipe, epoch))
    model.windows = recipe.data.window_settings()  # an encoder of epoch 0 has none, or others
    loop = FrozenLoop(
        model, feed, recipe.frozen.of_epoch(epoch), recipe.seed, accelerator, precision_of(recipe.optimisation)
    )
    return _Stage(_folder(run, epoch), loop, prepared, recipe.checkpoints.seconds)


class _Stage:
    def __init__(self, folder: Path, loop: FrozenLoop, prepared: Prepared, pause: float) -> None:
        self.folder = folder
        self.loop = loop
        self.prepared = prepared
        self.pause = pause
        self.cache: Cache | None = None
        self.answers: dict[str, Decoded] = {}  # of the last evaluation
        self.heads = {learner.name: learner.head for learner in loop.learners}
        head = loop.model.head  # the one that the encoder came with, if any
        wanted = "span" if prepared.labels is None else "class"
        if head is not None and head.task == wanted and head.to_json().get("labels") == prepared.labels:
            self.heads[ENCODER] = head
        self.weights = LayerWeights(self.heads, len(loop.model.encoder.shape.layers))

    def go(self, stop: Stop, tensorboard: bool, tell: Tell | None) -> None:
        loop = self.loop
        main, frozen = loop.accelerator.is_main_process, loop.frozen
        encoder = weights_hash(loop.model)
        if frozen.cache:
            self.cache = loop.cache = self._cache(encoder, stop, tell if main else None)
        identity = {**self.prepared.identity, "encoder": encoder}
        evaluate = (lambda: self.evaluate(tell)) if self.prepared.evaluation else None
        harness = Harness(self.folder, loop, stop, identity, evaluate, self.save, self.pause, frozen.evaluate)
        harness.go(tensorboard=tensorboard, tell=tell)
        if main:
            self.save(self.folder)
            facts = self._metrics(harness.seconds, harness.evaluations)
            for name, head in facts["heads"].items():
                write_json(self.folder / name / "metrics.json", head)
            write_json(self.folder / "metrics.json", facts)

    def _cache(self, encoder: str, stop: Stop, tell: Tell | None) -> Cache:
        """The states of first tokens: those that an interrupted stage has left, or computed now."""
        loop = self.loop

        def between() -> None:
            if stop.signal:
                raise Interrupted(0, loop.steps, stop.signal)

        plan = _plan(self.prepared, Shared(loop.model, list(self.heads.values())), loop.half)
        plan.check(loop.frozen.cache)
        if loop.accelerator.is_main_process:
            fill_cache(self.folder, plan, encoder, loop.model, loop.cast, between, tell)
        loop.accelerator.wait_for_everyone()
        return Cache(self.folder, plan, loop.accelerator.device)

    def evaluate(self, tell: Tell | None) -> dict[str, Any]:
        """The scores of all heads; at the end also of the encoder's own, which does not change, and layer weights."""
        loop, evaluation = self.loop, self.prepared.evaluation
        assert isinstance(evaluation, SpanEvaluation | ClassEvaluation)
        if tell and loop.frozen.evaluate:
            tell(f"epoch {loop.epoch:.2f} of the heads")
        heads = {name: head for name, head in self.heads.items() if name != ENCODER or loop.step == loop.steps}
        with LayerWeights(heads, len(loop.model.encoder.shape.layers)) as self.weights:
            scores, self.answers = score_heads(evaluation, heads, loop, self.cache)
        return {"heads": scores}

    def _metrics(self, seconds: float, evaluations: list[dict[str, Any]]) -> dict[str, Any]:
        loop = self.loop
        last = evaluations[-1]["heads"] if evaluations else {}
        heads = {ENCODER: {"quality": last[ENCODER]}} if ENCODER in last else {}
        for learner in loop.learners:
            heads[learner.name] = {
                "head": learner.head.to_json(),
                "parameters": learner.parameters,
                "rate": learner.settings.rate,
                "quality": last.get(learner.name, {}),
            }
            if len(evaluations) > 1:
                heads[learner.name]["curve"] = [
                    {"epoch": look["epoch"], "step": look["step"], **look["heads"][learner.name]}
                    for look in evaluations
                ]
        for name, head in heads.items():
            weights = self.weights.of(name)
            head |= {"layer_weights": weights} if weights else {}
        pace = loop.windows / seconds if seconds > 0 else 0.0
        facts = {"heads": heads, "train_seconds": seconds, "windows_per_second": pace, "steps": loop.steps}
        if self.cache is not None:
            facts["cache"] = {"bytes": self.cache.bytes, "seconds": self.cache.seconds}
        return facts

    def save(self, folder: Path) -> None:
        """Each head as a delta on the encoder, and its answers."""
        model = self.loop.model
        if inserted(model.encoder) is None:  # else its adapters or LoRA stay, and are saved with each head
            apply(model, Freeze(0, norms="above"))
        for learner in self.loop.learners:
            model.head = learner.head
            save(model, folder / learner.name / "model")
        if isinstance(self.prepared.evaluation, SpanEvaluation):
            for name, decoded in self.answers.items():
                questions = self.prepared.evaluation.dataset.questions
                write_answers(folder / name / "answers.jsonl.gz", questions, decoded)

"""Stages of frozen heads in a run: for each epoch of the encoder that the recipe names, load, train all heads, save.

RUN/frozen/epoch-0.3/log.jsonl, checkpoints/     of all heads together
RUN/frozen/epoch-0.3/NAME/model/                 a head, as a delta on the encoder's snapshot
RUN/frozen/epoch-0.3/NAME/answers.jsonl.gz       its answers, for `laconic analyse`
RUN/frozen/epoch-0.3/metrics.json                written last
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from laconic.answer.batched import over_windows
from laconic.answer.decode import Decoded
from laconic.answer.record import write_answers
from laconic.answer.spans import SpanLogits
from laconic.encoder.checkpoint import open_checkpoint
from laconic.encoder.model import Model, load, save
from laconic.encoder.runner import CPU_TOKENS, CUDA_TOKENS
from laconic.errors import LaconicError
from laconic.files import read_json, write_json
from laconic.text import Windows, by_length
from laconic.text.packed import Packed
from laconic.train.build import Prepared, check_task
from laconic.train.checkpoint import remove_checkpoints
from laconic.train.classes import ClassEvaluation, class_quality
from laconic.train.evaluation import SpanEvaluation
from laconic.train.frozen import FrozenLoop, Shared, make_heads
from laconic.train.guard import Stop
from laconic.train.harness import Harness
from laconic.train.log import Tell
from laconic.train.loop import make_batches, precision_of
from laconic.train.recipe import Recipe
from laconic.train.spans import Feed
from laconic.tune import Freeze, apply, weights_hash
from laconic.tune.apply import installed

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
        folder = run / "frozen" / f"epoch-{epoch:g}"
        if not (folder / "metrics.json").exists():
            if tell and accelerator.is_main_process:
                tell(f"heads on the encoder of epoch {epoch:g}")
            _stage(folder, _place(run, recipe, epoch), recipe, prepared, feed, accelerator).go(stop, tensorboard, tell)
        accelerator.wait_for_everyone()
        remove_checkpoints(folder)
        found[f"{epoch:g}"] = read_json(folder / "metrics.json")
    return found


def check_stages(recipe: Recipe, model: Model, prepared: Prepared, processes: int) -> None:
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
            raise LaconicError(f"recipe: frozen.heads.{name} reads a pooler, which {recipe.model} does not have")
    make_batches(prepared.examples.windows.lengths, frozen, recipe.seed, processes)


def _epochs(recipe: Recipe) -> tuple[float, ...]:
    return recipe.frozen.at or (recipe.optimisation.epochs,)


def _place(run: Path, recipe: Recipe, epoch: float) -> str | Path:
    if epoch == 0:
        return recipe.model
    return run / "model" if epoch == recipe.optimisation.epochs else run / "snapshots" / f"epoch-{epoch:g}"


def _stage(
    folder: Path, place: str | Path, recipe: Recipe, prepared: Prepared, feed: Feed, accelerator: Accelerator
) -> _Stage:
    model = load(place)
    model.windows = recipe.data.window_settings()  # an encoder of epoch 0 has none, or others
    loop = FrozenLoop(model, feed, recipe.frozen, recipe.seed, accelerator, precision_of(recipe.optimisation))
    return _Stage(folder, loop, prepared, recipe.checkpoints.seconds)


class _Stage:
    def __init__(self, folder: Path, loop: FrozenLoop, prepared: Prepared, pause: float) -> None:
        self.folder = folder
        self.loop = loop
        self.prepared = prepared
        self.pause = pause
        self.decoded: dict[str, Decoded] = {}
        head = loop.model.head  # the one that the encoder came with, if any
        wanted = "span" if prepared.labels is None else "class"
        fits = head is not None and head.task == wanted and head.to_json().get("labels") == prepared.labels
        self.own = head if fits else None

    def go(self, stop: Stop, tensorboard: bool, tell: Tell | None) -> None:
        loop = self.loop
        identity = {**self.prepared.identity, "encoder": weights_hash(loop.model)}
        evaluate = self.evaluate if self.prepared.evaluation else None
        harness = Harness(self.folder, loop, stop, identity, evaluate, self.save, self.pause)
        harness.go(tensorboard=tensorboard, tell=tell)
        if loop.accelerator.is_main_process:
            self.save(self.folder)
            last = harness.evaluations[-1]["heads"] if harness.evaluations else {}
            facts = self._metrics(harness.seconds, last)
            for name, head in facts["heads"].items():
                write_json(self.folder / name / "metrics.json", head)
            write_json(self.folder / "metrics.json", facts)

    def _metrics(self, seconds: float, last: dict[str, Any]) -> dict[str, Any]:
        loop = self.loop
        heads = {
            learner.name: {
                "head": learner.head.to_json(),
                "parameters": learner.parameters,
                "rate": learner.settings.rate,
                "quality": last.get(learner.name, {}),
            }
            for learner in loop.learners
        }
        own = {ENCODER: {"quality": last[ENCODER]}} if ENCODER in last else {}
        pace = loop.windows / seconds if seconds > 0 else 0.0
        return {"heads": {**own, **heads}, "train_seconds": seconds, "windows_per_second": pace, "steps": loop.steps}

    def save(self, folder: Path) -> None:
        """Each head as a delta on the encoder, and its answers."""
        model = self.loop.model
        if installed(model) is None:  # else its adapters or LoRA stay, and are saved with each head
            apply(model, Freeze(0, norms="above"))
        for learner in self.loop.learners:
            model.head = learner.head
            save(model, folder / learner.name / "model")
        if isinstance(self.prepared.evaluation, SpanEvaluation):
            for name, decoded in self.decoded.items():
                questions = self.prepared.evaluation.dataset.questions
                write_answers(folder / name / "answers.jsonl.gz", questions, decoded)

    def evaluate(self) -> dict[str, Any]:
        """The scores of all heads, and of the encoder's own, from one pass a batch."""
        evaluation = self.prepared.evaluation
        named = {learner.name: learner.head for learner in self.loop.learners}
        if self.own is not None:
            named[ENCODER] = self.own
        for head in named.values():
            head.eval()
        shared = Shared(self.loop.model, list(named.values()))
        if isinstance(evaluation, ClassEvaluation):
            found = self._class_logits(shared, evaluation.data.windows)
            return {"heads": {name: class_quality(evaluation.data, f) for name, f in zip(named, found)}}
        assert isinstance(evaluation, SpanEvaluation)
        budget = CUDA_TOKENS if self.loop.accelerator.device.type == "cuda" else CPU_TOKENS
        flat = over_windows(evaluation.windows, budget, lambda packed: self._span_logits(shared, packed))
        heads = {}
        for number, name in enumerate(named):
            decoded, quality = evaluation.score(SpanLogits(flat[2 * number], flat[2 * number + 1]))
            self.decoded[name] = decoded
            heads[name] = quality
        return {"heads": heads}

    @torch.no_grad()
    def _logits(self, shared: Shared, packed: Packed[np.ndarray]) -> list[Any]:
        batch = packed.map(lambda array: torch.from_numpy(array).to(self.loop.accelerator.device, non_blocking=True))
        with self.loop.cast(batch):
            states = shared.states(batch)
            return [shared.logits(number, states, batch) for number in range(len(shared.heads))]

    def _span_logits(self, shared: Shared, packed: Packed[np.ndarray]) -> list[np.ndarray]:
        found = [logits for pair in self._logits(shared, packed) for logits in pair]
        return list(torch.stack([logits.float() for logits in found]).cpu().numpy())

    def _class_logits(self, shared: Shared, windows: Windows) -> list[np.ndarray]:
        budget = CUDA_TOKENS if self.loop.accelerator.device.type == "cuda" else CPU_TOKENS
        parts: list[list[np.ndarray]] = [[] for _ in shared.heads]
        order = []
        for indices in by_length(windows.lengths, max(budget, int(windows.lengths.max(initial=1)))):
            order.append(indices)
            for part, logits in zip(parts, self._logits(shared, windows.packed(indices))):
                part.append(logits.float().cpu().numpy())
        back = np.argsort(np.concatenate(order))
        return [np.concatenate(part)[back] for part in parts]

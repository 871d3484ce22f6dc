"""`recover`: step 6 of a round, the smaller model is trained by the loss of `distillation` in the recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from quoth.model import Model
from quoth.prune.plan import Round
from quoth.prune.shrink import Workbench
from quoth.tasks.seeds import seed_of
from quoth.train.distillation import Distillation, View
from quoth.train.fine_tuning import FineTuning, set_dropout
from quoth.train.loop import Loop
from quoth.train.training import Training
from quoth.windows import Packed


def recover(bench: Workbench, model: Model, view: View, now: Round, folder: Path) -> tuple[int, float]:
    """Train a cut model to the end of its steps, or from a checkpoint on: the steps, and the seconds they took.

    view: which hidden units of the unpruned model it has kept; folder: of the round
    """
    recipe = bench.recipe
    settings = recipe.recovery if now.target else replace(recipe.recovery, epochs=recipe.round_epochs)
    if now.part is None and recipe.start.epochs is not None:
        settings = replace(settings, epochs=recipe.start.epochs)
    if settings.dropout is not None:
        set_dropout(model, settings.dropout)
    distillation = Distillation(bench.task, recipe.distillation, bench.device, bench.teacher, view)

    def loss(packed: Packed[Any], labels: Tensor) -> Tensor:
        return distillation(model, packed, labels)

    seed = seed_of(recipe.seed, now.number, 1)
    objective = FineTuning(model, bench.task, bench.feed, settings, seed, bench.accelerator, loss)
    loop = Loop(objective, bench.feed.lengths, settings, seed, bench.accelerator)
    seconds = 0.0
    if loop.steps:
        bench.tell(f"recovery, {loop.steps} steps, loss: {recipe.distillation.name}")
        pause = recipe.checkpoints.seconds
        training = Training(folder / "recovery", loop, bench.stop, bench.identity, pause)
        training.go(tell=bench.tell)
        seconds = training.seconds
    bench.accelerator.free_memory()
    model.eval()
    return loop.steps, seconds

"""Steps 1 to 5 of a round: from a model to a smaller one that has not recovered yet."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from quoth.encoder.axes import Keep
from quoth.files import atomic_file
from quoth.model.model import Model
from quoth.prune.allocate import allocate
from quoth.prune.baselines import drop_layers, layers_for, uniform, untrained
from quoth.prune.cost import Cost, betas
from quoth.prune.cut import cut
from quoth.prune.gates import Gates, gated
from quoth.prune.loops import GateLoop, mean_loss
from quoth.prune.penalty import L0, L1, make_penalty
from quoth.prune.recipe import PruneRecipe
from quoth.prune.shift import norm_shift
from quoth.tasks.masking import MaskedFeed
from quoth.tasks.span_data import Feed
from quoth.train.distillation import Lesson, View
from quoth.train.guard import Stop
from quoth.train.harness import Harness
from quoth.train.log import Tell
from quoth.train.loop import batch_at
from quoth.train.resume import save_tensors

FLOOR = 0.1  # the least |α| of what stays: weights near 0 on both sides of a product would hardly learn again


@dataclass(frozen=True)
class Bench:
    """What all rounds of a run share.

    unpruned: the model as it came; teacher: what is distilled from, the same object if the recipe names no other
    probe: the windows on which losses are compared; half: in bf16
    """

    recipe: PruneRecipe
    unpruned: Model
    teacher: Model
    cost: Cost
    feed: Feed | MaskedFeed
    probe: Feed | MaskedFeed
    half: bool
    identity: dict[str, str]
    accelerator: Accelerator
    stop: Stop
    tell: Tell

    def loss(self, model: Model) -> float:
        """The task's loss a window on the probe."""
        return mean_loss(model.to(self.accelerator.device), self.probe, self.half)


def shrink(
    bench: Bench, model: Model, view: View, budget: float, seed: int, folder: Path
) -> tuple[Model, View, dict[str, Any]]:
    """The model cut to a budget by the recipe's method, its view, and facts: losses, steps, seconds, norm_shift."""
    recipe, target = bench.recipe, bench.recipe.target
    shape = model.encoder.shape
    if recipe.method == "layers":
        return drop_layers(model, layers_for(shape, bench.cost, budget), recipe.start.which), view, {"losses": {}}
    facts: dict[str, Any] = {"losses": {}}
    gates = None
    if recipe.ranking == "gates":
        penalty = train_gates(bench, model, view, seed, folder, facts)
        scores, gates = penalty.scores(), penalty.gates()
        with gated(model, gates):
            facts["losses"]["gated"] = mean_loss(model, bench.probe, bench.half)
    else:
        scores = untrained(recipe.ranking, model, target.kinds, seed)
    if recipe.method == "uniform":
        keep = uniform(scores, shape, bench.cost, budget, multiple=target.multiple)
    else:
        keep = allocate(scores, shape, bench.cost, budget, per_cost=target.per_cost, multiple=target.multiple)
    if gates is None or not recipe.gates.fold:
        return cut(model, keep), view.after(keep, None), facts
    hold(gates, keep)
    facts |= _shift(bench, model, gates)
    return cut(model, gates), view.after(keep, dict(gates.alpha.items())), facts


def train_gates(bench: Bench, model: Model, view: View, seed: int, folder: Path, facts: dict[str, Any]) -> L1 | L0:
    """Gates for a model, trained to the end of their steps, and kept in the folder of the round."""
    recipe = bench.recipe
    settings, kinds, shape = recipe.gates, recipe.target.kinds, model.encoder.shape
    penalty = make_penalty(settings.penalty, shape, kinds, settings.gamma, betas(bench.cost, shape, kinds))
    lesson = Lesson(settings.blend, bench.teacher, view)
    loop = GateLoop(model, penalty, lesson, bench.feed, settings, seed, bench.accelerator)
    bench.tell(f"gates, {loop.steps} steps")
    pause = recipe.checkpoints.seconds
    harness = Harness(folder / "gates", loop, bench.stop, bench.identity, None, lambda _: None, pause)
    harness.go(tell=bench.tell)
    with atomic_file(folder / "alpha.safetensors") as part:
        save_tensors({name: value.detach() for name, value in penalty.gates().alpha.items()}, part)
    facts |= {"steps": {"gates": loop.steps}, "seconds": {"gates": harness.seconds}}
    return penalty


@torch.no_grad()
def hold(gates: Gates, keep: Keep) -> None:
    """Set α = 0 where `keep` says no, and |α| ≥ `FLOOR` where it says yes."""
    for value in gates.alpha.values():
        sign = torch.where(value < 0, -1.0, 1.0)
        value.copy_(sign * value.abs().clamp(min=FLOOR))
    gates.zero(keep)


def _shift(bench: Bench, model: Model, gates: Gates) -> dict[str, Any]:
    """How far the outputs move since LayerNorm's statistics are over the kept units alone, where h is cut."""
    kept: Tensor | None = gates.keep().get("h")
    if kept is None or bool(kept.all()) or model.head.task == "mlm":
        return {}
    packed, _ = batch_at(bench.probe, np.arange(min(32, len(bench.probe.lengths))), 0)
    return {"norm_shift": asdict(norm_shift(model, gates, packed))}

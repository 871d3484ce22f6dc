"""Steps 1 to 5 of a round: from a model to a smaller one that has not recovered yet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from accelerate import Accelerator

from quoth.encoder import Device
from quoth.files import atomic_file
from quoth.model import Model
from quoth.prune.allocate import allocate
from quoth.prune.baselines import drop_layers, layers_for, uniform, untrained
from quoth.prune.cost import Cost, betas
from quoth.prune.cut import cut, fold
from quoth.prune.gate_training import GateTraining
from quoth.prune.gates import Gates, gated
from quoth.prune.metrics import CutMetrics
from quoth.prune.penalty import L0, L1, make_penalty
from quoth.prune.recipe import PruneRecipe
from quoth.tasks import Task
from quoth.tasks.examples import Batches
from quoth.tasks.task import mean_loss
from quoth.train.distillation import Distillation, View
from quoth.train.guard import Stop
from quoth.train.log import Tell
from quoth.train.loop import Loop
from quoth.train.resume import save_tensors
from quoth.train.training import Training


@dataclass(frozen=True)
class Workbench:
    """What all rounds of a run share.

    unpruned: the model as it came; teacher: what is run beside the student, the same object where the recipe names no
    other or wants its states, None where the logits of the feed are all that is wanted; taught: the hash of these
    probe: the windows on which losses are compared
    """

    recipe: PruneRecipe
    task: Task
    unpruned: Model
    teacher: Model | None
    cost: Cost
    feed: Batches
    probe: Batches
    device: Device
    accelerator: Accelerator
    stop: Stop
    tell: Tell
    taught: str = ""

    def loss(self, model: Model) -> float:
        """The task's loss a window on the probe."""
        return mean_loss(self.task, model.to(self.device.place), self.probe, self.device)

    @property
    def identity(self) -> dict[str, str]:
        """What must not change while the run is interrupted."""
        return {"data": self.task.examples.identity, **({"teachers": self.taught} if self.taught else {})}


def shrink(
    bench: Workbench, model: Model, view: View, budget: float, seed: int, folder: Path, before: CutMetrics
) -> tuple[Model, View, CutMetrics]:
    """The model cut to a budget by the recipe's method, its view, and the metrics so far."""
    recipe, target = bench.recipe, bench.recipe.target
    shape = model.encoder.shape
    if recipe.method == "layers":
        return drop_layers(model, layers_for(shape, bench.cost, budget), recipe.start.which), view, before
    metrics, gates = before, None
    if recipe.ranking == "gates":
        penalty, seconds = train_gates(bench, model, view, seed, folder)
        scores, gates = penalty.scores(), penalty.gates()
        with gated(model, gates):
            losses = {**before.losses, "gated": bench.loss(model)}
        metrics = replace(before, losses=losses, steps={"gates": recipe.gates.steps}, seconds={"gates": seconds})
    else:
        scores = untrained(recipe.ranking, model, target.kinds, seed)
    if recipe.method == "uniform":
        keep = uniform(scores, shape, bench.cost, budget, multiple=target.multiple)
    else:
        per_cost, multiple, give_back = target.per_cost, target.multiple, target.give_back
        keep = allocate(scores, shape, bench.cost, budget, per_cost=per_cost, multiple=multiple, give_back=give_back)
    if gates is not None and recipe.gates.fold:
        raise_to_floor(gates, recipe.gates.floor)
        model = fold(model, gates)
    return cut(model, keep), view.after(keep), metrics


def train_gates(bench: Workbench, model: Model, view: View, seed: int, folder: Path) -> tuple[L1 | L0, float]:
    """Gates for a model, trained to the end of their steps and kept in the folder of the round; the seconds it took."""
    recipe = bench.recipe
    gates, kinds, shape = recipe.gates, recipe.target.kinds, model.encoder.shape
    settings = gates.optimisation()
    device = Device.choose(bench.device.place, settings.named_precision)
    penalty = make_penalty(gates.penalty, shape, kinds, gates.gamma, betas(bench.cost, shape, kinds))
    loss = Distillation(bench.task, gates.loss, device, bench.teacher, view)
    objective = GateTraining(model, penalty, loss, bench.feed, settings, seed, device)
    loop = Loop(objective, bench.feed.lengths, settings, seed, bench.accelerator, gates.steps)
    bench.tell(f"gates, {loop.steps} steps, loss: {gates.loss.name}")
    training = Training(folder / "gates", loop, bench.stop, bench.identity, recipe.checkpoints.seconds)
    training.go(tell=bench.tell)
    with atomic_file(folder / "alpha.safetensors") as part:
        save_tensors({name: value.detach() for name, value in penalty.gates().alpha.items()}, part)
    return penalty, training.seconds


@torch.no_grad()
def raise_to_floor(gates: Gates, floor: float) -> None:
    """Bring every α to |α| ≥ floor, with the sign that it has."""
    for value in gates.alpha.values():
        sign = torch.where(value < 0, -1.0, 1.0)
        value.copy_(sign * value.abs().clamp(min=floor))

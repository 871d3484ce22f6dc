"""Distillation: a student is trained on its task's loss, the logits of a teacher, and its states.

    L = task_weight · L_task + logits_weight · τ² · KL(p_t ‖ p_s)
        + states_weight · mean over layers and units of (s − t[units])²

p = softmax(logits / τ) of teacher t and student s (Hinton et al. 2015); `Task.distillation_loss` says over what: the
tokens of a window for spans, the classes, the words of each masked token. The teacher of a pruned model is the unpruned
one, or others that a recipe names (`quoth.prune.teacher`). A teacher is run beside the student, or its logits were
computed before (`quoth.train.teacher_logits`) and come with each batch. Both are possible at once: then logits are
those that come with the batch, and states are those of the teacher that is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from quoth.config import check_value
from quoth.encoder import Device, Shape
from quoth.encoder.axes import Keep
from quoth.errors import QuothError
from quoth.model import Model
from quoth.tasks import Task
from quoth.windows import Packed
from quoth.windows.packed import Taught


@dataclass(frozen=True)
class DistillationLoss:
    """How much each part of the loss counts, and the temperature τ of the logits."""

    task_weight: float = 0.0
    logits_weight: float = 1.0
    states_weight: float = 0.0
    temperature: float = 1.0

    @property
    def name(self) -> str:
        """What results call it: "task", "distillation" or "both"."""
        if not (self.logits_weight or self.states_weight):
            return "task"
        return "both" if self.task_weight else "distillation"

    def check(self, where: str) -> None:
        """Refuse weights of which no loss can be made."""
        for name in ("task_weight", "logits_weight", "states_weight"):
            check_value(getattr(self, name) >= 0, f"{where}.{name}", getattr(self, name), "not negative")
        total = self.task_weight + self.logits_weight + self.states_weight
        check_value(total > 0, f"{where}.logits_weight", self.logits_weight, "above 0, or task_weight")
        check_value(self.temperature > 0, f"{where}.temperature", self.temperature, "above 0")


@dataclass(frozen=True)
class View:
    """Which hidden units of its teacher a cut model has kept.

    units: (h,) int64, their numbers. Gates leave the scale of states alone: a state is the output of a LayerNorm.
    """

    units: Tensor

    @classmethod
    def whole(cls, shape: Shape) -> View:
        """Of a model that nothing was cut from."""
        return cls(torch.arange(shape.hidden))

    @classmethod
    def read(cls, path: Path, hidden: int) -> View:
        """What a run folder keeps. hidden: the teacher's size, which all numbers of units are below."""
        try:
            found = load_file(path)
        except (SafetensorError, OSError) as error:
            raise QuothError(f"{path}: missing or damaged ({error}); begin anew with another --out") from None
        units = found.get("units", torch.zeros(0, 0))
        sound = len(found) == 1 and units.dtype == torch.int64 and units.shape == (units.numel(),)
        if not sound or not units.numel() or units.min() < 0 or units.max() >= hidden:
            raise QuothError(f"{path}: units must be numbers below {hidden}; begin anew with another --out")
        return cls(units)

    def after(self, keep: Keep) -> View:
        """The view of a model cut again."""
        return View(self.units[keep["h"].cpu()]) if "h" in keep else self

    def to(self, device: torch.device) -> View:
        """The same on another device."""
        return View(self.units.to(device))

    def of(self, state: Tensor) -> Tensor:
        """What the student should have in place of a state of the teacher: (T, h of the teacher) → (T, h)."""
        return state.index_select(1, self.units).float()


class Distillation:
    """The loss of a student on a batch, summed over its windows, as `Task.loss` has it."""

    def __init__(
        self,
        task: Task,
        weights: DistillationLoss,
        device: Device,
        teacher: Model | None = None,
        view: View | None = None,
    ) -> None:
        """teacher: a model of its own, in evaluation mode; view: of the student, by default whole."""
        self.task, self.weights, self.device = task, weights, device
        self.teacher = teacher if weights.logits_weight or weights.states_weight else None
        if self.teacher is not None:
            self._view = (view or View.whole(self.teacher.encoder.shape)).to(next(self.teacher.parameters()).device)

    def __call__(self, model: nn.Module, packed: Packed[Any], labels: Tensor) -> Tensor:
        """model: the student, which several processes may have wrapped. The loss itself is in fp32."""
        w = self.weights
        with self.device.autocast():
            output, states = _run(model, packed, bool(w.states_weight))
        loss = torch.zeros((), device=packed.ids.device)
        if w.task_weight:
            loss = loss + w.task_weight * self.task.loss(output, packed, labels)
        kept = packed.teacher if isinstance(packed, Taught) else None
        wanted: Any = kept
        theirs: tuple[Tensor, ...] = ()
        if self.teacher is not None and (kept is None or w.states_weight):
            with torch.no_grad(), self.device.autocast():
                found, theirs = _run(self.teacher, packed, bool(w.states_weight))
            wanted = found if kept is None else kept
        if wanted is None:
            return loss
        if w.logits_weight:
            loss = loss + w.logits_weight * self.task.distillation_loss(output, wanted, packed, w.temperature)
        if w.states_weight:
            loss = loss + w.states_weight * packed.divisor * self._states_loss(states, theirs, packed)
        return loss

    def _states_loss(self, states: tuple[Tensor, ...], theirs: tuple[Tensor, ...], packed: Packed[Any]) -> Tensor:
        """The mean squared difference of states; of l layers, state i goes with the teacher's round(i·L/l)."""
        places = [round(i * (len(theirs) - 1) / (len(states) - 1)) for i in range(len(states))]
        wanted = [self._view.of(theirs[p]) for p in places]
        real = packed.real_tokens()
        return torch.stack([_mean_square(state.float(), one, real) for state, one in zip(states, wanted)]).mean()


def _mean_square(x: Tensor, y: Tensor, real: Tensor | None) -> Tensor:
    """The mean of (x − y)², (T, h) each, over the tokens that are `real`, (T,); None: over all."""
    if real is None:
        return F.mse_loss(x, y)
    return torch.where(real[:, None], (x - y) ** 2, 0).sum() / (real.sum() * x.shape[1])


def _run(model: nn.Module, packed: Packed[Any], with_states: bool) -> tuple[Any, tuple[Tensor, ...]]:
    """The output of a batch and, if wanted, all states, embeddings first."""
    if not with_states:
        return model(packed), ()
    assert isinstance(model, Model)
    count = len(model.encoder.shape.layers) + 1
    states = model.encoder(packed, range(count))
    return model.read(model.head, [states[layer % count] for layer in model.head.reads], packed), states

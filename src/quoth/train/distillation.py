"""What gates and cut models learn from: the task's own loss, the logits of a teacher, its states.

    L = task · L_task + logits · τ² · KL(p_t ‖ p_s) + states · mean over layers and units of (s − scale · t[units])²

p = softmax(logits / τ) of teacher t and student s (Hinton et al. 2015): over the tokens of a window for spans, the mean
of start and end; over the classes for classes (one logit: the squared error); over the words for each masked token, as
`quoth.tasks.pretrain` counts it, and over "B follows A". The teacher is the unpruned model, or another that a recipe
names (`quoth.prune.teacher`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from quoth.encoder.axes import Alpha, Keep
from quoth.encoder.shape import Shape
from quoth.model.model import Model
from quoth.train.loop import task_loss
from quoth.windows.masked import NOTHING, Masked
from quoth.windows.packed import Packed


@dataclass(frozen=True)
class Blend:
    """How much each part of the loss counts, and the temperature τ of the logits."""

    task: float = 0.0
    logits: float = 1.0
    states: float = 0.0
    temperature: float = 1.0


@dataclass(frozen=True)
class View:
    """Where a cut model stands in the unpruned one.

    units: (h,) int64, the hidden units that it kept; scale: (h,), what folded gates have multiplied their states by
    """

    units: Tensor
    scale: Tensor

    @classmethod
    def whole(cls, shape: Shape) -> View:
        """Of a model that nothing was cut from."""
        return cls(torch.arange(shape.hidden), torch.ones(shape.hidden))

    def after(self, keep: Keep, alpha: Alpha | None) -> View:
        """The view of a model cut again; alpha: the gates folded into it, if any were."""
        if "h" not in keep:
            return self
        kept = keep["h"].cpu()
        scale = self.scale if alpha is None or "h" not in alpha else self.scale * alpha["h"].detach().float().cpu()
        return View(self.units[kept], scale[kept])

    def to(self, device: torch.device) -> View:
        """The same on another device."""
        return View(self.units.to(device), self.scale.to(device))

    def of(self, state: Tensor, gate: Tensor | None = None) -> Tensor:
        """What the model should have in place of a state of the unpruned one: (T, h of the teacher) → (T, h).

        gate: (h,), α_h, where it is gated: states are multiplied by it
        """
        scale = self.scale if gate is None else self.scale * gate.detach()
        return state.index_select(1, self.units).float() * scale


class Lesson:
    """The loss of a model on a batch, summed over its windows, as `task_loss` has it."""

    def __init__(self, blend: Blend, teacher: Model | None = None, view: View | None = None) -> None:
        """teacher: a model of its own, in evaluation mode; for logits and states alone.

        view: where the student stands in it; the same hidden units by default
        """
        self.blend = blend
        self.teacher = teacher if blend.logits or blend.states else None
        if self.teacher is not None:
            device = next(self.teacher.parameters()).device
            self._view = (view or View.whole(self.teacher.encoder.shape)).to(device)

    def __call__(
        self,
        model: Model,
        packed: Packed[Tensor],
        answers: Tensor,
        cast: AbstractContextManager[Any],
        gate: Tensor | None = None,
    ) -> Tensor:
        """cast: the autocast context that model and teacher run in; the loss itself is in fp32.

        gate: (h,), α_h of a gated model
        """
        blend = self.blend
        with cast:
            found, states = _run(model, packed, bool(blend.states))
        loss = torch.zeros((), device=packed.ids.device)
        if blend.task:
            loss = loss + blend.task * task_loss(found, packed, answers)
        if self.teacher is None:
            return loss
        with torch.no_grad(), cast:
            wanted, theirs = _run(self.teacher, packed, bool(blend.states))
        if blend.logits:
            loss = loss + blend.logits * soft_loss(found, wanted, packed, blend.temperature)
        if blend.states:
            loss = loss + blend.states * len(packed.lengths) * self._apart(states, theirs, gate)
        return loss

    def _apart(self, states: tuple[Tensor, ...], theirs: tuple[Tensor, ...], gate: Tensor | None) -> Tensor:
        """The mean squared difference of states; of l layers, state i goes with the teacher's round(i·L/l)."""
        places = [round(i * (len(theirs) - 1) / (len(states) - 1)) for i in range(len(states))]
        parts = [F.mse_loss(state.float(), self._view.of(theirs[p], gate)) for state, p in zip(states, places)]
        return torch.stack(parts).mean()


def _run(model: Model, packed: Packed[Tensor], with_states: bool) -> tuple[Any, tuple[Tensor, ...]]:
    """The logits of a batch and, if wanted, all states, embeddings first."""
    if not with_states:
        return model(packed), ()
    count = len(model.encoder.shape.layers) + 1
    states = model.encoder(packed, range(count))
    return model.read(model.head, [states[layer % count] for layer in model.head.reads], packed), states


def soft_loss(found: Any, wanted: Any, packed: Packed[Tensor], temperature: float = 1.0) -> Tensor:
    """τ² · KL(teacher ‖ student), summed over windows. found, wanted: logits as a head gives them."""
    if isinstance(packed, Masked):
        real = packed.targets != NOTHING
        loss = packed.weight * _kl(found[0], wanted[0], temperature)[real].sum()
        return loss if found[1] is None else loss + _kl(found[1], wanted[1], temperature).sum()
    if isinstance(found, tuple):  # a span: the mean of start and end
        ours, theirs = (_over_windows(logits, packed, temperature) for logits in (found, wanted))
        return temperature**2 * (theirs.exp() * (theirs - ours)).sum() / 2
    if found.shape[1] == 1:
        return F.mse_loss(found.float(), wanted.float(), reduction="sum")
    return _kl(found, wanted, temperature).sum()


def _kl(found: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """τ² · KL of each row: (n, classes) twice → (n,)."""
    ours, theirs = (F.log_softmax(logits.float() / temperature, 1) for logits in (found, wanted))
    return temperature**2 * (theirs.exp() * (theirs - ours)).sum(1)


def _over_windows(logits: tuple[Tensor, Tensor], packed: Packed[Tensor], temperature: float) -> Tensor:
    """Start and end as log-probabilities over the tokens of each window. (T,) twice → (2, T)."""
    both = torch.stack(logits).float() / temperature
    window = torch.repeat_interleave(packed.starts.diff(), output_size=packed.tokens)
    place = packed.positions.long()
    table = both.new_full((2, len(packed.lengths), packed.longest), float("-inf"))
    table[:, window, place] = both
    return table.log_softmax(-1)[:, window, place]

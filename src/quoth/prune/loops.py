"""The two loops of Algorithm 1: `GateLoop` trains α alone, `RecoveryLoop` the weights of a model that was cut.

Both are driven by `quoth.train`'s `Harness`: every step is a function of (what learns, moments, seed, number of the
step), so a run that was interrupted goes on exactly where it stopped.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from quoth.encoder.device import CPU_TOKENS, CUDA_TOKENS, choose
from quoth.model.model import Model
from quoth.prune.gates import gated
from quoth.prune.penalty import L0, L1
from quoth.prune.recipe import GateSettings
from quoth.tasks.masking import MaskedFeed
from quoth.tasks.span_data import Feed
from quoth.train.distillation import Lesson
from quoth.train.loop import Loop, batch_at, make_batches, precision_of, seed_of, task_loss
from quoth.train.optimiser import make_optimiser, rate_at
from quoth.train.settings import Optimisation
from quoth.windows.batches import by_length
from quoth.windows.packed import Packed


class GateLoop:
    """Trains α on a lesson; the weights are fixed and dropout is off.

    step: how many steps are done; steps: of how many; windows: how many windows were learnt from
    """

    def __init__(
        self,
        model: Model,
        penalty: L1 | L0,
        lesson: Lesson,
        feed: Feed | MaskedFeed,
        settings: GateSettings,
        seed: int,
        accelerator: Accelerator,
    ) -> None:
        device = accelerator.device
        self.model = model.to(device).eval().requires_grad_(False)
        self.penalty = penalty.to(device)
        self.lesson = lesson
        self.feed = feed
        self.settings = settings.optimisation()
        self.seed = seed
        self.accelerator = accelerator
        self.batches = make_batches(feed.lengths, self.settings, seed, 1)
        self.steps_an_epoch = self.batches.count()
        self.steps = settings.steps
        self.step = 0
        self.windows = 0
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)  # since the last `take_losses`
        self.loss_steps = 0
        self.optimiser = make_optimiser(penalty.named_parameters(), self.settings)
        self.half = choose(str(device), precision_of(self.settings))[1]

    def step_at(self, epochs: float) -> int:
        """The number of steps after which so many epochs are done: at least 1."""
        return max(1, round(epochs * self.steps_an_epoch))

    @property
    def epoch(self) -> float:
        """How many epochs are done."""
        return self.step / self.steps_an_epoch

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return rate_at(max(0, self.step - 1), self.steps, self.settings)

    def advance(self) -> None:
        """One step: the loss with the gates in place, the penalty, AdamW on α, the threshold."""
        indices = self.batches.batch(*divmod(self.step, self.steps_an_epoch))
        packed, answers = batch_at(self.feed, indices, self.step)
        torch.manual_seed(seed_of(self.seed, self.step))
        alpha = self.penalty.alpha()
        with gated(self.model, alpha):
            cast = autocast(packed, self.half)
            loss = self.lesson(self.model, packed, answers, cast, alpha.get("h")) / len(indices)
        (loss + self.penalty.loss()).backward()
        rate = rate_at(self.step, self.steps, self.settings)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.penalty.settle(rate)
        self.loss_sum += loss.detach()
        self.step += 1
        self.loss_steps += 1
        self.windows += len(indices)

    def take_losses(self) -> dict[str, float]:
        """The mean loss a window since the last time, without the penalty; waits for the device."""
        value = float(self.loss_sum) / max(1, self.loss_steps)
        self.loss_sum.zero_()
        self.loss_steps = 0
        return {"loss": value}

    def learning(self) -> list[tuple[str, nn.Parameter, torch.optim.Optimizer]]:
        """What learns: name, parameter, and the optimiser that holds its moments."""
        return [(name, value, self.optimiser) for name, value in self.penalty.named_parameters()]


class RecoveryLoop(Loop):
    """`quoth.train`'s loop on a lesson in place of the task's loss alone."""

    def __init__(
        self,
        model: Model,
        lesson: Lesson,
        feed: Feed | MaskedFeed,
        settings: Optimisation,
        seed: int,
        accelerator: Accelerator,
    ) -> None:
        super().__init__(model, feed, settings, seed, accelerator)
        self.lesson = lesson

    def _loss(self, indices: np.ndarray) -> Tensor:
        packed, answers = batch_at(self.feed, indices, self.step)
        return self.lesson(self.model, packed, answers, autocast(packed, self.half))


def autocast(packed: Packed[Tensor], half: bool) -> Any:
    """Mixed precision, where it is on."""
    return torch.autocast(packed.ids.device.type, torch.bfloat16) if half else nullcontext()


@torch.no_grad()
def mean_loss(model: Model, feed: Feed | MaskedFeed, half: bool) -> float:
    """The task's loss a window over all windows of a feed, dropout off."""
    training = model.training
    model.eval()
    total = 0.0
    tokens = CUDA_TOKENS if next(model.parameters()).is_cuda else CPU_TOKENS
    for indices in by_length(feed.lengths, max(tokens, int(feed.lengths.max()))):
        packed, answers = batch_at(feed, indices, 0)
        with autocast(packed, half):
            found = model(packed)
        total += float(task_loss(found, packed, answers))
    model.train(training)
    return total / len(feed.lengths)

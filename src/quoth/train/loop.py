"""`Loop`: the steps of any objective, each a function of (weights, moments, seed, number of the step).

The order of the windows and the seed of dropout are computed from the number of the step, never drawn from a state, so
that nothing but weights and moments has to be kept for a run to resume exactly where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from quoth.errors import QuothError
from quoth.train.optimiser import learning_rate_at, make_optimiser
from quoth.train.settings import OptimiserSettings
from quoth.windows import Batches

BATCH_TOKENS = 8192  # a step, where the recipe names neither tokens nor windows


@dataclass(frozen=True)
class Group:
    """Parameters that are trained by the same settings, whose gradients are clipped together and whose loss is logged.

    Groups with equal settings share an optimiser, which moves them by a few kernels: AdamW moves each number by its own
    gradient and moments alone.
    """

    name: str
    parameters: dict[str, nn.Parameter]
    settings: OptimiserSettings


class Objective(Protocol):
    """What a step minimises: fine-tuning, frozen heads, gates, distillation, head warm-up."""

    @property
    def groups(self) -> Sequence[Group]:
        """What is trained."""

    def backward(self, indices: np.ndarray, step: int) -> Tensor:
        """Compute the gradients of a step on these windows. Returns the loss a window of each group, (groups,)."""

    def after_step(self, learning_rate: float) -> None:
        """What is done after the optimiser's step at this learning rate."""


class Loop:
    """An objective, the order of its windows, and its optimisers.

    step: how many steps are done; steps: of how many; steps_per_epoch
    windows: how many windows were trained on since the loop began
    """

    def __init__(
        self,
        objective: Objective,
        lengths: np.ndarray,
        settings: OptimiserSettings,
        seed: int,
        accelerator: Accelerator,
        steps: int | None = None,
    ) -> None:
        """lengths: tokens of each window; steps: how many, by default as many as `settings.epochs` are."""
        self.objective = objective
        self.settings = settings
        self.accelerator = accelerator
        self.batches = make_batches(lengths, settings, seed, accelerator.num_processes)
        self.steps_per_epoch = self.batches.count()
        self.steps = steps if steps is not None else self.step_at(settings.epochs) if settings.epochs else 0
        self.step = self.windows = self.loss_steps = 0
        self.loss_sum = torch.zeros(len(objective.groups), dtype=torch.float64, device=accelerator.device)
        self._optimisers = _optimisers(objective.groups)

    def step_at(self, epochs: float) -> int:
        """The number of steps after which so many epochs are done: at least 1."""
        return max(1, round(epochs * self.steps_per_epoch))

    @property
    def epoch(self) -> float:
        """How many epochs are done."""
        return self.step / self.steps_per_epoch

    @property
    def learning_rate(self) -> float:
        """The learning rate of the last step, by the settings of the whole."""
        return learning_rate_at(max(0, self.step - 1), self.steps, self.settings)

    def advance(self) -> None:
        """One step: forward, loss, backward, clipping, AdamW."""
        indices = self.batches.batch(*divmod(self.step, self.steps_per_epoch))
        self.loss_sum += self.objective.backward(indices, self.step)
        for group in self.objective.groups:
            if group.settings.max_grad_norm:
                nn.utils.clip_grad_norm_(group.parameters.values(), group.settings.max_grad_norm)
        for settings, optimiser, _ in self._optimisers:
            for group_settings in optimiser.param_groups:
                group_settings["lr"] = learning_rate_at(self.step, self.steps, settings)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.objective.after_step(learning_rate_at(self.step, self.steps, self.settings))
        self.step += 1
        self.loss_steps += 1
        self.windows += len(indices)

    def take_losses(self) -> dict[str, float]:
        """The mean loss a window of each group since the last time, over all processes; waits for the device."""
        total: Any = self.accelerator.reduce(self.loss_sum, "sum")
        means = (np.asarray(total.cpu()) / max(1, self.loss_steps)).tolist()
        self.loss_sum.zero_()
        self.loss_steps = 0
        return {group.name: mean for group, mean in zip(self.objective.groups, means)}

    def trained(self) -> list[tuple[str, nn.Parameter, torch.optim.Optimizer]]:
        """What is trained: name, parameter, and the optimiser that holds its moments."""
        return [
            (name, value, optimiser)
            for _, optimiser, groups in self._optimisers
            for group in groups
            for name, value in group.parameters.items()
        ]


def _optimisers(groups: Sequence[Group]) -> list[tuple[OptimiserSettings, torch.optim.Optimizer, list[Group]]]:
    """One optimiser for all groups with equal settings."""
    together: list[tuple[OptimiserSettings, list[Group]]] = []
    for group in groups:
        same = next((found for settings, found in together if settings == group.settings), None)
        if same is None:
            together.append((group.settings, [group]))
        else:
            same.append(group)
    return [
        (settings, make_optimiser((value for group in found for value in group.parameters.values()), settings), found)
        for settings, found in together
    ]


def make_batches(lengths: np.ndarray, settings: OptimiserSettings, seed: int, processes: int) -> Batches:
    """The batches of all processes together, one a step."""
    accumulate = settings.gradient_accumulation_steps
    if settings.batch_size is not None:
        batches = Batches(lengths, seed=seed, batch_size=settings.batch_size)
    else:
        batches = Batches(lengths, settings.batch_tokens or BATCH_TOKENS, seed)
    least, shares = len(lengths) // batches.count(), processes * accumulate
    if least < shares:
        raise QuothError(
            f"a step has {least} windows, too few for {processes} process(es) in {accumulate} part(s) each; "
            "make steps larger (batch_tokens or batch_size) or lower gradient_accumulation_steps"
        )
    return batches

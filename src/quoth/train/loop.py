"""`Loop`: the steps of any objective, each a function of (weights, moments, seed, number of the step).

The order of the windows and the seed of dropout are computed from the number of the step, never drawn from a state, so
that nothing but weights and moments has to be kept for a run to resume exactly where it stopped. On a GPU a whole step
is captured as a CUDA graph (`quoth.train.graphs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from quoth.errors import QuothError
from quoth.tasks.examples import Batches as Feed
from quoth.tasks.examples import Request
from quoth.train.graphs import Stage, StepGraphs, choose_sizes, run_stages, size_of
from quoth.train.optimiser import learning_rate_at, make_optimiser, set_learning_rate
from quoth.train.settings import OptimiserSettings
from quoth.windows import Batches
from quoth.windows.packed import Size

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
    """What a step minimises: fine-tuning, frozen heads, gates, distillation, head warm-up.

    A step has one stage or several, each with a seed of its own.
    """

    feed: Feed

    @property
    def groups(self) -> Sequence[Group]:
        """What is trained."""

    def why_no_graphs(self) -> str | None:
        """Why a step cannot be captured as CUDA graphs; None if it can."""

    def requests(self, indices: np.ndarray, step: int, size: Size | None) -> list[Request]:
        """What the device must know of these windows at this step; size: what the batch is brought to, if it is."""

    def seeds(self, step: int) -> list[int | None]:
        """The seed of each stage at this step; None where nothing is drawn."""

    def stages(self, requests: Sequence[Request], windows: int) -> Sequence[Callable[[], Tensor]]:
        """Functions that compute the gradients of a step, one after the other.

        requests: now on the device, where a graph finds other numbers at every step; windows: how many the step has
        Each returns the loss a window of every group, (groups,), 0 for those of the other stages.
        """

    def after_step(self, learning_rate: float | Tensor) -> None:
        """What is done after the optimiser's step at this learning rate."""


class Loop:
    """An objective, the order of its windows, and its optimisers.

    step: how many steps are done; steps: of how many; steps_per_epoch
    windows: how many windows were trained on since the loop began
    graphs: the steps as CUDA graphs, or None; why_no_graphs: on a GPU the reason for that, if there is one to tell
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
        self.why_no_graphs = self._why_no_graphs()
        wanted = settings.compile == "graphs" and accelerator.device.type == "cuda"
        self.graphs = StepGraphs(accelerator.device) if wanted and not self.why_no_graphs else None
        self._sizes = choose_sizes(self.batches) if self.graphs else ()
        self._optimisers = _optimisers(objective.groups, on_device=self.graphs is not None)
        self._learning_rate: float | Tensor = 0.0
        if self.graphs is not None:
            self._learning_rate = torch.zeros((), device=accelerator.device)

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
        size = size_of(self.batches.lengths[indices], self._sizes) if self.graphs else None
        requests, seeds = self.objective.requests(indices, self.step, size), self.objective.seeds(self.step)
        self._set_learning_rates()
        if self.graphs is not None:
            self.graphs.run(requests, seeds, lambda sent: self._stages(sent, len(indices)))
            self.why_no_graphs = self.graphs.failure
        else:
            device = self.accelerator.device
            run_stages(self._stages([request.to(device) for request in requests], len(indices)), seeds)
        self.step += 1
        self.loss_steps += 1
        self.windows += len(indices)

    def _stages(self, requests: Sequence[Request], windows: int) -> list[Stage]:
        """The stages of a whole step: those of the objective; with the last one clipping and AdamW.

        A step begins without gradients: a capture that fails in the middle leaves some that were never computed.
        """
        self._clear_gradients()

        def run(stage: Callable[[], Tensor], last: bool) -> None:
            self.loss_sum += stage()
            if last:
                self._update()

        stages = self.objective.stages(requests, windows)
        return [partial(run, stage, number == len(stages) - 1) for number, stage in enumerate(stages)]

    def _update(self) -> None:
        """Clip the gradients and move the parameters."""
        for group in self.objective.groups:
            if group.settings.max_grad_norm:
                nn.utils.clip_grad_norm_(group.parameters.values(), group.settings.max_grad_norm)
        for _, optimiser, _ in self._optimisers:
            optimiser.step()
        self._clear_gradients()
        self.objective.after_step(self._learning_rate)

    def _clear_gradients(self) -> None:
        for _, optimiser, _ in self._optimisers:
            optimiser.zero_grad(set_to_none=True)

    def _set_learning_rates(self) -> None:
        for settings, optimiser, _ in self._optimisers:
            set_learning_rate(optimiser, learning_rate_at(self.step, self.steps, settings))
        value = learning_rate_at(self.step, self.steps, self.settings)
        if isinstance(self._learning_rate, Tensor):
            self._learning_rate.fill_(value)
        else:
            self._learning_rate = value

    def _why_no_graphs(self) -> str | None:
        if self.settings.compile == "off" or self.accelerator.device.type != "cuda":
            return None  # nobody has asked for them
        if self.accelerator.num_processes > 1:
            return "they are for one process"
        if self.settings.gradient_accumulation_steps > 1:
            return "they do not go with gradient_accumulation_steps"
        return self.objective.why_no_graphs()

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


def _optimisers(
    groups: Sequence[Group], *, on_device: bool
) -> list[tuple[OptimiserSettings, torch.optim.Optimizer, list[Group]]]:
    """One optimiser for all groups with equal settings."""
    together: list[tuple[OptimiserSettings, list[Group]]] = []
    for group in groups:
        same = next((found for settings, found in together if settings == group.settings), None)
        if same is None:
            together.append((group.settings, [group]))
        else:
            same.append(group)
    return [
        (settings, make_optimiser(_values(found), settings, on_device=on_device), found) for settings, found in together
    ]


def _values(groups: Sequence[Group]) -> list[nn.Parameter]:
    return [value for group in groups for value in group.parameters.values()]


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

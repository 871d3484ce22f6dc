"""Many heads on the states of one frozen encoder (BERTVision): a pass of the encoder a step, whatever their number.

The authors stored the states, 2.6 TB, and spent five hours an epoch on each head. Here nothing is stored: every head
that a recipe names learns from the states of the batch at hand, and they are freed with it. A head has its own loss,
optimiser, schedule and dropout, so what it becomes does not depend on which others learn beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from quoth.encoder.device import choose
from quoth.encoder.shape import Shape
from quoth.errors import QuothError
from quoth.heads import build_head
from quoth.heads.step import stack
from quoth.model.model import Model
from quoth.tasks.span_data import Feed
from quoth.train.cache import TRAINING, Cache
from quoth.train.loop import make_batches, seed_of, task_loss
from quoth.train.optimiser import make_optimiser, rate_at
from quoth.train.settings import Frozen
from quoth.windows.packed import Packed


@dataclass(frozen=True)
class Learner:
    """A head, and how it learns. draws: whether it has dropout, and so needs a seed for every step."""

    name: str
    head: Any
    settings: Frozen
    draws: bool

    @property
    def parameters(self) -> int:
        """How many parameters the head has."""
        return sum(value.numel() for value in self.head.parameters())


def make_heads(frozen: Frozen, shape: Shape, seed: int) -> dict[str, Any]:
    """The heads of a recipe, each drawn from the seed and its own name."""
    made = {}
    for name, (description, _) in frozen.each().items():
        torch.manual_seed(seed_of(seed, crc32(name.encode())))
        try:
            made[name] = build_head(description, shape.hidden, len(shape.layers))
        except QuothError as error:
            raise QuothError(f"recipe: frozen.heads.{name}: {error}") from None
    return made


def make_learners(frozen: Frozen, model: Model, seed: int, device: torch.device) -> list[Learner]:
    """The heads of a recipe, ready to learn on the states of a model."""
    settings = {name: own for name, (_, own) in frozen.each().items()}
    made = []
    for name, head in make_heads(frozen, model.encoder.shape, seed).items():
        if head.pooled and model.pooler is None:
            raise QuothError(f"recipe: frozen.heads.{name} reads a pooler, which {model.origin.source} does not have")
        draws = any(getattr(module, "dropout", 0.0) for module in head.modules())
        made.append(Learner(name, head.to(device), settings[name], draws))
    return made


def make_optimisers(learners: Sequence[Learner]) -> list[tuple[Frozen, torch.optim.Optimizer, list[Learner]]]:
    """Heads that learn by the same settings share an optimiser, which moves them all by a few kernels.

    AdamW moves each number by its own gradient and moments alone, so none learns from another.
    """
    together: dict[str, list[Learner]] = {}
    for learner in learners:
        together.setdefault(repr(replace(learner.settings, heads={})), []).append(learner)
    made: list[tuple[Frozen, torch.optim.Optimizer, list[Learner]]] = []
    for group in together.values():
        named = [item for learner in group for item in learner.head.named_parameters(learner.name)]
        made.append((group[0].settings, make_optimiser(named, group[0].settings), group))
    return made


class Shared:
    """One pass of an encoder for several heads: the states that any of them reads, each given its own."""

    def __init__(self, model: Model, heads: Sequence[Any]) -> None:
        self.model = model
        count = len(model.encoder.shape.layers) + 1
        reads = [tuple(layer % count for layer in head.reads) for head in heads]
        self.layers = tuple(sorted({layer for wanted in reads for layer in wanted}))
        self._places = [_as_slice([self.layers.index(layer) for layer in wanted]) for wanted in reads]
        self.heads = heads

    def states(self, packed: Packed[Tensor]) -> Tensor:
        """The states of a batch at `layers`, (layers, T, h), in memory token by token; no graph is built."""
        with torch.no_grad():
            return stack(self.model.encoder(packed, self.layers))

    def logits(self, which: int, states: Tensor, packed: Packed[Tensor]) -> Any:
        """What one of the heads makes of them."""
        own = states[self._places[which]]
        if len(own) < len(states) and not states.is_cuda:
            own = stack(own.unbind())  # as the head would have them alone, to the last bit; a GPU spares the copy
        return self.model.read(self.heads[which], own, packed)


def _as_slice(places: list[int]) -> slice | list[int]:
    """Places in a row as a slice, of which a view is enough; others stay a list."""
    row = range(places[0], places[0] + len(places))
    return slice(row.start, row.stop) if places == list(row) else places


class FrozenLoop:
    """The steps of all heads of a stage; `Loop` is its like for one model."""

    def __init__(
        self, model: Model, feed: Feed, frozen: Frozen, seed: int, accelerator: Accelerator, precision: str | None
    ) -> None:
        self.model = model.to(accelerator.device).eval().requires_grad_(False)
        self.feed = feed
        self.frozen = frozen
        self.seed = seed
        self.accelerator = accelerator
        self.learners = make_learners(frozen, self.model, seed, accelerator.device)
        self.optimisers = make_optimisers(self.learners)
        self.shared = Shared(self.model, [learner.head for learner in self.learners])
        self.batches = make_batches(feed.lengths, frozen, seed, accelerator.num_processes)
        self.steps_an_epoch = self.batches.count()
        self.steps = self.step_at(frozen.epochs)
        self.step = self.windows = self.loss_steps = 0
        self.loss_sum = torch.zeros(len(self.learners), dtype=torch.float64, device=accelerator.device)
        self.half = choose(str(accelerator.device), precision)[1]
        self.cache: Cache | None = None  # a stage may put one here, and the encoder then rests

    def step_at(self, epochs: float) -> int:
        """The number of steps after which so many epochs are done: at least 1."""
        return max(1, round(epochs * self.steps_an_epoch))

    @property
    def epoch(self) -> float:
        """How many epochs are done."""
        return self.step / self.steps_an_epoch

    @property
    def rate(self) -> float:
        """The learning rate that the stage names, at the last step."""
        return rate_at(max(0, self.step - 1), self.steps, self.frozen)

    def advance(self) -> None:
        """One pass of the encoder, one step of every head."""
        indices = self.batches.batch(*divmod(self.step, self.steps_an_epoch))
        processes, rank = self.accelerator.num_processes, self.accelerator.process_index
        packed, answers, states = self._batch(indices[rank::processes])
        losses = []
        for number, learner in enumerate(self.learners):
            if learner.draws:
                torch.manual_seed(seed_of(self.seed, self.step, rank, crc32(learner.name.encode())))
            if not learner.head.training:  # an evaluation came between
                learner.head.train()
            with self.cast(packed):
                found = self.shared.logits(number, states, packed)
            loss = task_loss(found, packed, answers) / len(indices)
            loss.backward()  # of one head at a time: what it kept is freed before the next
            losses.append(loss.detach())
            self._settle(learner)
        self.loss_sum += torch.stack(losses)
        for settings, optimiser, _ in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate_at(self.step, self.steps, settings)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.step += 1
        self.loss_steps += 1
        self.windows += len(indices)

    def _batch(self, indices: np.ndarray) -> tuple[Packed[Tensor], Tensor, Tensor]:
        """A batch of these windows, their answers, and their states: from one pass of the encoder, or cached."""
        packed, answers = self.feed.batch(indices)
        if self.cache is not None:
            first, states = self.cache.batch(TRAINING, indices, self.shared.layers)
            return first, answers, states
        with self.cast(packed):
            return packed, answers, self.shared.states(packed)

    def _settle(self, learner: Learner) -> None:
        """The gradients of a head, over all processes and within its limit."""
        if self.accelerator.num_processes == 1 and not learner.settings.clip:
            return
        values = [value for value in learner.head.parameters() if value.grad is not None]
        if self.accelerator.num_processes > 1:
            for value in values:
                value.grad = self.accelerator.reduce(value.grad, "sum")
        if learner.settings.clip:
            nn.utils.clip_grad_norm_(values, learner.settings.clip)

    def cast(self, packed: Packed[Tensor]) -> Any:
        """Mixed precision, where it is on."""
        return torch.autocast(packed.ids.device.type, torch.bfloat16) if self.half else nullcontext()

    def take_losses(self) -> dict[str, float]:
        """The mean loss of each head since the last time; waits for the device."""
        total: Any = self.accelerator.reduce(self.loss_sum, "sum")
        means = (np.asarray(total.cpu()) / max(1, self.loss_steps)).tolist()
        self.loss_sum.zero_()
        self.loss_steps = 0
        return {learner.name: mean for learner, mean in zip(self.learners, means)}

    def learning(self) -> list[tuple[str, nn.Parameter, torch.optim.Optimizer]]:
        """What learns: name, parameter, and the optimiser that holds its moments."""
        return [
            (f"{learner.name}/{name}", value, optimiser)
            for _, optimiser, group in self.optimisers
            for learner in group
            for name, value in learner.head.named_parameters()
        ]

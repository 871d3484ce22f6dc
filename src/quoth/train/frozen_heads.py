"""Many heads on the states of one frozen encoder (BERTVision): one pass of the encoder a step, whatever their number.

The authors stored the states, 2.6 TB, and spent five hours an epoch on each head. Here nothing is stored: every head
that a recipe names is trained on the states of the batch at hand, and they are freed with it. A head has its own loss,
optimiser, schedule and dropout, so what it becomes does not depend on which others are trained beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from quoth.encoder import Device, Shape
from quoth.errors import QuothError
from quoth.heads import build_head
from quoth.heads.step import stack
from quoth.model import Model
from quoth.tasks import Task
from quoth.tasks.examples import Batches
from quoth.tasks.seeds import seed_of
from quoth.train.cache import TRAINING, Cache
from quoth.train.loop import Group
from quoth.train.settings import Frozen
from quoth.windows import Packed


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


class FrozenHeads:
    """The objective of all heads of a stage, a group each. heads: by name."""

    def __init__(
        self,
        model: Model,
        task: Task,
        feed: Batches,
        frozen: Frozen,
        seed: int,
        accelerator: Accelerator,
        device: Device,
    ) -> None:
        self.model = model.to(device.place).eval().requires_grad_(False)
        self.task, self.feed, self.frozen, self.seed = task, feed, frozen, seed
        self.accelerator, self.device = accelerator, device
        self.heads = {
            name: head.to(device.place) for name, head in make_heads(frozen, model.encoder.shape, seed).items()
        }
        for name, head in self.heads.items():
            if head.pooled and model.pooler is None:
                source = model.origin.source
                raise QuothError(f"recipe: frozen.heads.{name} reads a pooler, which {source} does not have")
        self.groups = [
            Group(name, {f"{name}/{key}": value for key, value in self.heads[name].named_parameters()}, settings)
            for name, (_, settings) in frozen.each().items()
        ]
        self.shared = Shared(self.model, list(self.heads.values()))
        self._draws = [any(getattr(part, "dropout", 0.0) for part in head.modules()) for head in self.heads.values()]
        self.cache: Cache | None = None  # a stage may put one here, and the encoder is not run

    def backward(self, indices: np.ndarray, step: int) -> Tensor:
        """One pass of the encoder; the gradients of every head."""
        processes, rank = self.accelerator.num_processes, self.accelerator.process_index
        packed, labels, states = self._batch(indices[rank::processes], step)
        losses = []
        for number, (name, head) in enumerate(self.heads.items()):
            if self._draws[number]:  # a head with dropout needs a seed for every step
                torch.manual_seed(seed_of(self.seed, step, rank, crc32(name.encode())))
            if not head.training:  # after an evaluation
                head.train()
            with self.device.autocast():
                output = self.shared.logits(number, states, packed)
            loss = self.task.loss(output, packed, labels) / len(indices)
            loss.backward()  # of one head at a time: what it kept is freed before the next
            losses.append(loss.detach())
        if processes > 1:
            for group in self.groups:
                for value in group.parameters.values():
                    value.grad = None if value.grad is None else self.accelerator.reduce(value.grad, "sum")
        return torch.stack(losses)

    def after_step(self, learning_rate: float) -> None:
        """Nothing."""

    def _batch(self, indices: np.ndarray, step: int) -> tuple[Packed[Any], Tensor, Tensor]:
        """A batch of these windows, their labels, and their states: from one pass of the encoder, or cached."""
        packed, labels = self.feed.batch(indices, step)
        if self.cache is not None:
            first, states = self.cache.batch(TRAINING, indices, self.shared.layers)
            return first, labels, states
        with self.device.autocast():
            return packed, labels, self.shared.states(packed)

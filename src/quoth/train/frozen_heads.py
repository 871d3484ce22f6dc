"""Many heads on the states of one frozen encoder (BERTVision): one pass of the encoder a step, whatever their number.

The authors stored the states, 2.6 TB, and spent five hours an epoch on each head. Here nothing is stored: every head
that a recipe names is trained on the states of the batch at hand, and they are freed with it. A head has its own loss,
optimiser, schedule and dropout, so what it becomes does not depend on which others are trained beside it: on a CPU to
the bit; on a GPU, where heads share their first matrix products (`quoth.heads.shared`), up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from quoth.encoder import Device, Shape
from quoth.errors import QuothError
from quoth.heads import Chain, build_head
from quoth.heads.shared import Together
from quoth.heads.step import fusable, stack
from quoth.model import Model
from quoth.tasks import Task
from quoth.tasks.examples import Batches, Request
from quoth.tasks.seeds import seed_of
from quoth.train.cache import TRAINING, Cache
from quoth.train.graphs import why_not
from quoth.train.loop import Group
from quoth.train.settings import Frozen
from quoth.windows import Packed
from quoth.windows.packed import Size


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

    def together(self, states: Tensor) -> Together | None:
        """What several heads compute of the states at once; None where each does it for itself."""
        return Together(self.heads, self._places, states) if fusable(states) else None

    def logits(self, which: int, states: Tensor, packed: Packed[Tensor], together: Together | None = None) -> Any:
        """What one of the heads makes of them."""
        own = states[self._places[which]]
        if len(own) < len(states) and not states.is_cuda:
            own = stack(own.unbind())  # as the head would have them alone, to the last bit; a GPU spares the copy
        head = self.heads[which]
        if together is not None and isinstance(head, Chain) and head.task == "span":
            return head(own, packed, together.given)
        return self.model.read(head, own, packed)


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
        draws = [any(getattr(part, "dropout", 0.0) for part in head.modules()) for head in self.heads.values()]
        self._drawing = [number for number, drawn in enumerate(draws) if drawn]
        self._others = [number for number, drawn in enumerate(draws) if not drawn]
        self.cache: Cache | None = None  # a stage may put one here, and the encoder is not run

    def why_no_graphs(self) -> str | None:
        """As that of the model; cached states come from the host."""
        return "they do not go with cache_gb" if self.frozen.cache_gb else why_not(self.model, self.device)

    def requests(self, indices: np.ndarray, step: int, size: Size | None) -> list[Request]:
        """One; with a cache, the states of its windows are read now."""
        mine = indices[self.accelerator.process_index :: self.accelerator.num_processes]
        if self.cache is not None:
            self._cached = self.cache.batch(TRAINING, mine, self.shared.layers)
        return [self.feed.request(mine, step, size)]

    def seeds(self, step: int) -> list[int | None]:
        """A head with dropout is a stage of its own, whose seed depends on its name and not on the other heads."""
        rank, names = self.accelerator.process_index, list(self.heads)
        own = [seed_of(self.seed, step, rank, crc32(names[number].encode())) for number in self._drawing]
        return [None, *own]

    def stages(self, requests: Sequence[Request], windows: int) -> list[Callable[[], Tensor]]:
        """One pass of the encoder and the gradients of all heads without dropout; then each of the others."""
        made: list[Any] = []

        def first() -> Tensor:
            packed, labels, states = self._batch(requests[0])
            with self.device.autocast():
                made[:] = packed, labels, states, self.shared.together(states)
            return self._backward(self._others, made, windows)

        stages: list[Callable[[], Tensor]] = [first]
        stages += [partial(self._backward, [number], made, windows) for number in self._drawing]

        def last() -> Tensor:
            losses = stages[-1]()
            self._finish(made[3])
            made.clear()
            return losses

        return [*stages[:-1], last]

    def _backward(self, numbers: Sequence[int], made: Sequence[Any], windows: int) -> Tensor:
        """The gradients of these heads."""
        packed, labels, states, together = made
        heads, losses = list(self.heads.values()), torch.zeros(len(self.heads), device=labels.device)
        for number in numbers:
            if not heads[number].training:  # after an evaluation
                heads[number].train()
            with self.device.autocast():
                output = self.shared.logits(number, states, packed, together)
            loss = self.task.loss(output, packed, labels) / (windows if packed.count is None else packed.count)
            loss.backward()  # of one head at a time: what it kept is freed before the next
            losses[number] = loss.detach()
        return losses

    def _finish(self, together: Together | None) -> None:
        """The gradients of what the heads computed together, then those of all processes."""
        if together is not None:
            together.backward()
        if self.accelerator.num_processes > 1:
            for value in (value for group in self.groups for value in group.parameters.values()):
                value.grad = None if value.grad is None else self.accelerator.reduce(value.grad, "sum")

    def after_step(self, learning_rate: float | Tensor) -> None:
        """Nothing."""

    def _batch(self, request: Request) -> tuple[Packed[Any], Tensor, Tensor]:
        """A batch, its labels, and its states: from one pass of the encoder, or cached."""
        packed, labels = self.feed.gather(request)
        if self.cache is not None:
            first, states = self._cached
            return first, labels, states
        with self.device.autocast():
            return packed, labels, self.shared.states(packed)

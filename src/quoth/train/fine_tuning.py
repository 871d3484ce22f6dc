"""`FineTuning`: train a model's weights on its task's loss, or on another loss such as distillation's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch import Tensor

from quoth.encoder import Device, Encoder
from quoth.encoder.attention import Attention
from quoth.encoder.encoder import Embeddings, Layer
from quoth.model import Model
from quoth.tasks import Task
from quoth.tasks.examples import Batches, Request
from quoth.tasks.seeds import seed_of
from quoth.train.distillation import Distillation
from quoth.train.graphs import why_not
from quoth.train.loop import Group
from quoth.train.settings import Optimisation
from quoth.windows import Packed
from quoth.windows.packed import Size

Loss = Callable[[Packed[Any], Tensor], Tensor]
"""The loss of a batch and its labels, summed over windows."""


class FineTuning:
    """All trainable parameters of a model, in one group.

    loss: by default that of `distillation`, if it is given, or the task's own of the model's output
    """

    def __init__(
        self,
        model: Model,
        task: Task,
        feed: Batches,
        settings: Optimisation,
        seed: int,
        accelerator: Accelerator,
        loss: Loss | None = None,
        distillation: Distillation | None = None,
    ) -> None:
        self.model, self.task, self.feed = model, task, feed
        self.device = Device.choose(accelerator.device, settings.named_precision)
        self.accelerator, self.seed = accelerator, seed
        self.parts = settings.gradient_accumulation_steps
        trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self.groups = (Group("loss", trained, settings),)
        accelerator.ddp_handler = DistributedDataParallelKwargs(find_unused_parameters=_has_idle(model))
        self._prepared = accelerator.prepare_model(model)
        self._loss = loss or (partial(distillation, self._prepared) if distillation else self._task_loss)

    def why_no_graphs(self) -> str | None:
        """As that of the model."""
        return why_not(self.model, self.device)

    def requests(self, indices: np.ndarray, step: int, size: Size | None) -> list[Request]:
        """One for each part of the step."""
        mine = indices[self.accelerator.process_index :: self.accelerator.num_processes]
        return [self.feed.request(mine[part :: self.parts], step, size) for part in range(self.parts)]

    def seeds(self, step: int) -> list[int | None]:
        """Of dropout, in each part."""
        return [seed_of(self.seed, step, part, self.accelerator.process_index) for part in range(self.parts)]

    def stages(self, requests: Sequence[Request], windows: int) -> list[Callable[[], Tensor]]:
        """The gradients of a step, in as many parts as the settings want."""
        processes = self.accelerator.num_processes
        self.model.train()

        def backward(part: int) -> Tensor:
            last = part == self.parts - 1
            with nullcontext() if last else self.accelerator.no_sync(self._prepared):
                packed, labels = self.feed.gather(requests[part])
                loss = self._loss(packed, labels) / (windows if packed.count is None else packed.count)
                self.accelerator.backward(loss * processes)  # DDP takes the mean over processes; we want the sum
            return loss.detach()

        return [partial(backward, part) for part in range(self.parts)]

    def after_step(self, learning_rate: float | Tensor) -> None:
        """Nothing."""

    def _task_loss(self, packed: Packed[Any], labels: Tensor) -> Tensor:
        with self.device.autocast():
            output = self._prepared(packed)
        return self.task.loss(output, packed, labels)


def _has_idle(model: Model) -> bool:
    """Whether something trainable gets no gradient: a pooler, or layers, that the head does not read."""
    pooler = model.pooler is not None and model.pooler.weight.requires_grad and not model.head.pooled
    count = len(model.encoder.shape.layers)
    above = not model.encoder.shape.tied and max(layer % (count + 1) for layer in model.head.reads) < count
    return pooler or above


def set_dropout(model: Model, p: float) -> None:
    """Give every dropout of the encoder, in attention too, this probability."""
    style = replace(model.encoder.style, dropout=p, attention_dropout=p)
    for module in model.encoder.modules():
        if isinstance(module, Encoder | Embeddings | Layer):
            module.style = style
        elif isinstance(module, Attention):
            module.dropout = p

"""`Loop`: the steps of a training run, each a function of (weights, moments, seed, number of the step).

The order of the windows and the seed of dropout are computed from the number of the step, never drawn from a state, so
that nothing but weights and moments has to be kept for a run to go on exactly where it stopped.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch import Tensor, nn

from quoth.encoder.attention import Attention
from quoth.encoder.device import choose
from quoth.encoder.encoder import Embeddings, Encoder, Layer
from quoth.errors import QuothError
from quoth.model.model import Model
from quoth.tasks.classes import class_loss
from quoth.tasks.masking import MaskedFeed
from quoth.tasks.pretrain import pretrain_loss
from quoth.tasks.span_data import Feed, span_loss
from quoth.train.optimiser import make_optimiser, rate_at
from quoth.train.settings import Frozen, Optimisation
from quoth.windows.batches import Batches
from quoth.windows.masked import Masked
from quoth.windows.packed import Packed

TOKENS = 8192  # a step, where the recipe names neither tokens nor windows


class Loop:
    """A model, its examples in a fixed order, and its optimiser.

    step: how many steps are done; steps: of how many; steps_an_epoch
    windows: how many windows were learnt from since the loop began
    """

    def __init__(
        self, model: Model, feed: Feed | MaskedFeed, settings: Optimisation, seed: int, accelerator: Accelerator
    ) -> None:
        self.model = model
        self.feed = feed
        self.settings = settings
        self.seed = seed
        self.accelerator = accelerator
        self.batches = make_batches(feed.lengths, settings, seed, accelerator.num_processes)
        self.steps_an_epoch = self.batches.count()
        self.steps = self.step_at(settings.epochs) if settings.epochs else 0
        self.step = 0
        self.windows = 0
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=accelerator.device)  # since the last `take_loss`
        self.loss_steps = 0
        self.optimiser = make_optimiser(model.named_parameters(), settings)
        if settings.compile and accelerator.device.type == "cuda":
            for layer in model.encoder.layers:
                layer.compile(dynamic=True)
        self.half = choose(str(accelerator.device), precision_of(settings))[1]
        accelerator.ddp_handler = DistributedDataParallelKwargs(find_unused_parameters=_has_idle(model))
        self._prepared = accelerator.prepare_model(model)
        self._learning = [value for value in model.parameters() if value.requires_grad]

    def step_at(self, epochs: float) -> int:
        """The number of steps after which so many epochs are done: at least 1."""
        return max(1, round(epochs * self.steps_an_epoch))

    @property
    def epoch(self) -> float:
        """How many epochs are done."""
        return self.step / self.steps_an_epoch

    def advance(self) -> None:
        """One step: forward, loss, backward, clipping, AdamW."""
        indices = self.batches.batch(*divmod(self.step, self.steps_an_epoch))
        processes, rank = self.accelerator.num_processes, self.accelerator.process_index
        mine = indices[rank::processes]
        self.model.train()
        for part in range(self.settings.accumulate):
            torch.manual_seed(seed_of(self.seed, self.step, part, rank))
            last = part == self.settings.accumulate - 1
            with nullcontext() if last else self.accelerator.no_sync(self._prepared):
                loss = self._loss(mine[part :: self.settings.accumulate]) / len(indices)
                self.accelerator.backward(loss * processes)  # DDP takes the mean over processes; we want the sum
            self.loss_sum += loss.detach()
        if self.settings.clip:
            nn.utils.clip_grad_norm_(self._learning, self.settings.clip)
        for group in self.optimiser.param_groups:
            group["lr"] = rate_at(self.step, self.steps, self.settings)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.step += 1
        self.loss_steps += 1
        self.windows += len(indices)

    def _loss(self, indices: np.ndarray) -> Tensor:
        packed, answers = batch_at(self.feed, indices, self.step)
        cast: Any = torch.autocast(packed.ids.device.type, torch.bfloat16) if self.half else nullcontext()
        with cast:
            found = self._prepared(packed)
        return task_loss(found, packed, answers)

    def take_loss(self) -> float:
        """The mean loss a window since the last time, over all processes; waits for the device."""
        total: Any = self.accelerator.reduce(self.loss_sum, "sum")
        value = float(total) / max(1, self.loss_steps)
        self.loss_sum.zero_()
        self.loss_steps = 0
        return value

    def take_losses(self) -> dict[str, float]:
        """The same by name: a loop of many heads has as many losses."""
        return {"loss": self.take_loss()}

    def learning(self) -> list[tuple[str, nn.Parameter, torch.optim.Optimizer]]:
        """What learns: name, parameter, and the optimiser that holds its moments."""
        named = self.model.named_parameters()
        return [(name, value, self.optimiser) for name, value in named if value.requires_grad]

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return rate_at(max(0, self.step - 1), self.steps, self.settings)


def _has_idle(model: Model) -> bool:
    """Whether something that learns gets no gradient: a pooler, or layers, that the head does not read."""
    pooler = model.pooler is not None and model.pooler.weight.requires_grad and not model.head.pooled
    count = len(model.encoder.shape.layers)
    above = not model.encoder.shape.tied and max(layer % (count + 1) for layer in model.head.reads) < count
    return pooler or above


def batch_at(feed: Feed | MaskedFeed, indices: np.ndarray, step: int) -> tuple[Packed[Tensor], Tensor]:
    """These windows and their answers; of text, with the words masked that this step masks."""
    return feed.batch(indices, step) if isinstance(feed, MaskedFeed) else feed.batch(indices)


def task_loss(found: Any, packed: Packed[Tensor], answers: Tensor) -> Tensor:
    """The loss, summed over windows, of what a head found: span logits (start, end), class logits, or masked words."""
    if isinstance(packed, Masked):
        return pretrain_loss(found, packed, answers)
    if isinstance(found, tuple):
        start, end = found
        return span_loss(start, end, packed, answers)
    return class_loss(found, answers)


def make_batches(lengths: np.ndarray, settings: Optimisation | Frozen, seed: int, processes: int) -> Batches:
    """The batches of all processes together, one a step."""
    accumulate = settings.accumulate if isinstance(settings, Optimisation) else 1
    if settings.windows is not None:
        batches = Batches(lengths, seed=seed, windows=settings.windows)
    else:
        batches = Batches(lengths, settings.tokens or TOKENS, seed)
    least, shares = len(lengths) // batches.count(), processes * accumulate
    if least < shares:
        raise QuothError(
            f"a step has {least} windows, too few for {processes} process(es) in {accumulate} part(s) each; "
            "make steps larger (tokens or windows) or accumulate less"
        )
    return batches


def precision_of(settings: Optimisation) -> str | None:
    """What `choose` and readers call it: None is bf16 where the GPU has it."""
    return None if settings.precision == "auto" else settings.precision


def seed_of(*numbers: int) -> int:
    """A seed for torch's generators that is a function of these numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def set_dropout(model: Model, p: float) -> None:
    """Give every dropout of the encoder, in attention too, this probability."""
    style = replace(model.encoder.style, dropout=p, attention_dropout=p)
    for module in model.encoder.modules():
        if isinstance(module, Encoder | Embeddings | Layer):
            module.style = style
        elif isinstance(module, Attention):
            module.dropout = p

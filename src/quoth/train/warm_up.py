"""Head warm-up: new heads of pre-training are trained on the frozen encoder until the held-out loss is flat.

Pre-trained encoders are often shipped without MLM head, NSP head and pooler. What new ones give means nothing, and
their first gradients would harm the encoder (or its gates); so they are trained first, and alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from quoth.encoder import Device
from quoth.errors import QuothError
from quoth.model import Model
from quoth.tasks import Task
from quoth.tasks.examples import Batches, Request
from quoth.train.graphs import why_not
from quoth.train.loop import Group, Loop
from quoth.train.settings import Optimisation
from quoth.windows.packed import Size

SETTINGS = Optimisation(learning_rate=1e-3, schedule="constant", warmup_ratio=0.0)


@dataclass(frozen=True)
class WarmUp:
    """How heads were warmed up.

    steps: how many it took; losses: of the held-out text, before the first step and at every evaluation; every: steps
    between two evaluations; flat: whether the loss had become flat before the steps came to their end
    """

    steps: int
    losses: tuple[float, ...]
    every: int
    flat: bool

    def line(self) -> str:
        """For people."""
        how = "flat" if self.flat else "not yet flat"
        return f"heads: {self.steps} steps, held-out loss {self.losses[0]:.4f} to {self.losses[-1]:.4f}, {how}"


class HeadsAlone:
    """The objective: parameters of head and pooler on the states of the frozen encoder, without dropout."""

    def __init__(
        self, model: Model, task: Task, feed: Batches, names: Collection[str], settings: Optimisation, device: Device
    ) -> None:
        self.model, self.task, self.feed, self.device = model, task, feed, device
        trained = {name: value for name, value in model.named_parameters() if name in names}
        self.groups = (Group("loss", trained, settings),)

    def why_no_graphs(self) -> str | None:
        """As that of the model."""
        return why_not(self.model, self.device)

    def requests(self, indices: np.ndarray, step: int, size: Size | None) -> list[Request]:
        """One."""
        return [self.feed.request(indices, step, size)]

    def seeds(self, step: int) -> list[int | None]:
        """Nothing is drawn."""
        return [None]

    def stages(self, requests: Sequence[Request], windows: int) -> list[Callable[[], Tensor]]:
        """One: the gradients of a step."""

        def backward() -> Tensor:
            packed, labels = self.feed.gather(requests[0])
            with self.device.autocast():
                with torch.no_grad():
                    states = self.model.encoder(packed, self.model.head.reads)
                output = self.model.read(self.model.head, states, packed)
            loss: Tensor = self.task.loss(output, packed, labels) / packed.divisor
            loss.backward()
            return loss.detach()

        return [backward]

    def after_step(self, learning_rate: float | Tensor) -> None:
        """Nothing."""


def warm_up(
    model: Model,
    task: Task,
    names: Collection[str],
    accelerator: Accelerator,
    *,
    settings: Optimisation = SETTINGS,
    seed: int = 0,
    every: int = 100,
    patience: int = 3,
    tolerance: float = 0.01,
    most: int = 5000,
    tell: Callable[[str], None] | None = None,
) -> WarmUp:
    """Train the parameters `names` (of head and pooler, as `Task.add_head` returns them) and nothing else until flat.

    Every so many steps the held-out loss is computed. It is flat when the best of the last `patience` of them is not
    better than the best before by a fraction `tolerance` of it; after `most` steps it ends anyway. The same arguments
    give the same heads. `requires_grad` is as before afterwards, and the model is left in evaluation mode.
    """
    _check(model, task, names)
    device = Device.choose(accelerator.device, settings.named_precision)
    model.to(device.place).eval()
    before = {name: value.requires_grad for name, value in model.named_parameters()}
    losses = [task.evaluate(model, device).quality["loss"]]
    if not names:
        return WarmUp(0, tuple(losses), every, flat=True)
    feed = task.feed(task.examples, device.place, seed)
    try:
        for name, value in model.named_parameters():
            value.requires_grad_(name in names)
        objective = HeadsAlone(model, task, feed, names, settings, device)
        loop = Loop(objective, feed.lengths, settings, seed, accelerator, most)
        while loop.step < most and not _flat(losses, patience, tolerance):
            for _ in range(min(every, most - loop.step)):
                loop.advance()
            losses.append(task.evaluate(model, device).quality["loss"])
            if tell:
                tell(f"heads: step {loop.step}, held-out loss {losses[-1]:.4f}")
    finally:
        for name, value in model.named_parameters():
            value.requires_grad_(before[name])
    return WarmUp(loop.step, tuple(losses), every, _flat(losses, patience, tolerance))


def _flat(losses: list[float], patience: int, tolerance: float) -> bool:
    """Whether the best of the last `patience` losses gains less than a fraction `tolerance` on the best before."""
    return len(losses) > patience and min(losses[-patience:]) > (1 - tolerance) * min(losses[:-patience])


def _check(model: Model, task: Task, names: Collection[str]) -> None:
    if model.head is None or model.head.task != task.head_task:
        raise QuothError(f"this model has no head for {task.name!r}; the task's add_head gives it one")
    if task.evaluation is None:
        raise QuothError("recipe: data.held_out is 0; heads of pre-training are fitted by a held-out loss")
    known = {name for name, _ in model.named_parameters() if name.startswith(("head.", "pooler."))}
    wrong = sorted(set(names) - known)
    if wrong:
        raise QuothError(f"{wrong[0]}: is no parameter of this model's head or pooler")

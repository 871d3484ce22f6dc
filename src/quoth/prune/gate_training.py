"""`GateTraining`: step 2 of Algorithm 1 trains α alone; the weights are fixed and dropout is off."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from quoth.encoder import Device
from quoth.model import Model
from quoth.prune.gates import gated
from quoth.prune.penalty import L0, L1
from quoth.tasks.examples import Batches, Request
from quoth.tasks.seeds import seed_of
from quoth.train.distillation import Distillation
from quoth.train.graphs import why_not
from quoth.train.loop import Group
from quoth.train.settings import Optimisation
from quoth.windows.packed import Size


class GateTraining:
    """The objective of the gates: the loss of the gated model, and the penalty."""

    def __init__(
        self,
        model: Model,
        penalty: L1 | L0,
        loss: Distillation,
        feed: Batches,
        settings: Optimisation,
        seed: int,
        device: Device,
    ) -> None:
        self.model = model.to(device.place).eval().requires_grad_(False)
        self.penalty = penalty.to(device.place)
        self.loss, self.feed, self.seed = loss, feed, seed
        self.groups = (Group("loss", dict(penalty.named_parameters()), settings),)

    def why_no_graphs(self) -> str | None:
        """As that of the model."""
        return why_not(self.model, self.loss.device)

    def requests(self, indices: np.ndarray, step: int, size: Size | None) -> list[Request]:
        """One."""
        return [self.feed.request(indices, step, size)]

    def seeds(self, step: int) -> list[int | None]:
        """Of the gates that are drawn."""
        return [seed_of(self.seed, step)]

    def stages(self, requests: Sequence[Request], windows: int) -> list[Callable[[], Tensor]]:
        """One: the gradients of α. The loss that it returns is without the penalty."""

        def backward() -> Tensor:
            packed, labels = self.feed.gather(requests[0])
            with gated(self.model, self.penalty.alpha()):
                loss: Tensor = self.loss(self.model, packed, labels) / packed.divisor
            (loss + self.penalty.loss()).backward()
            return loss.detach()

        return [backward]

    def after_step(self, learning_rate: float | Tensor) -> None:
        """The threshold of the proximal penalty."""
        self.penalty.settle(learning_rate)

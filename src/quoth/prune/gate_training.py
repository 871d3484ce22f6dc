"""`GateTraining`: step 2 of Algorithm 1 trains α alone; the weights are fixed and dropout is off."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from quoth.encoder import Device
from quoth.model import Model
from quoth.prune.gates import gated
from quoth.prune.penalty import L0, L1
from quoth.tasks.examples import Batches
from quoth.tasks.seeds import seed_of
from quoth.train.distillation import Distillation
from quoth.train.loop import Group
from quoth.train.settings import Optimisation


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

    def backward(self, indices: np.ndarray, step: int) -> Tensor:
        """The gradients of α. The loss that is returned is without the penalty."""
        packed, labels = self.feed.batch(indices, step)
        torch.manual_seed(seed_of(self.seed, step))
        alpha = self.penalty.alpha()
        with gated(self.model, alpha):
            loss = self.loss(self.model, packed, labels, alpha.get("h")) / len(indices)
        (loss + self.penalty.loss()).backward()
        return loss.detach()

    def after_step(self, learning_rate: float) -> None:
        """The threshold of the proximal penalty."""
        self.penalty.settle(learning_rate)

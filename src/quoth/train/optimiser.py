"""AdamW, and the learning rate at each step as a function of the step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from quoth.train.settings import OptimiserSettings


def make_optimiser(
    parameters: Iterable[nn.Parameter], settings: OptimiserSettings, *, on_device: bool = False
) -> torch.optim.AdamW:
    """Fused AdamW; norms and biases, all the vectors, do not decay.

    on_device: the learning rate is a tensor there, so that a step can be captured as a CUDA graph
    """
    trained = [value for value in parameters if value.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [value for value in trained if value.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [value for value in trained if value.ndim <= 1], "weight_decay": 0.0},
    ]
    rate: Any = torch.tensor(settings.learning_rate, device=trained[0].device) if on_device else settings.learning_rate
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=rate,
        betas=(settings.adam_beta1, settings.adam_beta2),
        eps=settings.adam_epsilon,
        fused=True,
        capturable=on_device,
    )


def set_learning_rate(optimiser: torch.optim.Optimizer, value: float) -> None:
    """The learning rate of the next step."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


def learning_rate_at(step: int, steps: int, settings: OptimiserSettings) -> float:
    """The learning rate of step 0 … steps − 1, with r = learning_rate.

    It rises linearly over the first w = ⌈warmup_ratio·steps⌉ steps, r·(step + 1)/w, then, with
    x = (step − w)/(steps − w), linear: r·(1 − x); constant: r; cosine: r·(1 + cos(π·(x·(restarts + 1) mod 1)))/2
    """
    highest = settings.learning_rate
    warm = math.ceil(settings.warmup_ratio * steps)
    if step < warm:
        return highest * (step + 1) / warm
    x = (step - warm) / max(1, steps - warm)
    if settings.schedule == "linear":
        return highest * (1 - x)
    if settings.schedule == "cosine":
        return highest * (1 + math.cos(math.pi * (x * (settings.restarts + 1) % 1))) / 2
    return highest

"""AdamW, and the learning rate at each step as a function of the step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from quoth.train.settings import Frozen, Optimisation


def make_optimiser(
    parameters: Iterable[tuple[str, nn.Parameter]], settings: Optimisation | Frozen
) -> torch.optim.AdamW:
    """Fused AdamW over the named parameters that learn; norms and biases, all the vectors, do not decay."""
    learning = [value for _, value in parameters if value.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [value for value in learning if value.ndim > 1], "weight_decay": settings.decay},
        {"params": [value for value in learning if value.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        fused=True,
    )


def rate_at(step: int, steps: int, settings: Optimisation | Frozen) -> float:
    """The learning rate of step 0 … steps − 1.

    It rises in a line over the first w = ⌈warmup·steps⌉ steps, rate·(step + 1)/w, then with x = (step − w)/(steps − w)
    linear: rate·(1 − x); constant: rate; cosine: rate·(1 + cos(π·(x·(restarts + 1) mod 1)))/2
    """
    warm = math.ceil(settings.warmup * steps)
    if step < warm:
        return settings.rate * (step + 1) / warm
    x = (step - warm) / max(1, steps - warm)
    if settings.schedule == "linear":
        return settings.rate * (1 - x)
    if settings.schedule == "cosine":
        return settings.rate * (1 + math.cos(math.pi * (x * (settings.restarts + 1) % 1))) / 2
    return settings.rate

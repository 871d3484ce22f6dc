"""Activation outliers: a few feed-forward units whose values are many times those of all others, too many for int8.

A product in int8 has one range for all of its input (`quoth.export.ranges`), so that a single outlier makes its steps
coarse for all. In the feed-forward half of BERT's layers, U and D, one or two units are outliers, most of all at [CLS]
and [SEP]. They are taken out by a form that gives the same in float32:

    D·g(U·x) = D′·g(U′·x) + D″·g(U″·x)    outlier units, ″, in a small product of their own in float32 (Dettmers et al.
                                          2022, "LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from quoth.encoder import Encoder
from quoth.windows import Packed

UNITS = 2  # more made hardly a difference
FACTOR = 3  # times the next range; below it little is gained, and each layer's part costs half a per cent of the time


def find_outliers(encoder: Encoder, windows: Packed[np.ndarray]) -> list[np.ndarray]:
    """The outlier units of each layer, (n,) int64 with n up to UNITS; of tied ones, in all passes."""
    ranges: dict[nn.Module, Tensor] = {}

    def measure(module: nn.Module, given: tuple[Any, ...]) -> None:
        found = given[0].detach().abs().amax(0)
        ranges[module] = torch.maximum(ranges[module], found) if module in ranges else found

    layers: Sequence[Any] = list(encoder.layers)
    hooks = [layer.down.register_forward_pre_hook(measure) for layer in layers]
    try:
        with torch.no_grad():
            encoder(windows.to("cpu"), [len(encoder.shape.layers)])
    finally:
        for hook in hooks:
            hook.remove()
    return [outliers_of(ranges[layer.down].numpy()) for layer in layers]


def outliers_of(ranges: np.ndarray) -> np.ndarray:
    """The outliers among units of these ranges, (f,)."""
    order = np.argsort(-ranges, kind="stable")
    if len(ranges) <= 8 * UNITS:
        return order[:0]
    return np.sort(order[:UNITS][ranges[order[:UNITS]] > FACTOR * ranges[order[UNITS]]])

"""Activation outliers: a few units and channels whose values are many times those of all others, too many for int8.

A product in int8 has one range for all of its input (`quoth.export.quantise`), so that a single outlier makes its steps
coarse for all. In the feed-forward half of BERT's layers, U and D, one or two units are outliers, most of all at [CLS]
and [SEP], and so are a few channels of the input. Both are taken out by forms that give the same in float32:

    D·g(U·x) = D′·g(U′·x) + D″·g(U″·x)    outlier units, ″, in a small product of their own in float32 (Dettmers et al.
                                          2022, "LLM.int8(): 8-bit Matrix Multiplication for Transformers at Scale")
    U·x = (U·diag(s))·(x/s)               s = max(1, a/t) of channels with ranges a, t being the largest range but
                                          CHANNELS (Xiao et al. 2023, "SmoothQuant", scale all of them)

They are found on windows of random tokens: the same units and channels are outliers on text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from quoth.encoder import Encoder
from quoth.windows import Packed, Tokenizer, pack

UNITS, CHANNELS = 2, 4  # more made hardly a difference
FACTOR = 3  # times the next range; below it little is gained, and each layer's part costs half a per cent of the time
COUNT, LENGTH, QUESTION = 16, 160, 16  # of the windows, and tokens of each and of its question


@dataclass(frozen=True)
class Outliers:
    """Of one layer. units: (n,) int64, n up to UNITS; scale: (h,) float32, s; None where no channel is an outlier."""

    units: np.ndarray
    scale: np.ndarray | None


def find_outliers(encoder: Encoder, tokenizer: Tokenizer | None = None) -> list[Outliers]:
    """The outliers of each layer; of tied ones, in all passes. tokenizer: to set special tokens in their place."""
    ranges: dict[nn.Module, Tensor] = {}

    def measure(module: nn.Module, given: tuple[Any, ...]) -> None:
        found = given[0].detach().abs().amax(0)
        ranges[module] = torch.maximum(ranges[module], found) if module in ranges else found

    layers: Sequence[Any] = list(encoder.layers)
    hooks = [part.register_forward_pre_hook(measure) for layer in layers for part in (layer.up, layer.down)]
    try:
        with torch.no_grad():
            encoder(random_questions(encoder, tokenizer).to("cpu"), [len(encoder.shape.layers)])
    finally:
        for hook in hooks:
            hook.remove()
    return [outliers_of(ranges[layer.up].numpy(), ranges[layer.down].numpy()) for layer in layers]


def outliers_of(channels: np.ndarray, units: np.ndarray) -> Outliers:
    """The outliers, by the ranges of the channels of a feed-forward half's input, (h,), and of its units, (f,)."""
    few, scale = np.zeros(0, np.int64), None
    if len(units) > 8 * UNITS:
        order = np.argsort(-units, kind="stable")
        few = np.sort(order[:UNITS][units[order[:UNITS]] > FACTOR * units[order[UNITS]]])
    if len(channels) > 8 * CHANNELS:
        usual = np.sort(channels)[-1 - CHANNELS]
        if channels.max() > FACTOR * usual:
            scale = np.maximum(1, channels / usual).astype(np.float32)
    return Outliers(few, scale)


def random_questions(encoder: Encoder, tokenizer: Tokenizer | None) -> Packed[np.ndarray]:
    """Windows of random tokens, with the special tokens of questions and passages where the tokenizer is known."""
    drawn = np.random.default_rng(0)
    length = min(LENGTH, encoder.longest_window)
    ids = drawn.integers(0, encoder.shape.vocab, (COUNT, length))
    types = np.zeros((COUNT, length), np.int64)
    if tokenizer is not None and length > QUESTION + tokenizer.template.special:
        form = tokenizer.template
        middle = len(form.prefix) + QUESTION
        passage, suffix = middle + len(form.middle), length - len(form.suffix)
        ids[:, : len(form.prefix)], ids[:, middle:passage], ids[:, suffix:] = form.prefix, form.middle, form.suffix
        types[:, :middle] = [*form.prefix_types, *[form.question_type] * QUESTION]
        types[:, middle:] = [*form.middle_types, *[form.passage_type] * (suffix - passage), *form.suffix_types]
    types = np.minimum(types, max(0, encoder.shape.types - 1))
    return pack(list(ids), list(types))

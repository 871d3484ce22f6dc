"""What is too loud for int8: a few units and channels whose values are many times those of all others.

A product in int8 has one range for all that goes in (`quoth.export.quantise`), so that a single loud value makes its
steps coarse for all. In the feed-forward half of BERT's layers, U and D, one or two units are so loud, most of all at
[CLS] and [SEP], and a few channels of what goes in. Both are quietened by forms that give the same in float32:

    D·g(U·x) = D′·g(U′·x) + D″·g(U″·x)    the loud units, ″, in float32, a small product beside (Dettmers et al. 2022)
    U·x = (U·diag(s))·(x/s)               s = max(1, a/t) of channels with ranges a, t being that of the loudest but
                                          CHANNELS (as Xiao et al. 2023 scale all of them)

Which they are is heard on windows of random tokens: the same ones are loud on text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from quoth.encoder.encoder import Encoder
from quoth.windows.packed import Packed, pack
from quoth.windows.tokenizer import Tokens

UNITS, CHANNELS = 2, 4  # more made hardly a difference
LOUD = 3  # times the next range; below it little is gained, and each layer's part costs half a per cent of the time
COUNT, LENGTH, QUESTION = 16, 160, 16  # of the windows, and tokens of each and of its question


@dataclass(frozen=True)
class Loud:
    """Of one layer. units: (n,) int64, n up to UNITS; scale: (h,) float32, s; None where no channel is loud."""

    units: np.ndarray
    scale: np.ndarray | None


def listen(encoder: Encoder, tokens: Tokens | None = None) -> list[Loud]:
    """What is loud in each layer; of tied ones, in all passes. tokens: to set special tokens in their place."""
    ranges: dict[nn.Module, Tensor] = {}

    def hear(module: nn.Module, given: tuple[Any, ...]) -> None:
        found = given[0].detach().abs().amax(0)
        ranges[module] = torch.maximum(ranges[module], found) if module in ranges else found

    layers: Sequence[Any] = list(encoder.layers)
    hooks = [part.register_forward_pre_hook(hear) for layer in layers for part in (layer.up, layer.down)]
    try:
        with torch.no_grad():
            encoder(random_questions(encoder, tokens).map(torch.from_numpy), [len(encoder.shape.layers)])
    finally:
        for hook in hooks:
            hook.remove()
    return [choose(ranges[layer.up].numpy(), ranges[layer.down].numpy()) for layer in layers]


def choose(channels: np.ndarray, units: np.ndarray) -> Loud:
    """What is loud, by the ranges of the channels that go into a feed-forward half, (h,), and of its units, (f,)."""
    few, scale = np.zeros(0, np.int64), None
    if len(units) > 8 * UNITS:
        order = np.argsort(-units, kind="stable")
        few = np.sort(order[:UNITS][units[order[:UNITS]] > LOUD * units[order[UNITS]]])
    if len(channels) > 8 * CHANNELS:
        usual = np.sort(channels)[-1 - CHANNELS]
        if channels.max() > LOUD * usual:
            scale = np.maximum(1, channels / usual).astype(np.float32)
    return Loud(few, scale)


def random_questions(encoder: Encoder, tokens: Tokens | None) -> Packed[np.ndarray]:
    """Windows of random tokens, with the special tokens of questions and passages where the tokenizer is known."""
    drawn = np.random.default_rng(0)
    length = min(LENGTH, encoder.longest_window)
    ids = drawn.integers(0, encoder.shape.vocab, (COUNT, length))
    types = np.zeros((COUNT, length), np.int64)
    if tokens is not None and length > QUESTION + tokens.template.special:
        form = tokens.template
        middle = len(form.prefix) + QUESTION
        passage, suffix = middle + len(form.middle), length - len(form.suffix)
        ids[:, : len(form.prefix)], ids[:, middle:passage], ids[:, suffix:] = form.prefix, form.middle, form.suffix
        types[:, :middle] = [*form.prefix_types, *[form.question_type] * QUESTION]
        types[:, middle:] = [*form.middle_types, *[form.passage_type] * (suffix - passage), *form.suffix_types]
    types = np.minimum(types, max(0, encoder.shape.types - 1))
    return pack(list(ids), list(types))

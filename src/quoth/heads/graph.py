"""What flows through a head in an ONNX graph, where each step and each part writes itself by `to_onnx`.

Between steps it is (layers, T, f) or (T, f), as in torch; here T = B·L, for B windows of L tokens. For classes the
tokens are the first ones of each window: L = 1. Convolutions make maps of it, (B, channels, L, features): each window
is an image of its own, and a filter that looks over its edge sees zeros, as on the packed path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from quoth.encoder.graph import Graph, write


@dataclass(frozen=True)
class GraphValue:
    """The name of (layers, T, width), or of (T, width) where layers is None."""

    name: str
    layers: int | None
    width: int


@dataclass(frozen=True)
class GraphHere:
    """What a step may read beside its input: the last state, (T, hidden), and the batch's size, (2,), B and L."""

    last: GraphValue
    size: str


def write_steps(g: Graph, steps: Iterable[Any], x: GraphValue, here: GraphHere) -> GraphValue:
    """One step after the other."""
    for step in steps:
        x = write(f"step of kind {type(step).__name__}", step, g, x, here)
    return x


def stack_values(g: Graph, names: Sequence[str], width: int) -> GraphValue:
    """(T, f) each → (layers, T, f), or the one as it is."""
    if len(names) == 1:
        return GraphValue(names[0], None, width)
    each = [g("Unsqueeze", name, g.integers(0)) for name in names]
    return GraphValue(g("Concat", *each, axis=0), len(names), width)


def concat_values(g: Graph, *values: GraphValue) -> GraphValue:
    """All layers and features of a token in one row: (T, their sum)."""
    flat = []
    for value in values:
        if value.layers is None:
            flat.append(value.name)
        else:
            tokens = g("Transpose", value.name, perm=[1, 0, 2])
            flat.append(g.reshape(tokens, -1, value.layers * value.width))
    width = sum((value.layers or 1) * value.width for value in values)
    return GraphValue(g("Concat", *flat, axis=1) if len(flat) > 1 else flat[0], None, width)


@dataclass(frozen=True)
class Maps:
    """The name of (B, channels, L, width)."""

    name: str
    channels: int
    width: int


def make_maps(g: Graph, x: GraphValue, here: GraphHere) -> Maps:
    """Layers, or the one, as channels."""
    pixels = g("Transpose", g.reshape(x.name, x.layers or 1, here.size, x.width), perm=[1, 0, 2, 3])
    return Maps(pixels, x.layers or 1, x.width)


def concat(g: Graph, maps: Sequence[Maps]) -> Maps:
    """The channels of all."""
    name = g("Concat", *(each.name for each in maps), axis=1)
    return replace(maps[0], name=name, channels=sum(each.channels for each in maps))


def convolve(g: Graph, conv: Any, x: Maps) -> Maps:
    """A convolution with steps along the features only."""
    tokens, features = (int(n) for n in conv.padding)
    width = (x.width + 2 * features - conv.kernel_size[1]) // conv.stride[1] + 1
    weights = [g.constant(value) for value in (conv.weight, conv.bias) if value is not None]
    settings = {"pads": [tokens, features] * 2, "strides": list(conv.stride), "group": conv.groups}
    return replace(x, name=g("Conv", x.name, *weights, **settings), channels=conv.out_channels, width=width)


def channel_norm(g: Graph, norm: nn.LayerNorm, x: Maps) -> Maps:
    """`quoth.heads.image.ChannelNorm`."""
    y = g.norm(g("Transpose", x.name, perm=[0, 2, 3, 1]), norm)
    return replace(x, name=g("Transpose", y, perm=[0, 3, 1, 2]))


def relu(g: Graph, x: Maps) -> Maps:
    """max(0, x)."""
    return replace(x, name=g("Relu", x.name))


def fill_up(g: Graph, x: str, rank: int, axis: int, size: int, multiple: int) -> tuple[str, int]:
    """Zeros at the end of an axis, up to a multiple; and its size then."""
    missing = -size % multiple
    pads = [0] * (2 * rank)
    pads[rank + axis] = missing
    return (g("Pad", x, g.integers(*pads)) if missing else x), size + missing

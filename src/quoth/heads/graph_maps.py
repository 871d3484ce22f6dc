"""Maps of convolutions in an ONNX graph: (B, channels, L, features).

Each window is an image of its own, and a filter that looks over its edge sees zeros, as on the packed path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from quoth.encoder.graph import Graph
from quoth.heads.graph_values import GraphHere, GraphValue


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


def write_parts(g: Graph, parts: Iterable[Any], x: GraphValue, here: GraphHere) -> GraphValue:
    """A deep network, its parts one after the other, then the mean over the features: → (T, channels)."""
    y = make_maps(g, x, here)
    for part in parts:
        y = part.to_onnx(g, y)
    mean = g("ReduceMean", y.name, g.integers(3), keepdims=0)  # (B, channels, L)
    return GraphValue(g.reshape(g("Transpose", mean, perm=[0, 2, 1]), -1, y.channels), None, y.channels)


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

"""Convolutional steps of heads as ONNX graphs; the formulas stand in the files of `quoth.heads` named alike.

Maps are (B, channels, L, features): each window is an image of its own, and a filter that looks over its edge sees
zeros, as on the packed path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from quoth.errors import QuothError
from quoth.export.graph import Graph
from quoth.export.value import Value
from quoth.heads.convolution import FIRST, WIDTH, FeatureCNN, TokenCNN
from quoth.heads.image import Halve, Unit
from quoth.heads.inception import Module
from quoth.heads.xception import Block, Middle, Separable, Tail


@dataclass(frozen=True)
class Maps:
    """(B, channels, L, width)."""

    name: str
    channels: int
    width: int


def feature_cnn(g: Graph, step: FeatureCNN, x: Value) -> Value:
    """`cnn(1xN)`, which looks at one token at a time: (layers, T, f) or (T, f) → (T, features)."""
    dilation, layers = step.dilation, x.layers or 1
    tokens = g("Transpose", x.name, perm=[1, 0, 2]) if x.layers else g("Unsqueeze", x.name, g.integers(1))
    tokens, width = _fill_up(g, tokens, 3, 2, x.width, FIRST * dilation)
    patches = g(
        "Transpose", g.reshape(tokens, -1, layers, width // (FIRST * dilation), FIRST, dilation), perm=[0, 2, 4, 1, 3]
    )
    places = width // FIRST
    y = g("Relu", g.dense(g.reshape(patches, -1, places, layers * FIRST), step.first))
    for linear in (step.second, step.third):
        y, places = _fill_up(g, y, 3, 1, places, WIDTH)
        places //= WIDTH
        y = g("Relu", g.dense(g.reshape(y, -1, places, linear.in_features), linear))
    width = places * step.third.out_features
    return Value(g.reshape(y, -1, width), None, width)


def token_cnn(g: Graph, step: TokenCNN, x: Value, size: str) -> Value:
    """`cnn(NxN)`: (layers, T, f) or (T, f) → (T, features)."""
    image = _image(g, x, size)
    bank = [_conv(g, conv, image) for conv in step.bank]
    y = _relu(g, _stack(g, bank))
    for conv in (step.second, step.third):
        name, width = _fill_up(g, y.name, 4, 3, y.width, WIDTH)
        y = _relu(g, _conv(g, conv, replace(y, name=name, width=width)))
    flat = y.width * y.channels
    return Value(g.reshape(g("Transpose", y.name, perm=[0, 2, 3, 1]), -1, flat), None, flat)


def through(g: Graph, parts: Iterable[Any], x: Value, size: str) -> Value:
    """A deep network, its parts one after the other, then the mean over the features: → (T, channels)."""
    y = _image(g, x, size)
    for part in parts:
        y = _part(g, part, y)
    mean = g("ReduceMean", y.name, g.integers(3), keepdims=0)  # (B, channels, L)
    return Value(g.reshape(g("Transpose", mean, perm=[0, 2, 1]), -1, y.channels), None, y.channels)


def _image(g: Graph, x: Value, size: str) -> Maps:
    """Layers, or the one, as channels."""
    pixels = g("Transpose", g.reshape(x.name, x.layers or 1, size, x.width), perm=[1, 0, 2, 3])
    return Maps(pixels, x.layers or 1, x.width)


def _stack(g: Graph, maps: Sequence[Maps]) -> Maps:
    """The channels of all."""
    name = g("Concat", *(each.name for each in maps), axis=1)
    return replace(maps[0], name=name, channels=sum(each.channels for each in maps))


def _part(g: Graph, part: nn.Module, x: Maps) -> Maps:
    """One part of Inception or Xception."""
    if isinstance(part, Halve):
        return _halve(g, x)
    if isinstance(part, Unit):
        return _relu(g, _norm(g, part.norm, _conv(g, part.conv, x)))
    if isinstance(part, Module):
        return _module(g, part, x)
    if isinstance(part, Separable):
        return _norm(g, part.norm, _conv(g, part.pointwise, _conv(g, part.depthwise, x)))
    if isinstance(part, Block):
        y = _part(g, part.second, _relu(g, _part(g, part.first, _relu(g, x))))
        leap = _norm(g, part.norm, _conv(g, part.leap, x))
        return replace(leap, name=g("Add", _halve(g, y).name, leap.name))
    if isinstance(part, Middle):
        y = x
        for separable in part.three:
            y = _part(g, separable, _relu(g, y))
        return replace(y, name=g("Add", x.name, y.name))
    if isinstance(part, Tail):
        return _relu(g, _part(g, part.separable, x))
    raise QuothError(
        f"a part of kind {type(part).__name__} cannot be exported yet; add it to quoth.export.convolutions"
    )


def _module(g: Graph, module: Module, x: Maps) -> Maps:
    """Inception's: four ways side by side."""
    around = [module.rows, 1]
    pooled = _conv(g, module.pool.conv, x)
    size = {"kernel_shape": [1 + 2 * n for n in around], "pads": around * 2, "count_include_pad": 1}
    pooled = replace(pooled, name=g("AveragePool", pooled.name, **size))
    ways = [
        _part(g, module.one, x),
        _part(g, module.three, _part(g, module.three_reduce, x)),
        _part(g, module.five, _part(g, module.five_reduce, x)),
        _relu(g, _norm(g, module.pool.norm, pooled)),
    ]
    return _stack(g, ways)


def _conv(g: Graph, conv: Any, x: Maps) -> Maps:
    """A convolution with steps along the features only."""
    tokens, features = (int(n) for n in conv.padding)
    width = (x.width + 2 * features - conv.kernel_size[1]) // conv.stride[1] + 1
    weights = [g.constant(value) for value in (conv.weight, conv.bias) if value is not None]
    settings = {"pads": [tokens, features] * 2, "strides": list(conv.stride), "group": conv.groups}
    return replace(x, name=g("Conv", x.name, *weights, **settings), channels=conv.out_channels, width=width)


def _halve(g: Graph, x: Maps) -> Maps:
    """The mean of three features at every second one, zeros outside."""
    settings = {"kernel_shape": [1, 3], "strides": [1, 2], "pads": [0, 1, 0, x.width % 2], "count_include_pad": 1}
    return replace(x, name=g("AveragePool", x.name, **settings), width=-(-x.width // 2))


def _norm(g: Graph, norm: nn.LayerNorm, x: Maps) -> Maps:
    """ChannelNorm."""
    y = g.norm(g("Transpose", x.name, perm=[0, 2, 3, 1]), norm)
    return replace(x, name=g("Transpose", y, perm=[0, 3, 1, 2]))


def _relu(g: Graph, x: Maps) -> Maps:
    return replace(x, name=g("Relu", x.name))


def _fill_up(g: Graph, x: str, rank: int, axis: int, size: int, multiple: int) -> tuple[str, int]:
    """Zeros at the end of an axis, up to a multiple; and its size then."""
    missing = -size % multiple
    pads = [0] * (2 * rank)
    pads[rank + axis] = missing
    return (g("Pad", x, g.integers(*pads)) if missing else x), size + missing

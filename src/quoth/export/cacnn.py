"""The context-aware CNN as an ONNX graph; `quoth.heads.cacnn` has the formulas, whose names are used here."""

from __future__ import annotations

import sys

import numpy as np

from quoth.export.graph import Graph
from quoth.heads.cacnn import ContextCNN


def context_cnn(g: Graph, head: ContextCNN, state: str, size: str) -> str:
    """(T, h) → (T, 2)."""
    width, hidden = head.width, head.weight.shape[1]
    x = g.reshape(state, size, hidden)  # (B, L, h)
    around = [width // 2] * 2
    y = g("Conv", g("Transpose", x, perm=[0, 2, 1]), g.constant(head.first.weight), pads=around)  # (B, channels, L)
    filters = _vectorised(g, head, y) if head.filters else _simple(g, head, y, size)  # (B, w, maps, h)
    mine = g.reshape(g("Mul", filters, g.constant(head.weight)), -1, width, 2, head.maps // 2, hidden)
    folded = g.reshape(g("ReduceSum", mine, g.integers(3), keepdims=0), -1, width * 2, hidden)
    products = g("MatMul", x, g("Transpose", folded, perm=[0, 2, 1]))  # (B, L, w·2)
    wide = g("Pad", products, g.integers(0, around[0], 0, 0, around[1], 0))
    logits = g.constant(head.bias)
    for p in range(width):
        end = p - width + 1 or sys.maxsize
        shifted = g("Slice", wide, g.integers(p, 2 * p), g.integers(end, 2 * p + 2), g.integers(1, 2))
        logits = g("Add", logits, shifted)
    return g.reshape(logits, -1, 2)


def _vectorised(g: Graph, head: ContextCNN, y: str) -> str:
    """Filters by a convolution along the context vector. y: (B, filters, L) → (B, w, maps, h)."""
    assert head.second is not None
    assert head.filters is not None
    hidden, around = head.weight.shape[1], [head.width // 2] * 2
    context = g("Unsqueeze", _most(g, head, y), g.integers(1))
    second, bias = head.second.weight, head.second.bias
    along = g("Conv", context, g.constant(second), *([] if bias is None else [g.constant(bias)]), pads=around)
    each = g.reshape(along, -1, head.maps, head.width, head.filters)
    tiled = g("Concat", *[g("Transpose", each, perm=[0, 2, 1, 3])] * -(-hidden // head.filters), axis=3)
    return g("Slice", tiled, g.integers(0), g.integers(hidden), g.integers(3))


def _simple(g: Graph, head: ContextCNN, y: str, size: str) -> str:
    """Filters by the maxima over stretches: token t is in stretch ⌊t·w/L⌋. y: (B, maps·h, L) → (B, w, maps, h)."""
    zero, one = g.constant(0), g.constant(1)
    length = g("Gather", size, one)
    stretch = g("Div", g("Mul", g("Range", zero, length, one), g.constant(head.width)), length)  # (L,)
    found = []
    for p in range(head.width):
        mine = g("Where", g("Equal", stretch, g.constant(p)), y, g.constant(-np.inf))  # none if L < w: relu(−∞) = 0
        found.append(g("Unsqueeze", _most(g, head, mine), g.integers(1)))
    return g.reshape(g("Concat", *found, axis=1), -1, head.width, head.maps, head.weight.shape[1])


def _most(g: Graph, head: ContextCNN, y: str) -> str:
    """relu(max + b) over the tokens. y: (B, channels, L) → (B, channels)."""
    assert head.first.bias is not None
    most = g("ReduceMax", y, g.integers(2), keepdims=0)
    return g("Relu", g("Add", most, g.constant(head.first.bias)))

"""The encoder as an ONNX graph on (batch, length), with the weights of the torch model.

The formulas are those of `quoth.encoder.encoder`. The B windows of a batch have L tokens each, so there is no padding
and no mask, and attention is onnxruntime's own operator for it. For int8, activation outliers are
separated from the rest (`quoth.export.outliers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from quoth.encoder import Encoder
from quoth.encoder.encoder import Embeddings, Layer
from quoth.encoder.graph import Graph, plain, write
from quoth.encoder.relative import buckets_of_distances

IDS, TYPES = "input_ids", "token_type_ids"  # the graph's inputs, (B, L) each


def encode(
    g: Graph, encoder: Encoder, size: str, layers: Sequence[int], outliers: Sequence[np.ndarray] = ()
) -> dict[int, str]:
    """The states of the layers asked for, by number: (B, L, h) each.

    size: (2,), B and L; outliers: units of each layer, for int8
    """
    count = len(encoder.shape.layers) + 1
    wanted = {layer % count for layer in layers}
    x = _embed(g, encoder.embeddings, size)
    biases = _biases(g, encoder, size)
    states = {0: x}
    for number in range(1, max(wanted) + 1):
        place = 0 if encoder.shape.tied else number - 1
        layer: Any = encoder.layers[place]
        states[number] = x = _layer(g, layer, x, outliers[place] if outliers else None, biases[place])
    return {layer: states[layer % count] for layer in layers}


def _biases(g: Graph, encoder: Encoder, size: str) -> list[str]:
    """The relative biases of each stored layer, of every query and key, (1, a, L, L) each, or "" for none.

    A row has the bias of each distance from −(n − 1) to n − 1; j − i + n − 1 is the place of a distance in it.
    """
    buckets, longest = encoder.shape.relative_buckets, encoder.longest_window
    if not buckets:
        return [""] * len(encoder.layers)
    steps = g("Range", g.constant(0), g("Gather", size, g.constant(1)), g.constant(1))
    apart = g("Sub", g("Unsqueeze", steps, g.integers(0)), g("Unsqueeze", steps, g.integers(1)))
    places = g("Add", apart, g.constant(longest - 1))
    index = torch.from_numpy(buckets_of_distances(longest, buckets))

    def bias(relative: Any) -> str:
        row = relative.weight.detach()[index].T[None]  # of three axes: small enough to stay float32 in int8
        return g("Gather", g.constant(row), places, axis=2)

    if encoder.relative is not None:
        return [bias(encoder.relative)] * len(encoder.layers)
    return [bias(cast(Layer, layer).attention.relative) for layer in encoder.layers]


def _embed(g: Graph, embeddings: Embeddings, size: str) -> str:
    """→ (B, L, h)."""
    first = embeddings.style.first_position
    length = g("Gather", size, g.constant(1))
    one, begin = g.constant(1), g.constant(first)
    positions = g("Range", begin, g("Add", length, begin), one)
    x = g("Gather", g.constant(embeddings.words.weight), IDS)
    x = g("Add", x, g("Gather", g.constant(embeddings.positions.weight), positions))
    if embeddings.types is not None:
        x = g("Add", x, g("Gather", g.constant(embeddings.types.weight), TYPES))
    x = g.norm(x, embeddings.norm)
    return g.dense(x, embeddings.projection) if isinstance(embeddings.projection, torch.nn.Linear) else x


def _layer(g: Graph, layer: Layer, x: str, outliers: np.ndarray | None, bias: str) -> str:
    """x: (B, L, h), bias: (1, a, L, L) or "" for none → (B, L, h)."""
    attention = layer.attention
    # of the whole, in int8 on one core: one product for all three and a Split took 2 to 4 % longer
    q, k, v = (g.dense(x, linear) for linear in (attention.query, attention.key, attention.value))
    mixed = g.dense(g.attention(q, k, v, attention.shape.heads, bias), attention.output)
    x = g.norm(g("Add", _adapted(g, layer.attention_adapter, mixed), x), layer.attention_norm)
    mixed = _feed_forward(g, layer, x, outliers)
    return g.norm(g("Add", _adapted(g, layer.ffn_adapter, mixed), x), layer.ffn_norm)


def _feed_forward(g: Graph, layer: Layer, x: str, outliers: np.ndarray | None) -> str:
    """D·g(U·x + b) + c, outliers separated. x: (B, L, h) → (B, L, h)."""
    (up, up_bias), (down, bias) = plain(layer.up), plain(layer.down)

    def part(units: np.ndarray | slice, bias: torch.Tensor | None) -> str:
        wide = g.linear(x, up[units], None if up_bias is None else up_bias[units])
        return g.linear(g.activate(wide, layer.style.activation), down[:, units], bias)

    if outliers is None or not len(outliers):
        return part(slice(None), bias)
    others = np.setdiff1d(np.arange(len(up)), outliers)
    return g("Add", part(others, bias), part(outliers, None))


def _adapted(g: Graph, adapter: Any, x: str) -> str:
    """What a tuning method inserted before a residual sum makes of x, or x where there is nothing."""
    return x if adapter is None else str(write(f"module of kind {type(adapter).__name__}", adapter, g, x))

"""The encoder as an ONNX graph on a rectangle of (batch, length), with the weights of the torch model.

The formulas are those of `laconic.encoder.encoder`. B windows are padded to L tokens; all but attention
sees T = B·L rows. Queries, keys and values come from one product, and 1/√k is folded into the queries' weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from laconic.deploy.graph import Graph, plain
from laconic.encoder.encoder import Embeddings, Encoder, Layer


@dataclass(frozen=True)
class Place:
    """Where tokens are, as names in a graph.

    size: (2,), B and L; real: (B, L) booleans, False on padding, or None where there is none
    """

    size: str
    real: str | None


@dataclass(frozen=True)
class Inputs:
    """A batch in a graph: ids and types (B, L), and for attention 0 or −∞ to be added to scores, (B, 1, 1, L)."""

    ids: str
    types: str
    place: Place
    hidden: str


def make_inputs(g: Graph, ids: str, types: str, mask: str) -> Inputs:
    """From the names of the graph's own inputs, each (B, L) int64."""
    real = g("Cast", mask, to=9)  # to booleans
    added = g("Where", real, g.constant(0.0), g.constant(-np.inf))
    hidden = g("Unsqueeze", added, g.integers(1, 2))
    return Inputs(ids, types, Place(g("Shape", ids), real), hidden)


def encode(g: Graph, encoder: Encoder, inputs: Inputs, layers: Sequence[int]) -> dict[int, str]:
    """The states of the layers asked for, by the numbers asked for: (T, h) each."""
    count = len(encoder.shape.layers) + 1
    wanted = {layer % count for layer in layers}
    x = _embed(g, encoder.embeddings, inputs)
    states = {0: x}
    for number in range(1, max(wanted) + 1):
        layer: Any = encoder.layers[0 if encoder.shape.tied else number - 1]
        states[number] = x = _layer(g, layer, x, inputs)
    return {layer: states[layer % count] for layer in layers}


def _embed(g: Graph, embeddings: Embeddings, inputs: Inputs) -> str:
    """→ (T, h)."""
    first = embeddings.style.first_position
    length = g("Gather", inputs.place.size, g.constant(1))
    one, begin = g.constant(1), g.constant(first)
    positions = g("Range", begin, g("Add", length, begin), one)
    x = g("Gather", g.constant(embeddings.words.weight), inputs.ids)
    x = g("Add", x, g("Gather", g.constant(embeddings.positions.weight), positions))
    if embeddings.types is not None:
        x = g("Add", x, g("Gather", g.constant(embeddings.types.weight), inputs.types))
    x = g.norm(g.reshape(x, -1, embeddings.words.embedding_dim), embeddings.norm)
    return g.dense(x, embeddings.projection) if isinstance(embeddings.projection, torch.nn.Linear) else x


def _layer(g: Graph, layer: Layer, x: str, inputs: Inputs) -> str:
    """x: (T, h) → (T, h)."""
    mixed = g.dense(_attention(g, layer, x, inputs), layer.attention.output)
    x = g.norm(g("Add", _adapted(g, layer.attention_adapter, mixed), x), layer.attention_norm)
    wide = activate(g, g.dense(x, layer.up), layer.style.activation)
    return g.norm(g("Add", _adapted(g, layer.ffn_adapter, g.dense(wide, layer.down)), x), layer.ffn_norm)


def _attention(g: Graph, layer: Layer, x: str, inputs: Inputs) -> str:
    """x: (T, h) → (T, a·v)."""
    attention = layer.attention
    heads, key, value = attention.shape.heads, attention.shape.key, attention.shape.value
    parts = [plain(linear) for linear in (attention.query, attention.key, attention.value)]
    scale = torch.tensor([1 / math.sqrt(key), 1.0, 1.0])
    weight = torch.cat([part[0] * factor for part, factor in zip(parts, scale)])
    bias = torch.cat([part[1] * factor for part, factor in zip(parts, scale) if part[1] is not None])
    sizes = g.integers(heads * key, heads * key, heads * value)
    q, k, v = g.several("Split", g.linear(x, weight, bias), sizes, outputs=3, axis=1)
    by_head = [g.reshape(part, inputs.place.size, heads, size) for part, size in ((q, key), (k, key), (v, value))]
    q, k, v = (
        g("Transpose", part, perm=perm) for part, perm in zip(by_head, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    )
    scores = g("Add", g("MatMul", q, k), inputs.hidden)
    mixed = g("MatMul", g("Softmax", scores, axis=-1), v)  # (B, a, L, v)
    return g.reshape(g("Transpose", mixed, perm=[0, 2, 1, 3]), -1, heads * value)


def _adapted(g: Graph, adapter: Any, x: str) -> str:
    """The sum x + W₂·gelu(W₁·x + b₁) + b₂, or x where there is no adapter."""
    if adapter is None:
        return x
    return g("Add", x, g.dense(activate(g, g.dense(x, adapter.down), "gelu"), adapter.up))


def activate(g: Graph, x: str, activation: str) -> str:
    """Gelu, its tanh form, or relu."""
    if activation == "relu":
        return g("Relu", x)
    return g("Gelu", x, approximate="tanh" if activation == "gelu_tanh" else "none")

"""Heads as ONNX graphs: for each step of a chain a function that writes what its torch module computes.

As in `quoth.heads`, what flows is (layers, T, f) or (T, f); here T = B·L. Most steps look at one token at a time;
those that look at neighbours are in `quoth.export.convolutions`. For classes the tokens are the first ones of each
window: L = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from quoth.errors import QuothError
from quoth.export import convolutions
from quoth.export.cacnn import context_cnn
from quoth.export.encoder import activate
from quoth.export.graph import Graph
from quoth.export.value import Value, side_by_side
from quoth.heads.chain import Chain, Linear, Parallel
from quoth.heads.compress import Compress, Skip
from quoth.heads.convolution import FeatureCNN, TokenCNN
from quoth.heads.inception import Inception
from quoth.heads.layer_attention import Dot, EncoderBlock, Multiplicative, Weighted
from quoth.heads.pooling import Pool
from quoth.heads.xception import Xception


@dataclass(frozen=True)
class Here:
    """What a step may look at beside its input: the last state, (T, hidden), and the batch's size, (2,), B and L."""

    last: Value
    size: str


def logits(g: Graph, head: Any, states: Sequence[str], size: str) -> str:
    """From the states that a head reads, (T, h) each, for classes the pooler's output last, to (T, outputs)."""
    kind = head.to_json()["kind"]
    if isinstance(head, Chain):
        return _chain(g, head, states, size)
    if kind == "cacnn":
        return context_cnn(g, head, states[-1], size)
    if kind not in ("span", "class"):
        raise QuothError(f"a head of kind {kind!r} cannot be exported yet; write its graph in quoth.export.heads")
    x = states[-1]
    if kind == "class" and head.dense is not None:
        x = g.dense(x, head.dense)
        x = g("Tanh", x) if head.activation == "tanh" else activate(g, x, head.activation)
    return g.dense(x, head.linear)


def _chain(g: Graph, head: Chain, states: Sequence[str], size: str) -> str:
    hidden = _hidden(head)
    picked = [states[number] for number in head._picked]  # the states that enter the line; the last may be skip's alone
    here = Here(Value(states[-1], None, hidden), size)
    return _run(g, head.steps, _stack(g, picked, hidden), here).name


def _hidden(head: Chain) -> int:
    """The width of the states: every step's form knows it."""
    form: Any = head.steps[0]
    return int(form.form.hidden)


def _stack(g: Graph, names: Sequence[str], width: int) -> Value:
    """(T, f) each → (layers, T, f), or the one as it is."""
    if len(names) == 1:
        return Value(names[0], None, width)
    each = [g("Unsqueeze", name, g.integers(0)) for name in names]
    return Value(g("Concat", *each, axis=0), len(names), width)


def _run(g: Graph, steps: Any, x: Value, here: Here) -> Value:
    for step in steps:
        write = STEPS.get(type(step))
        if write is None:
            raise QuothError(
                f"a step of kind {type(step).__name__} cannot be exported yet; add it to quoth.export.heads"
            )
        x = write(g, step, x, here)
    return x


def _pool(g: Graph, step: Pool, x: Value, here: Here) -> Value:
    """γ·Σ softmax(w)ₗ xₗ, or the mean, as one product with a row of weights. (layers, T, f) → (T, f)."""
    assert x.layers is not None
    if step.weight is None or step.scale is None:
        weights = torch.full((x.layers,), 1 / x.layers)
    else:
        weights = (step.scale * step.shares()).detach()
    flat = g.reshape(x.name, x.layers, -1)
    return Value(g.reshape(g("MatMul", g.constant(weights[None]), flat), -1, x.width), None, x.width)


def _compress(g: Graph, step: Compress, x: Value, here: Here) -> Value:
    size = step.form.width
    bias = step.bias.unflatten(0, (-1, size))
    product = g("MatMul", x.name, g.constant(step.weight.mT))
    shifted = g("Add", product, g.constant(bias.unsqueeze(1) if step.weight.ndim == 3 else bias[0]))
    return replace(x, name=activate(g, shifted, "gelu_tanh"), width=size)


def _skip(g: Graph, step: Skip, x: Value, here: Here) -> Value:
    return side_by_side(g, here.last, x)


def _parallel(g: Graph, step: Parallel, x: Value, here: Here) -> Value:
    return side_by_side(g, *(_run(g, branch, x, here) for branch in step.branches))


def _linear(g: Graph, step: Linear, x: Value, here: Here) -> Value:
    flat = side_by_side(g, x)
    return Value(g.linear(flat.name, step.weight, step.bias), None, len(step.bias))


def _feature_cnn(g: Graph, step: FeatureCNN, x: Value, here: Here) -> Value:
    return convolutions.feature_cnn(g, step, x)


def _token_cnn(g: Graph, step: TokenCNN, x: Value, here: Here) -> Value:
    return convolutions.token_cnn(g, step, x, here.size)


def _deep(g: Graph, step: Inception | Xception, x: Value, here: Here) -> Value:
    parts = (*step.stem, *step.body) if isinstance(step, Inception) else step.parts
    return convolutions.through(g, parts, x, here.size)


def _weighted(g: Graph, step: Weighted, x: Value, here: Here) -> Value:
    weights = g.constant(step.weights(step.weight))
    return _ended(g, step, g("Mul", weights, g.linear(x.name, step.query)))


def _dot(g: Graph, step: Dot, x: Value, here: Here) -> Value:
    products = g.linear(x.name, step.query)
    return _ended(g, step, g("Mul", g("Softmax", products, axis=0), products))


def _multiplicative(g: Graph, step: Multiplicative, x: Value, here: Here) -> Value:
    keys = g.linear(x.name, step.query @ step.weight)
    return _ended(g, step, g("Mul", g("Softmax", keys, axis=0), g.linear(x.name, step.query)))


def _ended(g: Graph, step: Any, products: str) -> Value:
    """The sum over layers and the bias. (L, T, outputs) → (T, outputs)."""
    total = g("ReduceSum", products, g.integers(0), keepdims=0)
    return Value(g("Add", total, g.constant(step.bias)), None, len(step.bias))


def _encoder_block(g: Graph, step: EncoderBlock, x: Value, here: Here) -> Value:
    """(L, T, f) → (T, outputs), query after query: they are few."""
    states = g("Transpose", x.name, perm=[1, 0, 2])
    found = []
    for number, query in enumerate(step.query.detach()):
        z = g("Add", g.dense(_attended(g, step, query, x, states), step.output), g.constant(query))
        z = g.norm(z, step.attention_norm)
        wide = activate(g, g.dense(z, step.up), "gelu")
        mixed = g.norm(g("Add", g.dense(wide, step.down), z), step.ffn_norm)
        found.append(g.linear(mixed, query[None], step.bias[number : number + 1]))
    return Value(g("Concat", *found, axis=1), None, len(found))


def _attended(g: Graph, step: EncoderBlock, query: Tensor, x: Value, states: str) -> str:
    """What one query finds: each head mixes the layers of a token. x: (L, T, f), states: (T, L, f) → (T, f)."""
    size = x.width // step.heads
    asked = step.to_query(query).unflatten(-1, (step.heads, 1, size)) * size**-0.5
    keys = step.to_key.weight.unflatten(0, (step.heads, size))
    weights = g("Softmax", g.linear(x.name, (asked @ keys).flatten(0, 1)), axis=0)  # (L, T, heads)
    mixed = g("MatMul", g("Transpose", weights, perm=[1, 2, 0]), states)  # (T, heads, f)
    projections = step.to_value.weight.unflatten(0, (step.heads, -1)).mT  # (heads, f, size)
    values = g("MatMul", g("Transpose", mixed, perm=[1, 0, 2]), g.constant(projections))
    flat = g.reshape(g("Transpose", values, perm=[1, 0, 2]), -1, x.width)
    return g("Add", flat, g.constant(step.to_value.bias))


STEPS: dict[type, Callable[..., Value]] = {
    Pool: _pool,
    Compress: _compress,
    Skip: _skip,
    Parallel: _parallel,
    Linear: _linear,
    FeatureCNN: _feature_cnn,
    TokenCNN: _token_cnn,
    Inception: _deep,
    Xception: _deep,
    Weighted: _weighted,
    Dot: _dot,
    Multiplicative: _multiplicative,
    EncoderBlock: _encoder_block,
}

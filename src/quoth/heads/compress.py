"""Compression of every state (BERTVision calls it an adapter), and the last layer beside it.

Jiang, Benge & King 2022, "BERTVision", §2.3 and figure 1:

    compress(d)         gelu(hₗ·W + b)      one W ∈ ℝʰˣᵈ for all layers: h·d + d parameters
    compress(d, each)   gelu(hₗ·Wₗ + bₗ)    one for each layer: L·(h·d + d)
    skip                [h_L, x]            the last state and what was made so far, concatenated

gelu in its tanh form. Down only: no way up again and no sum, unlike Houlsby's adapter. On one state (pooled before,
say), compress is a dense layer. For classes with the pooler's output as one more channel, skip takes that channel, as
the authors' code does.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quoth.encoder.graph import Graph
from quoth.heads.graph import GraphHere, GraphValue, concat_values
from quoth.heads.line import Argument
from quoth.heads.step import (
    Compressed,
    Form,
    Here,
    Reading,
    Value,
    by_layer,
    draw,
    fusable,
    need_layers,
    pieces,
    register_step,
    up_to_16,
)


class Compress(nn.Module):
    """`compress(size)` or `compress(size, each)`."""

    def __init__(self, form: Form, size: int, weights: str) -> None:
        super().__init__()
        self.form = replace(form, width=size)
        layers = (need_layers("compress with weights for each layer", form),) if weights == "each" else ()
        self.weight = draw(torch.empty(*layers, size, form.width))
        self.bias = nn.Parameter(torch.zeros(*layers or (1,), size).flatten())  # a vector: what is one does not decay

    def forward(self, x: Tensor, here: Here) -> Value:
        """(layers, T, f) → (layers, T, size); or (T, f) → (T, size)."""
        products = here.given.get(self)
        if products is None:
            weight = self._wide()
            if weight.ndim == 3:
                products = torch.bmm(x, weight.transpose(1, 2))
            else:
                products = by_layer(x, weight) if x.ndim == 3 else F.linear(x, weight)
        found = Compressed(products, self.bias.unflatten(0, (-1, self.form.width)))
        return found if fusable(products) and self.form.outputs == 2 else found.now()

    def reading(self, x: Tensor) -> Reading:
        """The products."""
        return Reading("each" if self.weight.ndim == 3 else "products", self._wide())

    def _wide(self) -> Tensor:
        """The weight with rows of zeros at its end: tensor cores and kernels want rows of a multiple of 16."""
        extra = up_to_16(self.form.width) - self.form.width
        return F.pad(self.weight, (0, 0, 0, extra)) if extra else self.weight

    def to_onnx(self, g: Graph, x: GraphValue, here: GraphHere) -> GraphValue:
        """(layers, T, f) → (layers, T, size); or (T, f) → (T, size)."""
        bias = self.bias.unflatten(0, (-1, self.form.width))
        product = g("MatMul", x.name, g.constant(self.weight.mT))
        shifted = g("Add", product, g.constant(bias.unsqueeze(1) if self.weight.ndim == 3 else bias[0]))
        return replace(x, name=g.activate(shifted, "gelu_tanh"), width=self.form.width)


class Skip(nn.Module):
    """`skip`: the last state beside what was made so far."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = replace(form, layers=None, width=form.hidden + form.flat)

    def forward(self, x: Value, here: Here) -> Value:
        """(layers, T, f) or (T, f) → (T, hidden + all of it), in pieces."""
        return (here.last, *pieces(x))

    def to_onnx(self, g: Graph, x: GraphValue, here: GraphHere) -> GraphValue:
        """(layers, T, f) or (T, f) → (T, hidden + all of it)."""
        return concat_values(g, here.last, x)


register_step("compress", {"size": Argument(int), "weights": Argument(("shared", "each"), "shared")}, Compress)
register_step("skip", {}, Skip)

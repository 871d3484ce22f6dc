"""Pooling over layers: learned (LP) and average (AP).

Jiang, Benge & King 2022, "BERTVision", §2.2, after Tenney et al. 2019 and Ma et al. 2019:

    LP   γ · Σₗ softmax(w)ₗ hₗ        L + 1 parameters for L layers
    AP   Σₗ hₗ / L                    none

(layers, T, f) → (T, f), of the states or of what was compressed from them. w begins at 0, so that LP begins as AP.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from quoth.encoder.graph import Graph
from quoth.heads.graph import GraphHere, GraphValue
from quoth.heads.line import Argument
from quoth.heads.step import Form, Here, Reading, fusable, need_layers, register_step


class Pool(nn.Module):
    """`pool(learned)` or `pool(average)`."""

    def __init__(self, form: Form, how: str) -> None:
        super().__init__()
        self.layers = need_layers("pool", form)
        self.form = replace(form, layers=None)
        self.weight = nn.Parameter(torch.zeros(self.layers)) if how == "learned" else None
        self.scale = nn.Parameter(torch.ones(1)) if how == "learned" else None

    def forward(self, x: Tensor, here: Here) -> Tensor:
        """(layers, T, f) → (T, f)."""
        if self in here.given:
            return here.given[self]
        fused = fusable(x) and not x.requires_grad
        if self.weight is None and not fused:
            return x.mean(0)
        weights = self._weights(x.device)
        if fused:
            from quoth.heads.kernels.weighted_sums import weighted_sums  # Triton is optional

            return weighted_sums(x, weights.unsqueeze(0))[0]
        # A product a token: no (layers, T, f) is made on the way, and w's gradient is summed in many places at once.
        return torch.bmm(weights.to(x.dtype).expand(x.shape[1], 1, -1), x.transpose(0, 1)).squeeze(1)

    def reading(self, x: Tensor) -> Reading:
        """The sum."""
        return Reading("mix", self._weights(x.device))

    def shares(self) -> Tensor:
        """The share of each layer, (layers,), without γ; LP only."""
        assert self.weight is not None
        return self.weight.softmax(0)

    def to_onnx(self, g: Graph, x: GraphValue, here: GraphHere) -> GraphValue:
        """One product with a row of weights. (layers, T, f) → (T, f)."""
        weights = self._weights("cpu")
        flat = g.reshape(x.name, self.layers, -1)
        return GraphValue(g.reshape(g("MatMul", g.constant(weights[None]), flat), -1, x.width), None, x.width)

    def _weights(self, device: torch.device | str) -> Tensor:
        """What the states are multiplied with, (layers,)."""
        if self.scale is None:
            return torch.full((self.layers,), 1 / self.layers, device=device)
        return self.scale * self.shares()


register_step("pool", {"how": Argument(("learned", "average"))}, Pool)

"""Compression of every state (BERTVision calls it an adapter), and the last layer beside it.

Jiang, Benge, King, "BERTVision", §2.3 and figure 1:

    compress(d)         gelu(hₗ·W + b)      one W ∈ ℝʰˣᵈ for all layers: h·d + d parameters
    compress(d, each)   gelu(hₗ·Wₗ + bₗ)    one for each layer: L·(h·d + d)
    skip                [h_L, x]            the last state before what was made so far, laid side by side

gelu in its tanh form. Down only: no way up again and no sum, unlike Houlsby's adapter. On one state (pooled before,
say), compress is a dense layer. For classes with the pooler's output as one more channel, skip takes that channel, as
the authors' code does.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from laconic.heads.step import Form, Here, draw, need_layers, side_by_side


class Compress(nn.Module):
    """`compress(size)` or `compress(size, each)`."""

    def __init__(self, form: Form, size: int, weights: str) -> None:
        super().__init__()
        self.form = replace(form, width=size)
        layers = (need_layers("compress with weights for each layer", form),) if weights == "each" else ()
        self.weight = draw(torch.empty(*layers, size, form.width))
        self.bias = nn.Parameter(torch.zeros(*layers or (1,), size).flatten())  # a vector: what is one does not decay

    def forward(self, x: Tensor, here: Here) -> Tensor:
        """(layers, T, f) → (layers, T, size); or (T, f) → (T, size)."""
        size = self.form.width
        extra = -size % 8  # tensor cores want rows of a multiple of 8
        weight: Tensor = F.pad(self.weight, (0, 0, 0, extra)) if extra else self.weight
        bias = F.pad(self.bias.unflatten(0, (-1, size)), (0, extra))
        if weight.ndim == 3:
            y = torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
        else:
            y = F.linear(x, weight, bias[0])
        return F.gelu(y[..., :size], approximate="tanh")


class Skip(nn.Module):
    """`skip`: the last state beside what was made so far."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = replace(form, layers=None, width=form.hidden + form.flat)

    def forward(self, x: Tensor, here: Here) -> Tensor:
        """(layers, T, f) or (T, f) → (T, hidden + all of it)."""
        return side_by_side(here.last, x)

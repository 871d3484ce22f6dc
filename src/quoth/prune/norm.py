"""LayerNorm over the units that stay.

A unit with α_h = 0 is 0 in every state, but LayerNorm over all h units still counts it: of n units that stay,

    mean over all = mean · n/h        variance over all = variance · n/h + mean² · n/h · (1 − n/h)

so a model with zeroed units is not yet the cut one. With mean and variance over the n units alone, it is.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class KeptNorm(nn.LayerNorm):
    """LayerNorm over the units that stay; the others are 0. It computes with the weights of the norm it stands for."""

    def __init__(self, norm: nn.LayerNorm, kept: Tensor) -> None:
        nn.Module.__init__(self)  # not LayerNorm's: weight and bias are there already, perhaps with a history
        self.normalized_shape, self.eps = norm.normalized_shape, norm.eps
        self.elementwise_affine = norm.elementwise_affine
        self._parameters["weight"], self._parameters["bias"] = norm.weight, norm.bias
        self.index = kept.nonzero().squeeze(1)
        self.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """x: (T, h) → (T, h)."""
        index = self.index
        weight, bias = self.weight.index_select(0, index), self.bias.index_select(0, index)
        y = F.layer_norm(x.index_select(1, index), (len(index),), weight, bias, self.eps)
        return y.new_zeros(x.shape).index_copy(1, index, y)

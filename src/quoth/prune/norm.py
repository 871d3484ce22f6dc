"""LayerNorm over the units that stay.

A unit with α_h = 0 is 0 in every state, but LayerNorm over all h units still counts it: of n units that stay,

    mean over all = mean · n/h        variance over all = variance · n/h + mean² · n/h · (1 − n/h)

so a model with zeroed units is not yet the cut one. With mean and variance over the n units alone, it is.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class KeptNorm(nn.LayerNorm):
    """LayerNorm over the units that stay; the others are 0. It computes with the weights of the norm it stands for."""

    def __init__(self, norm: nn.LayerNorm, kept: Tensor) -> None:
        nn.Module.__init__(self)  # not LayerNorm's: weight and bias are there already, perhaps with a history
        self.normalized_shape, self.eps = norm.normalized_shape, norm.eps
        self.elementwise_affine = norm.elementwise_affine
        self._parameters["weight"], self._parameters["bias"] = norm.weight, norm.bias
        self.kept = kept  # (h,) booleans: a mask, since to ask for the numbers of its units would wait for the device
        self.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """x: (T, h) → (T, h)."""
        wide = torch.where(self.kept, x.float() if x.element_size() == 2 else x, 0)
        count = self.kept.sum()
        centred = torch.where(self.kept, wide - wide.sum(1, keepdim=True) / count, 0)
        scale = ((centred**2).sum(1, keepdim=True) / count + self.eps).rsqrt()
        y: Tensor = centred * scale * self.weight + torch.where(self.kept, self.bias, 0)
        return y.to(x.dtype)

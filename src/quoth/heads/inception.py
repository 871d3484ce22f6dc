"""Inception over (tokens, features): GoogLeNet with the token axis kept.

Jiang, Benge & King 2022, "BERTVision", §2.4, after Szegedy et al. 2015, "Going Deeper with Convolutions", table 1:

    7×7 → 64, pool;  1×1 → 64;  3×3 → 192, pool;  3a, 3b, pool;  4a … 4e, pool;  5a, 5b;  mean over the features
    a module: 1×1  |  1×1, 3×3  |  1×1, 5×5  |  3×3 pool, 1×1    concatenated

Modified: the first convolution goes in steps of 4 features, each pool (1×3) in steps of 2, none along the tokens;
pools take the mean; ChannelNorm and relu after each convolution. 1.994 % of BERT-large is the paper's size, with
LP and compress(386) before it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quoth.encoder.graph import Graph
from quoth.heads.graph import Maps, channel_norm, concat, convolve, relu
from quoth.heads.image import Deep, Halve, Image, Unit
from quoth.heads.step import Form, register_step

# 1×1, 3×3 reduce, 3×3, 5×5 reduce, 5×5, pool, from that table; None is a pool between modules.
MODULES: tuple[tuple[int, int, int, int, int, int] | None, ...] = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


class Inception(Deep):
    """`inception`: (layers, T, f) or (T, f) → (T, 1024)."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.stem = nn.ModuleList(
            [
                Unit(form, form.layers or 1, 64, (7, 7), 4),
                Halve(),
                Unit(form, 64, 64, (1, 1)),
                Unit(form, 64, 192, (3, 3)),
                Halve(),
            ]
        )
        channels = 192
        self.body = nn.ModuleList()
        for sizes in MODULES:
            self.body.append(Halve() if sizes is None else Module(form, channels, sizes))
            channels = channels if sizes is None else sizes[0] + sizes[2] + sizes[4] + sizes[5]
        self.form = replace(form, layers=None, width=channels)


class Module(nn.Module):
    """An inception module: four ways, concatenated."""

    def __init__(self, form: Form, inputs: int, sizes: tuple[int, int, int, int, int, int]) -> None:
        super().__init__()
        one, three_reduce, three, five_reduce, five, pool = sizes
        self.rows = 0 if form.task == "class" else 1
        self.one = Unit(form, inputs, one, (1, 1))
        self.three_reduce = Unit(form, inputs, three_reduce, (1, 1))
        self.three = Unit(form, three_reduce, three, (3, 3))
        self.five_reduce = Unit(form, inputs, five_reduce, (1, 1))
        self.five = Unit(form, five_reduce, five, (5, 5))
        self.pool = Unit(form, inputs, pool, (1, 1))

    def forward(self, x: Tensor, image: Image) -> Tensor:
        """(1, inputs, rows, f) → (1, all four, rows, f)."""
        pooled = self._mean(self.pool.conv(x))  # both are sums: after the 1×1 filters there are fewer channels to pool
        ways = [
            self.one(x, image),
            self.three(self.three_reduce(x, image), image),
            self.five(self.five_reduce(x, image), image),
            F.relu(image.between(self.pool.norm(pooled))),
        ]
        return torch.cat(ways, 1)

    def to_onnx(self, g: Graph, x: Maps) -> Maps:
        """As `forward`, window by window."""
        around = [self.rows, 1]
        pooled = convolve(g, self.pool.conv, x)
        size = {"kernel_shape": [1 + 2 * n for n in around], "pads": around * 2, "count_include_pad": 1}
        pooled = replace(pooled, name=g("AveragePool", pooled.name, **size))
        ways = [
            self.one.to_onnx(g, x),
            self.three.to_onnx(g, self.three_reduce.to_onnx(g, x)),
            self.five.to_onnx(g, self.five_reduce.to_onnx(g, x)),
            relu(g, channel_norm(g, self.pool.norm, pooled)),
        ]
        return concat(g, ways)

    def _mean(self, x: Tensor) -> Tensor:
        """Of 3×3 pixels (for classes 1×3) around each, zeros outside."""
        x = F.pad(x, (1, 1, self.rows, self.rows))
        x = x[..., :-2] + x[..., 1:-1] + x[..., 2:]
        x = x[:, :, :-2] + x[:, :, 1:-1] + x[:, :, 2:] if self.rows else x
        return x / (9 if self.rows else 3)


register_step("inception", {}, Inception)

"""Convolutions over (tokens, features): the 1×N and the N×N CNN.

Jiang, Benge & King 2022, "BERTVision", §2.4: a window's states are an image of n tokens × f features, the layers its
channels (one channel, if they were pooled before); the token axis keeps its length. The paper gives the share of
BERT-large that each head's parameters make and no sizes; these are ours, within 3 % of it:

    cnn(1xN)   along the features only: 1×16 → 48, 1×8 → 128, 1×8 → 256 filters
    cnn(NxN)   1×1, 3×3, 5×5 and 7×7 → 26 filters each, at every 4th feature; 3×8 → 128; 1×8 → 384

relu after each, steps as wide as filters of 8 and 16, zeros outside the window; what is left of the features
is concatenated, then dropout. dilation=d: the first filters of 1×N take every d-th feature (d of them interleaved,
so that each feature is still read once). For classes the image is one token high, and so are all filters.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quoth.encoder.graph import Graph
from quoth.errors import QuothError
from quoth.heads import graph
from quoth.heads.graph import GraphHere, GraphValue
from quoth.heads.image import draw_filters, filters, make_image
from quoth.heads.line import Argument
from quoth.heads.step import Form, Here, Reading, Step, fusable, register_step

WIDTH = 8
FIRST = 16  # the width of the first filters of 1×N


def cnn(form: Form, filters: str, dilation: int, dropout: float) -> Step:
    """`cnn(1xN)` or `cnn(NxN)`."""
    if filters == "1xN":
        return FeatureCNN(form, dilation, dropout)
    if dilation != 1:
        raise QuothError("head: cnn(NxN) takes no dilation; cnn(1xN, dilation=…) does")
    return TokenCNN(form, dropout)


class FeatureCNN(nn.Module):
    """`cnn(1xN)`. Filters go in steps of their own width: a convolution is one matrix product of what lies there."""

    def __init__(self, form: Form, dilation: int, dropout: float) -> None:
        super().__init__()
        self.dilation, self.dropout = dilation, dropout
        self.first = nn.Linear(FIRST * (form.layers or 1), 48)
        self.second, self.third = nn.Linear(WIDTH * 48, 128), nn.Linear(WIDTH * 128, 256)
        for layer in (self.first, self.second, self.third):
            draw_filters(layer)
        left = _places(_places(_places(form.width, FIRST * dilation) * dilation, WIDTH), WIDTH)
        self.form = replace(form, layers=None, width=left * 256)

    def forward(self, x: Tensor, here: Here) -> Tensor:
        """(layers, T, f) or (T, f) → (T, features)."""
        given = here.given.get(self)
        if given is None:
            x = x.transpose(0, 1) if x.ndim == 3 else x.unsqueeze(1)  # (T, layers, f)
            patches = _patches(_fill_up(x, 2, FIRST * self.dilation), self.dilation)
            x = _linear_relu(patches, self.first.weight, self.first.bias)
        else:
            places = self.first.bias.repeat(given.shape[-1] // len(self.first.bias))
            x = _bias_relu(given, places).unflatten(2, (-1, len(self.first.bias))).flatten(1, 2)
        for layer in (self.second, self.third):
            if x.shape[1] < WIDTH:  # zeros would fill it up: the rest of the filter sees nothing
                x = _linear_relu(x.flatten(1).unsqueeze(1), layer.weight[:, : x[0].numel()], layer.bias)
            else:
                x = _linear_relu(_fill_up(x, 1, WIDTH).unflatten(1, (-1, WIDTH)).flatten(2), layer.weight, layer.bias)
        return F.dropout(x.flatten(1), self.dropout, self.training)

    def reading(self, x: Tensor) -> Reading:
        """The first filters' products."""
        return Reading("patches", self.first.weight, self.dilation)

    def to_onnx(self, g: Graph, x: GraphValue, here: GraphHere) -> GraphValue:
        """(layers, T, f) or (T, f) → (T, features), one token at a time."""
        dilation, layers = self.dilation, x.layers or 1
        tokens = g("Transpose", x.name, perm=[1, 0, 2]) if x.layers else g("Unsqueeze", x.name, g.integers(1))
        tokens, width = graph.fill_up(g, tokens, 3, 2, x.width, FIRST * dilation)
        split = g.reshape(tokens, -1, layers, width // (FIRST * dilation), FIRST, dilation)
        patches = g("Transpose", split, perm=[0, 2, 4, 1, 3])
        places = width // FIRST
        y = g("Relu", g.dense(g.reshape(patches, -1, places, layers * FIRST), self.first))
        for linear in (self.second, self.third):
            y, places = graph.fill_up(g, y, 3, 1, places, WIDTH)
            places //= WIDTH
            y = g("Relu", g.dense(g.reshape(y, -1, places, linear.in_features), linear))
        width = places * self.third.out_features
        return GraphValue(g.reshape(y, -1, width), None, width)


class TokenCNN(nn.Module):
    """`cnn(NxN)`: a token sees up to 4 tokens to each side."""

    def __init__(self, form: Form, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.bank = nn.ModuleList(filters(form, form.layers or 1, 26, (n, n), 4, bias=True) for n in (1, 3, 5, 7))
        self.second = filters(form, 104, 128, (3, WIDTH), WIDTH, bias=True)
        self.third = filters(form, 128, 384, (1, WIDTH), WIDTH, bias=True)
        left = _places(_places(_places(form.width, 4), WIDTH), WIDTH)
        self.form = replace(form, layers=None, width=left * 384)

    def forward(self, x: Tensor, here: Here) -> Tensor:
        """(layers, T, f) or (T, f) → (T, features)."""
        image = make_image(x, here.packed)
        y = torch.cat([conv(image.pixels) for conv in self.bank], 1).contiguous(memory_format=torch.channels_last)
        y = F.relu(image.between(y))
        y = F.relu(self.second(_fill_up(y, 3, WIDTH)))
        y = F.relu(self.third(_fill_up(y, 3, WIDTH)))  # one row high: what lies between windows has no effect
        return F.dropout(image.tokens(y).flatten(1), self.dropout, self.training)

    def to_onnx(self, g: Graph, x: GraphValue, here: GraphHere) -> GraphValue:
        """(layers, T, f) or (T, f) → (T, features)."""
        image = graph.make_maps(g, x, here)
        y = graph.relu(g, graph.concat(g, [graph.convolve(g, conv, image) for conv in self.bank]))
        for conv in (self.second, self.third):
            name, width = graph.fill_up(g, y.name, 4, 3, y.width, WIDTH)
            y = graph.relu(g, graph.convolve(g, conv, replace(y, name=name, width=width)))
        flat = y.width * y.channels
        return GraphValue(g.reshape(g("Transpose", y.name, perm=[0, 2, 3, 1]), -1, flat), None, flat)


def _linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """relu(W·x + b). x: (T, places, f) → (T, places, n)."""
    if fusable(x) and len(bias) % 16 == 0:
        from quoth.heads.kernels.bias_relu import linear_relu  # Triton is optional

        return linear_relu(x.flatten(0, 1), weight, bias).unflatten(0, x.shape[:2])  # type: ignore[no-any-return]
    return F.relu(F.linear(x, weight, bias))


def _bias_relu(x: Tensor, bias: Tensor) -> Tensor:
    """relu(x + b). x: (T, places, n) → the same."""
    if fusable(x) and len(bias) % 16 == 0:
        from quoth.heads.kernels.bias_relu import bias_relu  # Triton is optional

        return bias_relu(x, bias)
    return F.relu(x + bias.to(x.dtype))


def wide_patches(x: Tensor, features: int) -> Tensor:
    """So many features of all layers side by side. x: (T, L, f), f a multiple → (T, f / features, L · features)."""
    if x.is_cuda and x.element_size() == 2 and x.is_contiguous():
        wide = x.view(torch.complex128).unflatten(2, (-1, features // 8)).transpose(1, 2)  # 16 bytes move at once
        return wide.flatten(2).view(x.dtype)  # type: ignore[no-any-return]
    return x.unflatten(2, (-1, features)).transpose(1, 2).flatten(2)  # type: ignore[no-any-return]


def wide_weight(weight: Tensor, dilation: int, times: int) -> Tensor:
    """Filters of 16 features as filters of `times` · 16 for all places in them, zeros where they do not look.

    The places of a dilated filter are interleaved: the one that begins at feature d sees every dilation-th from there.
    weight: (n, L·16); times: a multiple of the dilation → (times · n, L · times · 16)
    """
    sizes = times // dilation, dilation, FIRST
    outer, inner, tap = torch.meshgrid(*(torch.arange(n, device=weight.device) for n in sizes), indexing="ij")
    place = ((outer * FIRST + tap) * dilation + inner).view(times, FIRST, 1)
    sees = (place == torch.arange(times * FIRST, device=weight.device)).to(weight.dtype)  # (places, 16, features)
    return torch.einsum("nlj,pji->pnli", weight.unflatten(1, (-1, FIRST)), sees).flatten(2).flatten(0, 1)


def _patches(x: Tensor, dilation: int) -> Tensor:
    """What each of the first filters sees: (T, layers, f) → (T, places, layers · width)."""
    if dilation == 1 and x.is_cuda and x.element_size() == 2 and x.is_contiguous() and not x.requires_grad:
        wide = x.view(torch.complex128).unflatten(2, (-1, FIRST // 8)).transpose(1, 2)  # 16 bytes move at once
        return wide.flatten(2).view(x.dtype)  # type: ignore[no-any-return]
    return x.unflatten(2, (-1, FIRST, dilation)).permute(0, 2, 4, 1, 3).flatten(3).flatten(1, 2)  # type: ignore[no-any-return]


def _places(features: int, step: int) -> int:
    """How many steps it takes to see all features."""
    return -(-features // step)


def _fill_up(x: Tensor, axis: int, multiple: int) -> Tensor:
    """Zeros at the end of an axis, up to a multiple."""
    missing = -x.shape[axis] % multiple
    return F.pad(x, (0, 0) * (x.ndim - 1 - axis) + (0, missing)) if missing else x


register_step(
    "cnn",
    {"filters": Argument(("1xN", "NxN")), "dilation": Argument(int, 1), "dropout": Argument(float, 0.1)},
    cnn,
)

"""`Fp8Encoder`: inference with the products of the layers in fp8 (e4m3), on Hopper GPUs.

A number in e4m3 has three bits after its first one, whatever its size, from 2⁻⁶ to 448: a scale must only keep numbers
in that range. So scales are fixed beforehand, one for each column, from bounds that hold for every input. LayerNorm
gives x = A·n + o with ‖n‖ ≤ √h, A = diag(gain), and so for any weight w and bias b

    |w·x + b| ≤ √h · ‖wA‖ + |w·o + b|        (Cauchy–Schwarz)

That bounds the states (w a unit vector), the values of attention, whose mixtures are not larger than they are, and what
enters the activation, which makes no number larger. With c = bound / 448 a column is stored as x/c, and the next weight
has its columns multiplied by c. Rows of weights are scaled by their own largest number.
Everything else is as in bf16: residual sums, LayerNorm, scores and softmax, embeddings, the head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quoth.encoder.attention import Plan
from quoth.encoder.encoder import Embeddings, Encoder
from quoth.encoder.inference import InferenceEncoder, ReadyLayer

TOP = 448.0  # the largest number of e4m3
MARGIN = 1.13  # factors of a product are rounded by at most 1/16 each


@dataclass(frozen=True)
class Source:
    """x = A·n + o with ‖n‖ ≤ radius. spread: A, (h, n), or its diagonal (h,); offset: o, (h,)."""

    spread: Tensor
    offset: Tensor
    radius: float

    def bound(self, weight: Tensor, bias: Tensor) -> Tensor:
        """The most that |w·x + b| can be. weight: (m, h), bias: (m,) → (m,)."""
        reach = weight * self.spread if self.spread.ndim == 1 else weight @ self.spread
        bound: Tensor = self.radius * reach.norm(dim=1) + (weight @ self.offset + bias).abs()
        return bound

    def own_bound(self) -> Tensor:
        """The most that |x| can be, (h,)."""
        reach = self.spread.abs() if self.spread.ndim == 1 else self.spread.norm(dim=1)
        return self.radius * reach + self.offset.abs()


def scale_of(bounds: Sequence[Tensor]) -> Tensor:
    """The scale c for the largest of several bounds, (m,); 1 where all are 0."""
    most = torch.stack(list(bounds)).amax(0)
    return torch.where(most > 0, most * (MARGIN / TOP), 1.0)


@dataclass(frozen=True)
class Matrix:
    """A weight in fp8. rows: (m, n); scale: (1, m) in single precision, of its rows."""

    rows: Tensor
    scale: Tensor


@dataclass(frozen=True)
class Fp8Layer:
    """A layer's weights; `ready` has its sizes, biases and norms. Inverse scales of what the layer stores in fp8:

    between: (h,) after attention, inside: (f,) after the activation, after: (h,), at the end, as the next layer wants.
    """

    ready: ReadyLayer
    qkv: Matrix
    qkv_bias: Tensor
    output: Matrix
    up: Matrix
    down: Matrix
    between: Tensor
    inside: Tensor
    after: Tensor


def product(x: Tensor, weight: Matrix, ones: Tensor, bias: Tensor | None = None) -> Tensor:
    """x·Wᵀ + b in bf16. x: (T, n) in fp8, ones: (T, 1), its scales → (T, m)."""
    return torch._scaled_mm(
        x,
        weight.rows.t(),
        scale_a=ones,
        scale_b=weight.scale,
        bias=bias,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )


class Fp8Encoder(InferenceEncoder):
    """An encoder made ready in fp8. kind: the type of what is multiplied."""

    STEP = 16  # rows of 16 bytes

    def __init__(
        self, encoder: Encoder, dtype: torch.dtype = torch.bfloat16, kind: torch.dtype = torch.float8_e4m3fn
    ) -> None:
        self.kind = kind
        super().__init__(encoder, dtype)

    def _ready(self, layers: list[ReadyLayer]) -> list[Fp8Layer]:
        """The layers in fp8, each with the scales in which the one before leaves its states."""
        ends = [self._source(layer.ffn_norm) for layer in layers]
        first = embedding_source(self.encoder.embeddings, self.width)
        sources = [[first, *ends]] if self.encoder.shape.tied else [[end] for end in (first, *ends)]
        scales = [scale_of([source.own_bound() for source in group]) for group in sources]
        self._first = 1 / scales[0]
        after = scales if self.encoder.shape.tied else scales[1:]
        return [self._fp8_layer(*parts) for parts in zip(layers, sources, scales, after)]

    def _fp8_layer(self, ready: ReadyLayer, sources: list[Source], scale: Tensor, after: Tensor) -> Fp8Layer:
        values = ready.shape.heads * ready.value
        weight, bias = ready.qkv
        keys = len(bias) - values
        mixed = scale_of([source.bound(weight[keys:], bias[keys:]) for source in sources])
        divisor = torch.cat([torch.ones_like(bias[:keys]), mixed])
        middle = self._source(ready.attention_norm)
        between, inside = scale_of([middle.own_bound()]), scale_of([middle.bound(*ready.up)])
        nothing = weight.new_empty(0)  # in place of what is kept in fp8
        kept: dict[str, Any] = {name: (nothing, getattr(ready, name)[1]) for name in ("qkv", "output", "up", "down")}
        return Fp8Layer(
            replace(ready, **kept),
            self._matrix(weight * scale / divisor[:, None]),
            (bias / divisor).to(self.dtype),
            self._matrix(ready.output[0] * mixed),
            self._matrix(ready.up[0] * between),
            self._matrix(ready.down[0] * inside),
            1 / between,
            1 / inside,
            1 / after,
        )

    def _source(self, norm: tuple[Tensor, Tensor, float]) -> Source:
        return Source(norm[0], norm[1], math.sqrt(self.hidden))

    def _matrix(self, weight: Tensor) -> Matrix:
        scale = scale_of([weight.abs().amax(1)]) / MARGIN
        return Matrix((weight / scale[:, None]).to(self.kind), scale[None])

    def _beside(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The states in fp8, (T, w), and the scales of their rows, all 1, (T, 1)."""
        return (x * self._first).to(self.kind), x.new_ones((len(x), 1), dtype=torch.float32)

    def _layer(
        self, layer: Fp8Layer, x: Tensor, beside: tuple[Tensor, Tensor], plan: Plan
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x: (T, w) → (T, w)."""
        from quoth.encoder.kernels.inference import add_norm_fp8  # Triton is optional
        from quoth.encoder.kernels.quantise import activate_fp8, attend_fp8

        ready, (q, ones) = layer.ready, beside
        qkv = product(q, layer.qkv, ones, layer.qkv_bias)
        sizes = (plan.longest, ready.shape.heads, ready.key, ready.value, ready.scale)
        mixed = product(attend_fp8(qkv, plan.starts, *sizes, self.kind), layer.output, ones)
        norm = (*ready.attention_norm, self.hidden, layer.between, self.kind)
        x, q = add_norm_fp8(mixed, ready.output[1], x, *norm)
        wide = product(q, layer.up, ones)
        q = activate_fp8(wide, ready.up[1], self.encoder.style.activation, layer.inside, self.kind)
        norm = (*ready.ffn_norm, self.hidden, layer.after, self.kind)
        x, q = add_norm_fp8(product(q, layer.down, ones), ready.down[1], x, *norm)
        return x, (q, ones)


def embedding_source(embeddings: Embeddings, width: int) -> Source:
    """Where the states of the first layer come from; `width` is what the states are padded to."""
    norm, projection = embeddings.norm, embeddings.projection
    radius = math.sqrt(len(norm.weight))
    if not isinstance(projection, nn.Linear):
        extra = width - len(norm.weight)
        return Source(F.pad(norm.weight, (0, extra)), F.pad(norm.bias, (0, extra)), radius)
    extra = width - projection.out_features
    offset = projection.weight @ norm.bias + projection.bias
    return Source(F.pad(projection.weight * norm.weight, (0, 0, 0, extra)), F.pad(offset, (0, extra)), radius)

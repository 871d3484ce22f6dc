"""Several sums Σₗ w_kₗ·xₗ over layers that do not learn, all in one pass over memory, as Triton kernels for CUDA.

y_k = Σₗ w_kₗ·xₗ        ∂w_kₗ = Σ ∂y_k·xₗ over tokens and features

A sum does not depend on which others are computed beside it, to the bit. All sums have a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 128  # features a tile
_PROGRAMS = 2048  # of the backward pass; each adds a row to the partial sums


@triton.jit
def _weighted_sums_forward(  # type: ignore[no-untyped-def]
    x, weights, y, tokens, width, by_token, by_layer,
    SUMS: tl.constexpr, LAYERS: tl.constexpr, UP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Products of tensor cores, which take 16 sums at least: those that are missing are 0.

    A weight in single precision is the sum of two in half, up to 2⁻¹⁷ of it.
    """
    token = tl.program_id(0).to(tl.int64)
    number, layer = tl.arange(0, 16), tl.arange(0, UP)
    there = (number < SUMS)[:, None] & (layer < LAYERS)[None, :]
    weight = tl.load(weights + number[:, None] * LAYERS + layer[None, :], there, 0.0)
    high = weight.to(x.dtype.element_ty)
    low = (weight - high.to(tl.float32)).to(x.dtype.element_ty)
    for begin in range(0, width, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        inside = (column < width)[None, :]
        state = x + token * by_token + layer[:, None].to(tl.int64) * by_layer + column[None, :]
        states = tl.load(state, (layer < LAYERS)[:, None] & inside, 0.0)
        total = tl.dot(low, states, input_precision="ieee")
        total = tl.dot(high, states, total, input_precision="ieee")
        place = y + (number[:, None].to(tl.int64) * tokens + token) * width + column[None, :]
        tl.store(place, total.to(y.dtype.element_ty), (number < SUMS)[:, None] & inside)


@triton.jit
def _weighted_sums_backward(  # type: ignore[no-untyped-def]
    dy, x, partial, tokens, width, by_sum, by_token, by_layer, steps,
    SUMS: tl.constexpr, LAYERS: tl.constexpr, UP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    number, layer = tl.arange(0, 16), tl.arange(0, UP)
    total = tl.zeros((16, UP), tl.float32)
    first = tl.program_id(0).to(tl.int64) * steps
    for step in range(0, tl.minimum(steps, tokens - first)):
        token = first + step
        for begin in range(0, width, BLOCK):
            column = begin + tl.arange(0, BLOCK)
            there = (column < width)[None, :]
            grad = dy + number[:, None].to(tl.int64) * by_sum + token * width + column[None, :]
            state = x + token * by_token + layer[:, None].to(tl.int64) * by_layer + column[None, :]
            grads = tl.load(grad, (number < SUMS)[:, None] & there, 0.0)
            states = tl.load(state, (layer < LAYERS)[:, None] & there, 0.0)
            total = tl.dot(grads, tl.trans(states), total, input_precision="ieee")
    place = partial + (tl.program_id(0) * SUMS + number[:, None]) * LAYERS + layer[None, :]
    tl.store(place, total, (number < SUMS)[:, None] & (layer < LAYERS)[None, :])


def sums(x: Tensor, weights: Tensor) -> Tensor:
    """x: (L, T, f), features side by side in memory; weights: (k, L) → (k, T, f). Without gradients."""
    if len(weights) > 16:
        return torch.cat([sums(x, part) for part in weights.split(16)])
    layers, tokens, width = x.shape
    y = x.new_empty(len(weights), tokens, width)
    _weighted_sums_forward[(tokens,)](
        x, weights.float().contiguous(), y, tokens, width, x.stride(1), x.stride(0),
        SUMS=len(weights), LAYERS=layers, UP=max(16, triton.next_power_of_2(layers)), BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return y


def sums_gradient(x: Tensor, dy: Tensor) -> Tensor:
    """The gradient of the weights. x: (L, T, f), dy: (k, T, f), contiguous, the same type → (k, L), fp32."""
    if len(dy) > 16:
        return torch.cat([sums_gradient(x, part) for part in dy.split(16)])
    layers, tokens, width = x.shape
    steps = triton.cdiv(tokens, _PROGRAMS)
    chunks = triton.cdiv(tokens, steps)
    partial = torch.empty((chunks, len(dy), layers), dtype=torch.float32, device=x.device)
    _weighted_sums_backward[(chunks,)](
        dy, x, partial, tokens, width, dy.stride(0), x.stride(1), x.stride(0), steps,
        SUMS=len(dy), LAYERS=layers, UP=max(16, triton.next_power_of_2(layers)), BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return partial.sum(0)


class _WeightedSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return sums(x, weights)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[None, Tensor]:
        (x,) = ctx.saved_tensors
        return None, sums_gradient(x, dy.to(x.dtype).contiguous())


def weighted_sums(x: Tensor, weights: Tensor) -> Tensor:
    """x: (L, T, f) in half precision, features side by side; weights: (k, L) → (k, T, f). x gets no gradient."""
    return _WeightedSums.apply(x, weights)  # type: ignore[no-any-return]

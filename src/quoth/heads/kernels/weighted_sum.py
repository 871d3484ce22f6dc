"""Σₗ wₗ·xₗ over layers that do not learn, each way in one pass over memory, as a Triton kernel for CUDA.

y = Σₗ wₗ·xₗ        ∂wₗ = Σ ∂y·xₗ over tokens and features
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256  # features a tile of the backward pass
_PROGRAMS = 2048  # of the backward pass; each adds a row to the partial sums


@triton.jit
def _weighted_sum_forward(x, weights, y, width, by_token, by_layer, LAYERS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for layer in range(LAYERS):
        value = tl.load(x + token * by_token + layer * by_layer + column, column < width, 0.0).to(tl.float32)
        total += tl.load(weights + layer) * value
    tl.store(y + token * width + column, total.to(y.dtype.element_ty), column < width)


@triton.jit
def _weighted_sum_backward(  # type: ignore[no-untyped-def]
    dy, x, partial, tokens, width, by_token, by_layer, steps,
    LAYERS: tl.constexpr, UP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    layer = tl.arange(0, UP)[:, None]
    total = tl.zeros((UP, BLOCK), tl.float32)
    first = tl.program_id(1) * steps
    inside = (column < width) & (layer < LAYERS)
    row = dy + first.to(tl.int64) * width + column
    place = x + first.to(tl.int64) * by_token + layer.to(tl.int64) * by_layer + column
    for _ in range(0, tl.minimum(steps, tokens - first)):
        grad = tl.load(row, column < width, 0.0).to(tl.float32)
        total += grad * tl.load(place, inside, 0.0).to(tl.float32)
        row += width
        place += by_token
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    number = tl.arange(0, UP)
    tl.store(partial + program * LAYERS + number, tl.sum(total, 1), number < LAYERS)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor) -> Tensor:
        layers, tokens, width = x.shape
        ctx.save_for_backward(x)
        y = x.new_empty(tokens, width)
        _weighted_sum_forward[(tokens,)](
            x, weights.float(), y, width, x.stride(1), x.stride(0),
            LAYERS=layers, BLOCK=triton.next_power_of_2(width), num_warps=4,
        )  # fmt: skip
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[None, Tensor]:
        (x,) = ctx.saved_tensors
        layers, tokens, width = x.shape
        blocks = triton.cdiv(width, _BLOCK)
        steps = triton.cdiv(tokens, max(1, _PROGRAMS // blocks))
        chunks = triton.cdiv(tokens, steps)
        partial = torch.empty((chunks * blocks, layers), dtype=torch.float32, device=x.device)
        _weighted_sum_backward[(blocks, chunks)](
            dy.contiguous(), x, partial, tokens, width, x.stride(1), x.stride(0), steps,
            LAYERS=layers, UP=triton.next_power_of_2(layers), BLOCK=_BLOCK, num_warps=8,
        )  # fmt: skip
        return None, partial.sum(0)


def weighted_sum(x: Tensor, weights: Tensor) -> Tensor:
    """x: (L, T, f) in half precision, features side by side in memory; weights: (L,) → (T, f). x gets no gradient."""
    return _WeightedSum.apply(x, weights)  # type: ignore[no-any-return]

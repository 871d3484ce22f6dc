"""relu(x + bias), and relu(W·x + bias), each way in one pass over memory, as Triton kernels for CUDA.

    y = max(0, x + b)        ∂x = ∂y where y > 0, else 0;  ∂b = Σ ∂x over rows

∂x takes the place of x in memory: nothing else may need x. Behind a matrix product of our own, which adds the bias and
cuts at 0 by itself, the gradient of the product takes the place of y. All sums have a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 2048  # numbers in a tile
_PROGRAMS = 2048  # of the backward pass; each adds a row to the partial sums


@triton.jit
def _bias_relu_forward(x, bias, y, rows, width, by_row, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < width)
    value = tl.load(x + row * by_row + column, inside, 0.0).to(tl.float32)
    value += tl.load(bias + column, column < width, 0.0).to(tl.float32)
    tl.store(y + row * width + column, tl.maximum(value, 0.0).to(y.dtype.element_ty), inside)


@triton.jit
def _bias_relu_backward(  # type: ignore[no-untyped-def]
    dy, y, dx, partial, rows, width, by_row, steps, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    column = tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    first = tl.program_id(0).to(tl.int64) * steps * ROWS
    for step in range(steps):
        row = first + step * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (column < width)
        passed = tl.load(y + row * width + column, inside, 0.0) > 0
        grad = tl.where(passed, tl.load(dy + row * width + column, inside, 0.0).to(tl.float32), 0.0)
        tl.store(dx + row * by_row + column, grad.to(dx.dtype.element_ty), inside)
        total += grad
    at = tl.arange(0, BLOCK)
    tl.store(partial + tl.program_id(0) * width + at, tl.sum(total, 0), at < width)


class _BiasRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        width = x.shape[-1]
        rows, block = x.numel() // width, triton.next_power_of_2(width)
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        each = max(1, _TILE // block)
        _bias_relu_forward[(triton.cdiv(rows, each),)](
            x, bias, y, rows, width, x.stride(-2), ROWS=each, BLOCK=block, num_warps=4
        )
        ctx.save_for_backward(y)
        ctx.place = x  # not save_for_backward, which would object to what is done to x there
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        (y,), x = ctx.saved_tensors, ctx.place
        del ctx.place
        return x, _gradients(dy, y, x)


class _LinearRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        half = weight.to(x.dtype)
        y = torch._addmm_activation(bias.to(x.dtype), x, half.T)  # cuBLAS: the product, the bias and relu at once
        ctx.save_for_backward(x, half)
        ctx.place = y  # not save_for_backward, which would object to what is done to y
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        (x, weight), dz = ctx.saved_tensors, ctx.place
        del ctx.place
        of_bias = _gradients(dy, dz, dz)
        of_x = dz @ weight if ctx.needs_input_grad[0] else None
        return of_x, (dz.T @ x).float(), of_bias


def _gradients(dy: Tensor, y: Tensor, dx: Tensor) -> Tensor:
    """The gradient of the bias; that of what it is added to is written to dx."""
    width = dx.shape[-1]
    rows, block = dx.numel() // width, triton.next_power_of_2(width)
    each = max(1, _TILE // block)
    steps = triton.cdiv(rows, each * _PROGRAMS)
    chunks = triton.cdiv(rows, each * steps)
    partial = torch.empty((chunks, width), dtype=torch.float32, device=dx.device)
    _bias_relu_backward[(chunks,)](
        dy.to(dx.dtype).contiguous(), y, dx, partial, rows, width, dx.stride(-2), steps,
        ROWS=each, BLOCK=block, num_warps=4,
    )  # fmt: skip
    return partial.sum(0)


def bias_relu(x: Tensor, bias: Tensor) -> Tensor:
    """relu(x + bias); x's values are lost in the backward pass.

    x: (…, n), n a multiple of 16, its rows at equal steps in memory; bias: (n,), fp32 → the same, contiguous
    """
    return _BiasRelu.apply(x, bias)  # type: ignore[no-any-return]


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """relu(W·x + bias); the result's values are lost in the backward pass.

    x: (rows, f) in half precision; weight: (n, f), bias: (n,), fp32, n a multiple of 16 → (rows, n)
    """
    return _LinearRelu.apply(x, weight, bias)  # type: ignore[no-any-return]

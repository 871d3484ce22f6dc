"""gelu(x + bias), by erf or by its tanh approximation, in one pass over memory, as a Triton kernel for CUDA.

    gelu(x) = x·Φ(x)        gelu′(x) = Φ(x) + x·φ(x)

The backward pass sums the gradient of the bias on the way.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from quoth.encoder.kernels.operator import like_first, operator
from quoth.encoder.kernels.sums import sum_rows

# The fastest of a dozen tried on an H200 at 48,559 tokens, f = 3072.
_ROWS = 2  # rows a tile
_BLOCK = 1024  # columns a tile
_PROGRAMS = 2048  # of the backward pass; each adds a row to the partial sums


@triton.jit
def _gelu_parts(x, TANH: tl.constexpr):  # type: ignore[no-untyped-def]
    """(Φ(x), gelu′(x)), where gelu(x) = x·Φ(x)."""
    if TANH:
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        phi = tl.sigmoid(2 * inner)  # ½(1 + tanh u) = σ(2u)
        slope = phi + x * 2 * phi * (1 - phi) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x)
    else:
        # Abramowitz and Stegun 7.1.26: |error of erf| ≤ 1.5e-7, with the exponential that the slope needs anyway.
        bell = tl.exp(-0.5 * x * x)
        t = 1.0 / (1.0 + 0.3275911 * 0.7071067811865476 * tl.abs(x))
        tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * bell
        phi = tl.where(x < 0, 0.5 * tail, 1.0 - 0.5 * tail)
        slope = phi + x * 0.3989422804014327 * bell
    return phi, slope


@triton.jit
def _gelu_forward(x, bias, y, rows, width, TANH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    blocks = tl.cdiv(width, BLOCK)  # of a row; one axis for both, since CUDA allows only 65,535 on the others
    row = (tl.program_id(0) // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < width)
    value = tl.load(x + row * width + column, inside, 0.0).to(tl.float32)
    value += tl.load(bias + column, column < width, 0.0).to(tl.float32)
    phi, _ = _gelu_parts(value, TANH)
    tl.store(y + row * width + column, (value * phi).to(y.dtype.element_ty), inside)


@triton.jit
def _gelu_backward(  # type: ignore[no-untyped-def]
    dy, x, bias, dx, partial, rows, width, steps, TANH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    shift = tl.load(bias + column, column < width, 0.0).to(tl.float32)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    first = tl.program_id(1).to(tl.int64) * steps * ROWS
    for step in range(steps):
        row = first + step * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (column < width)
        value = tl.load(x + row * width + column, inside, 0.0).to(tl.float32) + shift
        _, slope = _gelu_parts(value, TANH)
        grad = tl.load(dy + row * width + column, inside, 0.0).to(tl.float32) * slope
        tl.store(dx + row * width + column, grad.to(dx.dtype.element_ty), inside)
        total += grad
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(partial + tl.program_id(1) * width + at, tl.sum(total, 0), at < width)


def _compute(x: Tensor, bias: Tensor, tanh: bool) -> Tensor:
    rows, width = x.shape
    y = x.new_empty(x.shape)
    _gelu_forward[(triton.cdiv(width, _BLOCK) * triton.cdiv(rows, _ROWS),)](
        x.contiguous(), bias, y, rows, width, TANH=tanh, ROWS=_ROWS, BLOCK=_BLOCK, num_warps=4
    )  # fmt: skip
    return y


def _compute_gradients(dy: Tensor, x: Tensor, bias: Tensor, tanh: bool) -> tuple[Tensor, Tensor]:
    rows, width = x.shape
    blocks = triton.cdiv(width, _BLOCK)
    steps = triton.cdiv(rows, _ROWS * max(1, _PROGRAMS // blocks))
    chunks = triton.cdiv(rows, _ROWS * steps)
    dx = x.new_empty(x.shape)
    partial = torch.empty((chunks, width), dtype=torch.float32, device=x.device)
    _gelu_backward[(blocks, chunks)](
        dy.contiguous(), x.contiguous(), bias, dx, partial, rows, width, steps,
        TANH=tanh, ROWS=_ROWS, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return dx, sum_rows(partial.unsqueeze(0))[0].to(bias.dtype)


def _gradient_results(dy: Tensor, x: Tensor, bias: Tensor, tanh: bool) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), torch.empty_like(bias)


_gradients = operator("quoth::bias_gelu_backward", _compute_gradients, _gradient_results)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, bias, ctx.tanh = inputs
    ctx.save_for_backward(x, bias)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    return (*_gradients(dy, *ctx.saved_tensors, ctx.tanh), None)


_bias_gelu = operator("quoth::bias_gelu", _compute, like_first, setup=_setup, backward=_backward)


def bias_gelu(x: Tensor, bias: Tensor, tanh: bool) -> Tensor:
    """gelu(x + bias). x: (T, f) in half precision; bias: (f,)."""
    return _bias_gelu(x, bias, tanh)  # type: ignore[no-any-return]

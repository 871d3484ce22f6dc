"""Rows of states in fp8 (e4m3) with a scale each, written by the kernel that makes the rows anyway; in Triton.

    s = max |row| / 448        q = row / s  in fp8, so that row ≈ s·q

A product of such rows with a weight of rows t·w is s·t·(q·w). It comes here without its scales, and the step that
follows applies them: x = row_scale · column_scale · product.

    add_norm_fp8      y = LayerNorm(residual + x + bias) in half precision, and y in fp8
    activate_fp8      activation(x + bias) in fp8 alone
    quantise          x in fp8
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from quoth.encoder.kernels.dropout import single
from quoth.encoder.kernels.gelu import _gelu_parts

FP8 = torch.float8_e4m3fn
TOP = 448.0  # the largest number of this kind
_ROWS = 2  # rows a tile of LayerNorm

Rows = tuple[Tensor, Tensor]
"""q: (T, n) in fp8, s: (T, 1) in single precision."""


@triton.jit
def _put(value, q, scale, at, row, rows, inside):  # type: ignore[no-untyped-def]
    """Store rows (R, B) in fp8, zero outside, and their scales."""
    top = tl.maximum(tl.max(tl.abs(value), 1), 1e-30)
    tl.store(q + at, (value * (448.0 / top)[:, None]).to(q.dtype.element_ty), inside)
    tl.store(scale + row, top / 448.0, row < rows)


@triton.jit
def _add_norm_fp8(  # type: ignore[no-untyped-def]
    x, row_scale, column_scale, bias, residual, gain, offset, y, q, scale, rows, width, real, eps,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    eps = single(eps)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    at = row[:, None] * width + column[None, :]
    inside = (row < rows)[:, None] & (column < width)[None, :]
    counts = (column < real)[None, :]
    value = tl.load(x + at, inside, 0.0).to(tl.float32)
    value *= tl.load(row_scale + row, row < rows, 0.0)[:, None]
    value *= tl.load(column_scale + column, column < width, 0.0)[None, :]
    value += tl.load(bias + column, column < width, 0.0).to(tl.float32)[None, :]
    value += tl.load(residual + at, inside, 0.0).to(tl.float32)
    average = tl.sum(tl.where(counts, value, 0.0), 1) / real
    centred = tl.where(counts, value - average[:, None], 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / real + eps)
    result = centred * inverse[:, None] * tl.load(gain + column, column < width, 0.0).to(tl.float32)[None, :]
    result += tl.load(offset + column, column < width, 0.0).to(tl.float32)[None, :]
    tl.store(y + at, result.to(y.dtype.element_ty), inside)
    _put(result, q, scale, at, row, rows, inside)


@triton.jit
def _activate_fp8(  # type: ignore[no-untyped-def]
    x, row_scale, column_scale, bias, q, scale, rows, width, KIND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    at = row[:, None] * width + column[None, :]
    inside = (row < rows)[:, None] & (column < width)[None, :]
    value = tl.load(x + at, inside, 0.0).to(tl.float32)
    if KIND != 3:  # 3: the numbers as they are
        value *= tl.load(row_scale + row, row < rows, 0.0)[:, None]
        value *= tl.load(column_scale + column, column < width, 0.0)[None, :]
        value += tl.load(bias + column, column < width, 0.0).to(tl.float32)[None, :]
    if KIND == 2:
        value = tl.maximum(value, 0.0)
    elif KIND != 3:
        phi, _ = _gelu_parts(value, KIND == 1)
        value = value * phi
    _put(value, q, scale, at, row, rows, inside)


def add_norm_fp8(
    x: Tensor, row_scale: Tensor, column_scale: Tensor, bias: Tensor, residual: Tensor,
    gain: Tensor, offset: Tensor, eps: float, real: int,
) -> tuple[Tensor, Rows]:  # fmt: skip
    """LayerNorm(residual + row_scale·column_scale·x + bias) over the first `real` of w units.

    x, residual: (T, w) contiguous; row_scale: (T, 1); the rest: (w,). Returns y, (T, w), and y in fp8.
    """
    rows, width = x.shape
    y, (q, scale) = x.new_empty(x.shape), _empty(x)
    block = triton.next_power_of_2(width)
    _add_norm_fp8[(triton.cdiv(rows, _ROWS),)](
        x, row_scale, column_scale, bias, residual, gain, offset, y, q, scale, rows, width, real, eps,
        ROWS=_ROWS, BLOCK=block, num_warps=min(max(block // 256, 1), 16),
    )  # fmt: skip
    return y, (q, scale)


KINDS = {"gelu": 0, "gelu_tanh": 1, "relu": 2}


def activate_fp8(x: Tensor, row_scale: Tensor, column_scale: Tensor, bias: Tensor, activation: str) -> Rows:
    """activation(row_scale·column_scale·x + bias) in fp8. x: (T, f) contiguous; row_scale: (T, 1); the rest: (f,)."""
    return _launch(x, row_scale, column_scale, bias, KINDS[activation])


def quantise(x: Tensor) -> Rows:
    """x: (T, n) contiguous, in fp8."""
    return _launch(x, x, x, x, 3)


def _launch(x: Tensor, row_scale: Tensor, column_scale: Tensor, bias: Tensor, kind: int) -> Rows:
    rows, width = x.shape
    q, scale = _empty(x)
    block = triton.next_power_of_2(width)
    tile = max(1, 2048 // block)
    _activate_fp8[(triton.cdiv(rows, tile),)](
        x, row_scale, column_scale, bias, q, scale, rows, width,
        KIND=kind, ROWS=tile, BLOCK=block, num_warps=min(max(tile * block // 512, 1), 16),
    )  # fmt: skip
    return q, scale


def _empty(x: Tensor) -> Rows:
    return x.new_empty(x.shape, dtype=FP8), x.new_empty((len(x), 1), dtype=torch.float32)

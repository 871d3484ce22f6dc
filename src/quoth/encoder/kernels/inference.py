"""LayerNorm of a residual sum as inference alone needs it, in Triton: no dropout, nothing kept for a gradient.

    z = residual + x + bias        y = (z − mean z) / √(var z + ε) · gain + offset

Rows may be wider than the h units that count: the rest of x, bias, residual, gain and offset is 0, it is left out of
mean and variance, and the rest of y is 0. Where nothing is added, the result is that of `kernels/add_norm.py`.
With fp8 the rows are also stored in that type, divided by a scale for each column.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from quoth.encoder.kernels.dropout import single

_ROWS = 2  # rows a tile, as in `kernels/add_norm.py`


@triton.jit
def _add_norm(  # type: ignore[no-untyped-def]
    x, bias, residual, gain, offset, inverse, y, q, rows, width, real, eps,
    FP8: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    eps = single(eps)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    at = row[:, None] * width + column[None, :]
    inside = (row < rows)[:, None] & (column < width)[None, :]
    counts = (column < real)[None, :]
    value = tl.load(x + at, inside, 0.0).to(tl.float32)
    value += tl.load(bias + column, column < width, 0.0).to(tl.float32)[None, :]
    value += tl.load(residual + at, inside, 0.0).to(tl.float32)
    value = value.to(y.dtype.element_ty).to(tl.float32)  # as training has it, which stores z
    average = tl.sum(tl.where(counts, value, 0.0), 1) / real
    centred = tl.where(counts, value - average[:, None], 0.0)
    root = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / real + eps)
    result = centred * root[:, None] * tl.load(gain + column, column < width, 0.0).to(tl.float32)[None, :]
    result += tl.load(offset + column, column < width, 0.0).to(tl.float32)[None, :]
    tl.store(y + at, result.to(y.dtype.element_ty), inside)
    if FP8:
        result *= tl.load(inverse + column, column < width, 0.0)[None, :]
        tl.store(q + at, result.to(q.dtype.element_ty), inside)


def add_norm(x: Tensor, bias: Tensor, residual: Tensor, gain: Tensor, offset: Tensor, eps: float, real: int) -> Tensor:
    """LayerNorm(residual + x + bias) over the first `real` of w units.

    x, residual: (T, w) contiguous; the rest: (w,). Returns (T, w), zero from `real` on.
    """
    y = x.new_empty(x.shape)
    block = triton.next_power_of_2(x.shape[1])
    _launch(x, bias, residual, gain, offset, gain, y, y, real, eps, False, min(max(block // 256, 1), 16))
    return y


def add_norm_fp8(
    x: Tensor, bias: Tensor, residual: Tensor, gain: Tensor, offset: Tensor, eps: float,
    real: int, inverse: Tensor, kind: torch.dtype,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The same, and the same times `inverse`, (w,), in the type `kind`. Returns (T, w) each."""
    y, q = x.new_empty(x.shape), x.new_empty(x.shape, dtype=kind)
    block = triton.next_power_of_2(x.shape[1])
    # Fewer warps: the fastest of eight tried on an H200 at 92,123 tokens, h = 1024.
    _launch(x, bias, residual, gain, offset, inverse, y, q, real, eps, True, min(max(block // 512, 1), 16))
    return y, q


def _launch(
    x: Tensor, bias: Tensor, residual: Tensor, gain: Tensor, offset: Tensor, inverse: Tensor, y: Tensor, q: Tensor,
    real: int, eps: float, fp8: bool, warps: int,
) -> None:  # fmt: skip
    rows, width = x.shape
    _add_norm[(triton.cdiv(rows, _ROWS),)](
        x, bias, residual, gain, offset, inverse, y, q, rows, width, real, eps,
        FP8=fp8, ROWS=_ROWS, BLOCK=triton.next_power_of_2(width), num_warps=warps,
    )  # fmt: skip

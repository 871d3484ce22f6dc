"""The steps after a matrix product as inference alone needs them, in Triton: no dropout, nothing kept for a gradient.

    add_norm    y = (z − mean z) / √(var z + ε) · gain + offset,   z = residual + x + bias

Rows may be wider than the h units that count: the rest of x, bias, residual, gain and offset is 0, it is left out of
mean and variance, and the rest of y is 0. Where nothing is added, the result is that of `kernels/add_norm.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from quoth.encoder.kernels.dropout import single

_ROWS = 2  # rows a tile, as in `kernels/add_norm.py`


@triton.jit
def _add_norm(  # type: ignore[no-untyped-def]
    x, bias, residual, gain, offset, y, rows, width, real, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
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
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / real + eps)
    result = centred * inverse[:, None] * tl.load(gain + column, column < width, 0.0).to(tl.float32)[None, :]
    result += tl.load(offset + column, column < width, 0.0).to(tl.float32)[None, :]
    tl.store(y + at, result.to(y.dtype.element_ty), inside)


def add_norm(x: Tensor, bias: Tensor, residual: Tensor, gain: Tensor, offset: Tensor, eps: float, real: int) -> Tensor:
    """LayerNorm(residual + x + bias) over the first `real` of w units.

    x, residual: (T, w) contiguous; the rest: (w,). Returns (T, w), zero from `real` on.
    """
    rows, width = x.shape
    y = x.new_empty(x.shape)
    block = triton.next_power_of_2(width)
    _add_norm[(triton.cdiv(rows, _ROWS),)](
        x, bias, residual, gain, offset, y, rows, width, real, eps,
        ROWS=_ROWS, BLOCK=block, num_warps=min(max(block // 256, 1), 16),
    )  # fmt: skip
    return y

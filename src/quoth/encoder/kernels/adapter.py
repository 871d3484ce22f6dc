"""Dropout and the adapter behind it, one kernel each way, for CUDA in half precision.

    x = dropout(product + bias)        low = W₁·x + b₁        total = x + W₂·gelu(low)        W₁: (d, h), W₂: (h, d)
    ∂low = gelu′(low)·(W₂ᵀ·∂total)     ∂product = dropout(∂total + W₁ᵀ·∂low)                  the same mask

An adapter is bound by memory: its products are small, and as kernels of their own each of them reads or writes a whole
(T, h). Here a program keeps `low` of some rows in registers and goes over their columns twice; the second time they
come from the cache. One (T, h) is read and two are written forward, one is read and one written backward. x is written
for the gradient of W₁, and not read again in the second round: it is computed again from the product.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from quoth.encoder.kernels.dropout import column_key, keep_threshold, kept, row_key, single
from quoth.encoder.kernels.gelu import gelu_parts
from quoth.encoder.kernels.sums import sum_rows

WIDEST = 128  # the largest d whose part of a tile fits the registers

# (rows, columns) a tile, warps, pipeline stages
_FORWARD = (64, 64, 4, 3)
_BACKWARD = (64, 64, 4, 3)


@triton.jit
def _dropped(product, bias, keys, row_keys, at, inside, column, width, threshold, rescale, BIAS: tl.constexpr):  # type: ignore[no-untyped-def]
    """A tile of dropout(product + bias), rounded as it is stored."""
    value = tl.load(product + at, inside, 0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias + column, column < width, 0.0).to(tl.float32)[None, :]
    keep = kept(row_keys, column_key(keys, column)[None, :], threshold)
    return tl.where(keep & inside, value * rescale, 0.0).to(product.dtype.element_ty)


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    product, bias, w1, b1, w2, seed, x, low, total, rows, width, size, threshold, rescale,
    BIAS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    rescale = single(rescale)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    unit = tl.arange(0, SIZE)
    keys = tl.load(seed)
    row_keys = row_key(keys, row)[:, None]
    down = tl.zeros((ROWS, SIZE), tl.float32)
    for first in range(0, width, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        at, inside = row[:, None] * width + column[None, :], (row < rows)[:, None] & (column < width)[None, :]
        value = _dropped(product, bias, keys, row_keys, at, inside, column, width, threshold, rescale, BIAS)
        tl.store(x + at, value, inside)
        weight = tl.load(
            w1 + unit[None, :] * width + column[:, None], (unit < size)[None, :] & (column < width)[:, None], 0.0
        )
        down = tl.dot(value, weight, down)
    down += tl.load(b1 + unit, unit < size, 0.0).to(tl.float32)[None, :]
    here = row[:, None] * size + unit[None, :]
    rounded = down.to(low.dtype.element_ty)
    tl.store(low + here, rounded, (row < rows)[:, None] & (unit < size)[None, :])
    stored = rounded.to(tl.float32)  # as the backward pass reads it
    phi, _ = gelu_parts(stored, False)
    active = (stored * phi).to(low.dtype.element_ty)
    for first in range(0, width, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        at, inside = row[:, None] * width + column[None, :], (row < rows)[:, None] & (column < width)[None, :]
        value = _dropped(product, bias, keys, row_keys, at, inside, column, width, threshold, rescale, BIAS)
        weight = tl.load(
            w2 + column[None, :] * size + unit[:, None], (unit < size)[:, None] & (column < width)[None, :], 0.0
        )
        tl.store(total + at, tl.dot(active, weight, value.to(tl.float32)).to(total.dtype.element_ty), inside)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    dtotal, low, w1, w2, seed, dproduct, dlow, active, partial, rows, width, size, threshold, rescale,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Also writes gelu(low), for the gradient of W₂, and a row of partial sums of ∂low, for that of b₁."""
    rescale = single(rescale)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    unit = tl.arange(0, SIZE)
    keys = tl.load(seed)
    row_keys = row_key(keys, row)[:, None]
    down = tl.zeros((ROWS, SIZE), tl.float32)
    for first in range(0, width, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        at, inside = row[:, None] * width + column[None, :], (row < rows)[:, None] & (column < width)[None, :]
        grad = tl.load(dtotal + at, inside, 0.0)
        weight = tl.load(
            w2 + column[:, None] * size + unit[None, :], (unit < size)[None, :] & (column < width)[:, None], 0.0
        )
        down = tl.dot(grad, weight, down)
    here = row[:, None] * size + unit[None, :]
    real = (row < rows)[:, None] & (unit < size)[None, :]
    stored = tl.load(low + here, real, 0.0).to(tl.float32)
    phi, slope = gelu_parts(stored, False)
    tl.store(active + here, (stored * phi).to(active.dtype.element_ty), real)
    down *= slope
    tl.store(partial + tl.program_id(0) * size + unit, tl.sum(down, 0), unit < size)
    rounded = down.to(dlow.dtype.element_ty)
    tl.store(dlow + here, rounded, real)
    for first in range(0, width, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        at, inside = row[:, None] * width + column[None, :], (row < rows)[:, None] & (column < width)[None, :]
        grad = tl.load(dtotal + at, inside, 0.0).to(tl.float32)
        weight = tl.load(
            w1 + unit[:, None] * width + column[None, :], (unit < size)[:, None] & (column < width)[None, :], 0.0
        )
        grad = tl.dot(rounded, weight, grad)
        keep = kept(row_keys, column_key(keys, column)[None, :], threshold)
        tl.store(dproduct + at, tl.where(keep, grad * rescale, 0.0).to(dproduct.dtype.element_ty), inside)


def adapted(
    product: Tensor, bias: Tensor | None, w1: Tensor, b1: Tensor, w2: Tensor, seed: Tensor, p: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(x, low, total): (T, h), (T, d), (T, h). product: (T, h); it, w1, b1 and w2 in half precision; d ≤ `WIDEST`."""
    (rows, width), size = product.shape, len(w1)
    x, low, total = product.new_empty((rows, width)), product.new_empty((rows, size)), product.new_empty((rows, width))
    tile, launch = _tiling(_FORWARD, size)
    _forward[(triton.cdiv(rows, tile["ROWS"]),)](
        product.contiguous(), product if bias is None else bias, w1.contiguous(), b1, w2.contiguous(), seed,
        x, low, total, rows, width, size, keep_threshold(p), 1 / (1 - p), BIAS=bias is not None, **tile, **launch,
    )  # fmt: skip
    return x, low, total


def adapted_gradients(
    dtotal: Tensor, low: Tensor, w1: Tensor, w2: Tensor, seed: Tensor, p: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(∂product (T, h), ∂low (T, d), gelu(low) (T, d), ∂b₁ (d,) in float32) from ∂total (T, h)."""
    (rows, width), size = dtotal.shape, len(w1)
    tile, launch = _tiling(_BACKWARD, size)
    programs = triton.cdiv(rows, tile["ROWS"])
    dproduct, dlow, active = dtotal.new_empty((rows, width)), torch.empty_like(low), torch.empty_like(low)
    partial = torch.empty((1, programs, size), dtype=torch.float32, device=low.device)
    _backward[(programs,)](
        dtotal.contiguous(), low, w1.contiguous(), w2.contiguous(), seed, dproduct, dlow, active, partial,
        rows, width, size, keep_threshold(p), 1 / (1 - p), **tile, **launch,
    )  # fmt: skip
    return dproduct, dlow, active, sum_rows(partial)[0]


def _tiling(tiling: tuple[int, int, int, int], size: int) -> tuple[dict[str, int], dict[str, int]]:
    """The sizes of a tile, and how to launch the kernel."""
    rows, columns, warps, stages = tiling
    tile = {"ROWS": rows, "COLUMNS": columns, "SIZE": max(16, triton.next_power_of_2(size))}
    return tile, {"num_warps": warps, "num_stages": stages}

"""Dropout inside kernels: a mask is a hash of (seed, row, column), drawn anew in the backward pass instead of stored.

The seed is a tensor on the device, taken from torch's generator, so that checkpointing, compilation and `manual_seed`
work as usual. An element is kept if row key × column key mod 2³² ≥ p·2³², where the keys are hashed once a row and once
a column.

`drop` is the kernel for dropout alone, y = dropout(x + bias), in one pass over memory: where the residual sum, which
`add_norm` fuses, does not follow it, in front of an adapter (`quoth.tune.adapters`).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _BLOCK = 8, 256  # of a tile of `drop`


@triton.jit
def single(x):  # type: ignore[no-untyped-def]
    """A scalar argument in single precision: torch.compile hands floats over in double."""
    return tl.full((), x, tl.float32)


@triton.jit
def _mixed(h):  # type: ignore[no-untyped-def]
    """A 32-bit hash (lowbias32) in which every input bit moves every output bit."""
    h = (h ^ (h >> 16)) * 0x7FEB352D
    h = (h ^ (h >> 15)) * 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def row_key(seed, row):  # type: ignore[no-untyped-def]
    """The random number of a row of a dropout mask: odd, so that times it all 32-bit numbers stay apart."""
    return _mixed(row.to(tl.uint32) * 0x9E3779B9 + seed.to(tl.uint32)) | 1


@triton.jit
def column_key(seed, column):  # type: ignore[no-untyped-def]
    """The random number of a column of a dropout mask."""
    return _mixed(column.to(tl.uint32) * 0x85EBCA6B + (seed.to(tl.uint32) ^ 0x5BD1E995))


@triton.jit
def kept(rows, columns, threshold):  # type: ignore[no-untyped-def]
    """Which elements dropout keeps: row key × column key mod 2³² ≥ p·2³². (philox: 100 instructions; this: 2.)"""
    return rows * columns >= threshold.to(tl.uint32)


def seed_for(x: Tensor, p: float) -> Tensor:
    """A seed for one dropout mask, from torch's generator of x's device; empty where nothing is dropped."""
    if p == 0:
        return torch.empty(0, dtype=torch.int32, device=x.device)
    return torch.randint(2**31 - 1, (1,), dtype=torch.int32, device=x.device)


def keep_threshold(p: float) -> int:
    """The least hash that keeps an element: a part p of all 32-bit numbers lies below it."""
    return min(int(p * 2**32), 2**32 - 1)


@triton.jit
def _drop(  # type: ignore[no-untyped-def]
    x, bias, more, seed, y, rows, width, threshold, rescale,
    BIAS: tl.constexpr, MORE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    rescale = single(rescale)
    blocks = tl.cdiv(width, BLOCK)  # of a row; one axis for both, since CUDA allows only 65,535 on the others
    row = (tl.program_id(0) // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    at = row[:, None] * width + column[None, :]
    inside = (row < rows)[:, None] & (column < width)[None, :]
    value = tl.load(x + at, inside, 0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias + column, column < width, 0.0).to(tl.float32)[None, :]
    if MORE:
        value += tl.load(more + at, inside, 0.0).to(tl.float32)
    keys = tl.load(seed)
    keep = kept(row_key(keys, row)[:, None], column_key(keys, column)[None, :], threshold)
    tl.store(y + at, tl.where(keep, value * rescale, 0.0).to(y.dtype.element_ty), inside)


def drop(x: Tensor, bias: Tensor | None, seed: Tensor, p: float, more: Tensor | None = None) -> Tensor:
    """The kernel alone, without a gradient: dropout(x + bias + more). x, more: (T, h) in half precision; bias: (h,)."""
    rows, width = x.shape
    y = x.new_empty(x.shape)
    _drop[(triton.cdiv(width, _BLOCK) * triton.cdiv(rows, _ROWS),)](
        x.contiguous(), x if bias is None else bias, x if more is None else more.contiguous(), seed, y, rows, width,
        keep_threshold(p), 1 / (1 - p),
        BIAS=bias is not None, MORE=more is not None, ROWS=_ROWS, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return y

"""Dropout inside kernels: a mask is a hash of (seed, row, column), drawn anew in the backward pass instead of stored.

The seed is a tensor on the device, taken from torch's generator, so that checkpointing, compilation and `manual_seed`
work as usual. An element is kept if row key × column key mod 2³² ≥ p·2³², where the keys are hashed once a row and once
a column.

`bias_dropout` is the kernel for dropout alone, y = dropout(x + bias), in one pass over memory: where the residual sum,
which `add_norm` fuses, does not follow it, in front of an adapter.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from quoth.encoder.kernels.operator import like_first, operator

_ROWS, _BLOCK = 8, 256  # of a tile of `bias_dropout`


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
def _bias_dropout(  # type: ignore[no-untyped-def]
    x, bias, seed, y, rows, width, threshold, rescale,
    BIAS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
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
    keys = tl.load(seed)
    keep = kept(row_key(keys, row)[:, None], column_key(keys, column)[None, :], threshold)
    tl.store(y + at, tl.where(keep, value * rescale, 0.0).to(y.dtype.element_ty), inside)


def _compute(x: Tensor, bias: Tensor | None, seed: Tensor, p: float) -> Tensor:
    rows, width = x.shape
    y = x.new_empty(x.shape)
    _bias_dropout[(triton.cdiv(width, _BLOCK) * triton.cdiv(rows, _ROWS),)](
        x.contiguous(), x if bias is None else bias, seed, y, rows, width, keep_threshold(p), 1 / (1 - p),
        BIAS=bias is not None, ROWS=_ROWS, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return y


def _compute_gradient(dy: Tensor, seed: Tensor, p: float) -> Tensor:
    return _compute(dy, None, seed, p)


_gradient = operator("quoth::bias_dropout_backward", _compute_gradient, like_first)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, bias, seed, ctx.p = inputs
    ctx.save_for_backward(seed)
    ctx.bias = bias.dtype


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    dx = _gradient(dy, *ctx.saved_tensors, ctx.p)
    of_bias = dx.sum(0, dtype=torch.float32).to(ctx.bias) if ctx.needs_input_grad[1] else None
    return dx, of_bias, None, None


_operator = operator("quoth::bias_dropout", _compute, like_first, setup=_setup, backward=_backward)


def bias_dropout(x: Tensor, bias: Tensor, p: float) -> Tensor:
    """dropout(x + bias), p above 0. x: (T, h) in half precision; bias: (h,)."""
    return _operator(x, bias, seed_for(x, p), p)  # type: ignore[no-any-return]

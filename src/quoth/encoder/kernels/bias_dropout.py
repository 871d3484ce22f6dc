"""Bias and dropout in one pass over memory, without a stored mask, as a Triton kernel for CUDA in half precision.

    y = dropout(x + bias)

For the places where dropout is not followed by the residual sum, which `add_norm` fuses: in front of an adapter.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from quoth.encoder.kernels.dropout import column_key, keep_threshold, kept, row_key, seed_for, single
from quoth.encoder.kernels.operator import operator

_ROWS, _BLOCK = 8, 256


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


def _launch(x: Tensor, bias: Tensor | None, seed: Tensor, p: float) -> Tensor:
    rows, width = x.shape
    y = x.new_empty(x.shape)
    _bias_dropout[(triton.cdiv(width, _BLOCK) * triton.cdiv(rows, _ROWS),)](
        x.contiguous(), x if bias is None else bias, seed, y, rows, width, keep_threshold(p), 1 / (1 - p),
        BIAS=bias is not None, ROWS=_ROWS, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return y


def _compute(x: Tensor, bias: Tensor, seed: Tensor, p: float) -> Tensor:
    return _launch(x, bias, seed, p)


def _compute_gradient(dy: Tensor, seed: Tensor, p: float) -> Tensor:
    return _launch(dy, None, seed, p)


def _result(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


_gradient = operator("quoth::bias_dropout_backward", _compute_gradient, _result)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, bias, seed, ctx.p = inputs
    ctx.save_for_backward(seed)
    ctx.bias = bias.dtype


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    dx = _gradient(dy, *ctx.saved_tensors, ctx.p)
    of_bias = dx.sum(0, dtype=torch.float32).to(ctx.bias) if ctx.needs_input_grad[1] else None
    return dx, of_bias, None, None


_operator = operator("quoth::bias_dropout", _compute, _result, setup=_setup, backward=_backward)


def bias_dropout(x: Tensor, bias: Tensor, p: float) -> Tensor:
    """dropout(x + bias), p above 0. x: (T, h) in half precision; bias: (h,)."""
    return _operator(x, bias, seed_for(x, p), p)  # type: ignore[no-any-return]

"""Activation and attention that write fp8 (e4m3), for inference on CUDA; in Triton.

    activate_fp8    activation(x + bias)/c
    attend_fp8      attention, whose values come divided by their scales already

c is a scale for each column, so large that no number overflows (`quoth.encoder.fp8`); its inverse is given.
LayerNorm that does the same is in `kernels/inference.py`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from quoth.encoder.kernels import flash
from quoth.encoder.kernels.dropout import keep_threshold
from quoth.encoder.kernels.gelu import _gelu_parts
from quoth.encoder.kernels.relative import LOG2E

_TILE = (2, 1024)  # rows and columns of the activation, as in `kernels/gelu.py`
KINDS = {"gelu": 0, "gelu_tanh": 1, "relu": 2}


@triton.jit
def _activate_fp8(  # type: ignore[no-untyped-def]
    x, bias, inverse, q, rows, width, KIND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    blocks = tl.cdiv(width, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < width)
    value = tl.load(x + row * width + column, inside, 0.0).to(tl.float32)
    value += tl.load(bias + column, column < width, 0.0)
    if KIND == 2:
        value = tl.maximum(value, 0.0)
    else:
        phi, _ = _gelu_parts(value, KIND == 1)
        value = value * phi
    value *= tl.load(inverse + column, column < width, 0.0)
    tl.store(q + row * width + column, value.to(q.dtype.element_ty), inside)


def activate_fp8(x: Tensor, bias: Tensor, activation: str, inverse: Tensor, kind: torch.dtype) -> Tensor:
    """activation(x + bias) · inverse in the type `kind`. x: (T, f) contiguous; bias, inverse: (f,)."""
    rows, width = x.shape
    q = x.new_empty(x.shape, dtype=kind)
    _activate_fp8[(triton.cdiv(width, _TILE[1]) * triton.cdiv(rows, _TILE[0]),)](
        x, bias, inverse, q, rows, width, KIND=KINDS[activation], ROWS=_TILE[0], BLOCK=_TILE[1], num_warps=4
    )
    return q


def attend_fp8(
    qkv: Tensor, starts: Tensor, longest: int, heads: int, key: int, value: int, scale: float, kind: torch.dtype
) -> Tensor:
    """As `flash_attention` without dropout and gradient, stored in the type `kind`. (T, a·(2k + v)) → (T, a·v)."""
    tokens = len(qkv)
    out = qkv.new_empty((tokens, heads * value), dtype=kind)
    logsum = qkv.new_empty((heads, tokens), dtype=torch.float32)
    settings = flash._settings(key, value, 0.0, flash._FORWARD, None)
    flash._forward[(triton.cdiv(longest, settings["M"]), heads, len(starts) - 1)](
        qkv, starts, out, logsum, starts, qkv, 0, heads, tokens, LOG2E * scale, keep_threshold(0.0), 1.0, **settings
    )  # fmt: skip
    return out

"""For each token its own mixtures of its layers, which do not learn, in one pass over them, as Triton kernels for CUDA.

y_a = Σₗ w_aₗ·xₗ        ∂w_aₗ = ∂y_a·xₗ        for each token; a: a query and attention head

A token is a small matrix product on tensor cores: (a, L) by (L, f), and on the way back (a, f) by (f, L).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 128  # features a tile


@triton.jit
def _token_mix_forward(  # type: ignore[no-untyped-def]
    x, weights, y, tokens, width, x_by_token, x_by_layer, w_by_token, w_by_layer,
    MIXES: tl.constexpr, MIXES_UP: tl.constexpr, LAYERS: tl.constexpr, UP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    mix, layer = tl.arange(0, MIXES_UP), tl.arange(0, UP)
    place = weights + token * w_by_token + layer[None, :].to(tl.int64) * w_by_layer + mix[:, None]
    shares = tl.load(place, (mix < MIXES)[:, None] & (layer < LAYERS)[None, :], 0.0).to(x.dtype.element_ty)
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        there = (column < width)[None, :]
        state = x + token * x_by_token + layer[:, None].to(tl.int64) * x_by_layer + column[None, :]
        states = tl.load(state, (layer < LAYERS)[:, None] & there, 0.0)
        mixed = tl.dot(shares, states, input_precision="ieee")
        out = y + (mix[:, None].to(tl.int64) * tokens + token) * width + column[None, :]
        tl.store(out, mixed.to(y.dtype.element_ty), (mix < MIXES)[:, None] & there)


@triton.jit
def _token_mix_backward(  # type: ignore[no-untyped-def]
    x, dy, dw, tokens, width, x_by_token, x_by_layer,
    MIXES: tl.constexpr, MIXES_UP: tl.constexpr, LAYERS: tl.constexpr, UP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    mix, layer = tl.arange(0, MIXES_UP), tl.arange(0, UP)
    total = tl.zeros((MIXES_UP, UP), tl.float32)
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        there = (column < width)[None, :]
        state = x + token * x_by_token + layer[:, None].to(tl.int64) * x_by_layer + column[None, :]
        grad = dy + (mix[:, None].to(tl.int64) * tokens + token) * width + column[None, :]
        grads = tl.load(grad, (mix < MIXES)[:, None] & there, 0.0)
        states = tl.load(state, (layer < LAYERS)[:, None] & there, 0.0)
        total = tl.dot(grads, tl.trans(states), total, input_precision="ieee")
    out = dw + (layer[None, :].to(tl.int64) * tokens + token) * MIXES + mix[:, None]
    tl.store(out, total, (mix < MIXES)[:, None] & (layer < LAYERS)[None, :])


def _sizes(mixes: int, layers: int) -> dict[str, int]:
    up = {"MIXES_UP": max(16, triton.next_power_of_2(mixes)), "UP": max(16, triton.next_power_of_2(layers))}
    return {"MIXES": mixes, "LAYERS": layers, **up, "BLOCK": _BLOCK, "num_warps": 4}


class _TokenMix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor) -> Tensor:
        layers, tokens, width = x.shape
        mixes = weights.shape[-1]
        ctx.save_for_backward(x)
        ctx.weights = mixes, weights.dtype
        y = x.new_empty(mixes, tokens, width)
        _token_mix_forward[(tokens,)](
            x, weights, y, tokens, width, x.stride(1), x.stride(0), weights.stride(1), weights.stride(0),
            **_sizes(mixes, layers),
        )  # fmt: skip
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[None, Tensor]:
        (x,) = ctx.saved_tensors
        (mixes, dtype), (layers, tokens, width) = ctx.weights, x.shape
        dw = torch.empty((layers, tokens, mixes), dtype=torch.float32, device=x.device)
        _token_mix_backward[(tokens,)](
            x, dy.to(x.dtype).contiguous(), dw, tokens, width, x.stride(1), x.stride(0), **_sizes(mixes, layers)
        )
        return None, dw.to(dtype)


def token_mix(x: Tensor, weights: Tensor) -> Tensor:
    """x: (L, T, f) in half precision, features side by side; weights: (L, T, a), a's side by side → (a, T, f).

    x gets no gradient.
    """
    return _TokenMix.apply(x, weights if weights.stride(-1) == 1 else weights.contiguous())  # type: ignore[no-any-return]

"""A dense layer on gelu of products, which are read once each way and never written, as a Triton kernel for CUDA.

    logits = Σₗ Vₗ·yₗ,  yₗ = gelu(zₗ + bₗ)        gelu in its tanh form, gelu(x) = x·Φ(x)
    ∂Vₗ = Σ ∂logits·yₗᵀ,  ∂zₗ = gelu′(zₗ + bₗ)·(Vₗᵀ·∂logits),  ∂bₗ = Σ ∂zₗ      sums over tokens

The two logits of spans. ∂z takes the place of z in memory: nothing else may need z.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# Among the fastest of those tried on an H200, for 25 layers of 46,000 tokens and a size of 386.
_PROGRAMS = 4096  # of the backward pass, about; each adds a row to the partial sums
_FORWARD = 2048, 4  # numbers in a tile, warps
_BACKWARD = 1024, 4
_LEAST = 16  # tiles of a program of the backward pass: its end costs as much as some of them


@triton.jit
def _gelu(x, CUDA: tl.constexpr):  # type: ignore[no-untyped-def]
    """gelu(x) by tanh, and its slope. Triton's interpreter, which is not CUDA, knows no instructions of a GPU."""
    square = x * x
    inner = x * (0.7978845608028654 + 0.035677408136300125 * square)
    if CUDA:
        t = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [inner], tl.float32, True, 1)
    else:
        t = 2 * tl.sigmoid(2 * inner) - 1
    phi = 0.5 + 0.5 * t
    slope = phi + x * (0.5 - 0.5 * t * t) * (0.7978845608028654 + 0.10703222440890037 * square)
    return x * phi, slope


@triton.jit
def _gelu_linear_forward(  # type: ignore[no-untyped-def]
    z, bias, weight, out, tokens, width, by_token, by_layer, bias_by_layer,
    LAYERS: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, CUDA: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    start = tl.zeros((ROWS, BLOCK), tl.float32)
    end = tl.zeros((ROWS, BLOCK), tl.float32)
    column = tl.arange(0, BLOCK)
    rows = z + token[:, None] * by_token
    value = tl.load(rows + column[None, :], (token[:, None] < tokens) & (column < width)[None, :], 0.0)
    wide = tl.full((), 0, tl.int64)  # layer · by_layer might not fit 32 bits
    for tile in range(LAYERS * BLOCKS):
        now = value.to(tl.float32)
        layer, column = tile // BLOCKS, tile % BLOCKS * BLOCK + tl.arange(0, BLOCK)
        there = column < width
        # The next tile is on its way while this one is computed.
        following = tl.minimum(tile + 1, LAYERS * BLOCKS - 1)
        after = following % BLOCKS * BLOCK + tl.arange(0, BLOCK)
        inside = (token[:, None] < tokens) & (after < width)[None, :]
        value = tl.load(rows + (wide + following // BLOCKS) * by_layer + after[None, :], inside, 0.0)
        y, _ = _gelu(now + tl.load(bias + layer * bias_by_layer + column, there, 0.0)[None, :], CUDA)
        start += y * tl.load(weight + layer * width + column, there, 0.0)[None, :]
        end += y * tl.load(weight + (LAYERS + layer) * width + column, there, 0.0)[None, :]
    tl.store(out + token * 2, tl.sum(start, 1), token < tokens)
    tl.store(out + token * 2 + 1, tl.sum(end, 1), token < tokens)


@triton.jit
def _gelu_linear_backward(  # type: ignore[no-untyped-def]
    grad, z, bias, weight, partial, tokens, width, by_token, by_layer, bias_by_layer, steps,
    LAYERS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, CUDA: tl.constexpr,
):  # fmt: skip
    layer = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = column < width
    shift = tl.load(bias + layer * bias_by_layer + column, there, 0.0)[None, :]
    to_start = tl.load(weight + layer * width + column, there, 0.0)[None, :]
    to_end = tl.load(weight + (LAYERS + layer) * width + column, there, 0.0)[None, :]
    of_start = tl.zeros((ROWS, BLOCK), tl.float32)
    of_end = tl.zeros((ROWS, BLOCK), tl.float32)
    of_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    first = tl.program_id(2).to(tl.int64) * steps * ROWS
    last = tl.minimum(first + steps * ROWS, tokens)
    token = first + tl.arange(0, ROWS)
    place = z + token[:, None] * by_token + layer * by_layer + column[None, :]
    inside = (token[:, None] < last) & there[None, :]
    value = tl.load(place, inside, 0.0)
    next_start = tl.load(grad + token * 2, token < last, 0.0)
    next_end = tl.load(grad + token * 2 + 1, token < last, 0.0)
    for _ in range(steps):
        now, from_start, from_end, here, mine = value.to(tl.float32), next_start, next_end, place, inside
        token += ROWS  # the next tile is on its way while this one is computed
        place += ROWS * by_token
        inside = (token[:, None] < last) & there[None, :]
        value = tl.load(place, inside, 0.0)
        next_start = tl.load(grad + token * 2, token < last, 0.0)
        next_end = tl.load(grad + token * 2 + 1, token < last, 0.0)
        y, slope = _gelu(now + shift, CUDA)
        dz = slope * (from_start[:, None] * to_start + from_end[:, None] * to_end)
        tl.store(here, dz.to(z.dtype.element_ty), mine)
        of_start += from_start[:, None] * y
        of_end += from_end[:, None] * y
        of_bias += dz
    at = partial + (tl.program_id(2) * LAYERS + layer) * 3 * width + column
    tl.store(at, tl.sum(of_start, 0), there)
    tl.store(at + width, tl.sum(of_end, 0), there)
    tl.store(at + 2 * width, tl.sum(of_bias, 0), there)


def _columns(width: int) -> int:
    """Of a tile: so many that few of the last tile of a row are beyond the width."""
    if width <= 64:
        return int(triton.next_power_of_2(width))
    return min((256, 128, 64), key=lambda n: triton.cdiv(width, n) * n)


class _GeluLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
        layers, tokens, _ = z.shape
        width, (tile, warps) = bias.shape[-1], _FORWARD
        block = _columns(width)
        rows = tile // block
        out = torch.empty((tokens, 2), dtype=torch.float32, device=z.device)
        _gelu_linear_forward[(triton.cdiv(tokens, rows),)](
            z, bias, weight, out, tokens, width, z.stride(1), z.stride(0), width if len(bias) > 1 else 0,
            LAYERS=layers, BLOCKS=triton.cdiv(width, block), ROWS=rows, BLOCK=block, CUDA=z.is_cuda, num_warps=warps,
        )  # fmt: skip
        ctx.parts = z, bias, weight  # not save_for_backward, which would object to what is done to z there
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z, bias, weight = ctx.parts
        del ctx.parts
        layers, tokens, _ = z.shape
        width = bias.shape[-1]
        tile, warps = _BACKWARD
        block = _columns(width)
        rows = tile // block
        blocks = triton.cdiv(width, block)
        steps = max(_LEAST, triton.cdiv(tokens, rows * max(1, _PROGRAMS // (layers * blocks))))
        chunks = triton.cdiv(tokens, rows * steps)
        partial = torch.empty((chunks, layers, 3, width), dtype=torch.float32, device=z.device)
        each = len(bias) > 1
        _gelu_linear_backward[(blocks, layers, chunks)](
            grad.contiguous(), z, bias, weight, partial, tokens, width, z.stride(1), z.stride(0),
            width if each else 0, steps,
            LAYERS=layers, ROWS=rows, BLOCK=block, CUDA=z.is_cuda, num_warps=warps,
        )  # fmt: skip
        total = partial.sum(0)
        of_bias = total[:, 2] if each else total[:, 2].sum(0, keepdim=True)
        return z, of_bias, total[:, :2].transpose(0, 1)


def gelu_linear(z: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
    """Two logits a token of gelu(z + bias).

    z: (L, T, f) in half precision, features side by side in memory; its values are lost in the backward pass
    bias: (1 or L, f); weight: (2, L, f), all fp32 → (T, 2), fp32
    Loads are as wide as they can be where f and the steps from row to row in memory are multiples of 16.
    """
    return _GeluLinear.apply(z, bias.contiguous(), weight.contiguous())  # type: ignore[no-any-return]

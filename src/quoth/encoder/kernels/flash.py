"""Variable-length flash attention for short windows, with dropout and with key size ≠ value size, in Triton.

For query i, key j and a head's mask Z (0, or 1/(1 − p) with probability 1 − p):

    Sᵢⱼ = qᵢ·kⱼ / √k     P = softmax(S)     oᵢ = Σⱼ Pᵢⱼ Zᵢⱼ vⱼ
    dPᵢⱼ = Zᵢⱼ (doᵢ·vⱼ)   dSᵢⱼ = Pᵢⱼ (dPᵢⱼ − doᵢ·oᵢ)   dq = dS·K / √k   dk = dSᵀ·Q / √k   dv = (P∘Z)ᵀ·do

Softmax is computed online, tile by tile (Dao et al. 2022), so that no (length × length) matrix is ever stored. Queries,
keys and values come in one (T, a·(2k + v)) tensor, as one matrix product makes them, and their gradients go out in
one: nothing is copied. Each gradient is summed by one program alone, without atomics: the result is deterministic.
Tiles are small because windows are short: a 128 × 128 tile is mostly empty on a window of 150 tokens.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from quoth.encoder.kernels.dropout import column_key, keep_threshold, kept, row_key, seed_for, single
from quoth.encoder.kernels.operator import operator

# (queries, keys) a tile, warps, pipeline stages: the fastest of 14 tried on an H200 at SQuAD's lengths, k = v = 64.
_FORWARD = (64, 32, 4, 2)
_QUERIES = (64, 64, 4, 3)
_KEYS = (32, 64, 4, 2)


@triton.jit
def _tile(base, row, column, rows, columns, stride):  # type: ignore[no-untyped-def]
    """Load a (row, column) tile, zero outside `rows` × `columns`."""
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    return tl.load(base + row.to(tl.int64)[:, None] * stride + column[None, :], inside, 0.0)


@triton.jit
def _store(base, row, column, rows, columns, stride, value):  # type: ignore[no-untyped-def]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = base + row.to(tl.int64)[:, None] * stride + column[None, :]
    tl.store(at, value.to(base.dtype.element_ty), inside)


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    qkv, starts, out, logsum, seed, heads, tokens, scale, threshold, rescale,
    KEY: tl.constexpr, VALUE: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    scale, rescale = single(scale), single(rescale)
    head, window = tl.program_id(1), tl.program_id(2)
    begin = tl.load(starts + window)
    length = tl.load(starts + window + 1) - begin
    if tl.program_id(0) * M < length:
        stride = heads * (2 * KEY + VALUE)
        rows = tl.program_id(0) * M + tl.arange(0, M)
        ks, vs = tl.arange(0, K), tl.arange(0, V)
        base = qkv + begin.to(tl.int64) * stride
        q = _tile(base + head * KEY, rows, ks, length, KEY, stride)
        top = tl.full((M,), float("-inf"), tl.float32)
        total = tl.zeros((M,), tl.float32)
        mixed = tl.zeros((M, V), tl.float32)
        if DROPOUT:
            row_keys = row_key(tl.load(seed), (begin + rows) * heads + head)
        for first in range(0, length, N):
            columns = first + tl.arange(0, N)
            k = _tile(base + (heads + head) * KEY, columns, ks, length, KEY, stride)
            v = _tile(base + 2 * heads * KEY + head * VALUE, columns, vs, length, VALUE, stride)
            score = tl.where((columns < length)[None, :], tl.dot(q, tl.trans(k)) * scale, float("-inf"))
            higher = tl.maximum(top, tl.max(score, 1))
            weight = tl.exp2(score - higher[:, None])
            shrink = tl.exp2(top - higher)
            total = total * shrink + tl.sum(weight, 1)
            if DROPOUT:
                keep = kept(row_keys[:, None], column_key(tl.load(seed), columns)[None, :], threshold)
                weight = tl.where(keep, weight * rescale, 0.0)
            mixed = mixed * shrink[:, None] + tl.dot(weight.to(v.dtype), v)
            top = higher
        _store(
            out + begin.to(tl.int64) * heads * VALUE + head * VALUE,
            rows, vs, length, VALUE, heads * VALUE, mixed / total[:, None],
        )  # fmt: skip
        tl.store(logsum + head * tokens + begin + rows, top + tl.log2(total), rows < length)


@triton.jit
def _backward_queries(  # type: ignore[no-untyped-def]
    qkv, starts, out, dout, logsum, delta, seed, dqkv, heads, tokens, scale, root, threshold, rescale,
    KEY: tl.constexpr, VALUE: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Dq of a tile of queries; also writes delta = do·o for the pass over keys and values."""
    scale, root, rescale = single(scale), single(root), single(rescale)
    head, window = tl.program_id(1), tl.program_id(2)
    begin = tl.load(starts + window)
    length = tl.load(starts + window + 1) - begin
    if tl.program_id(0) * M < length:
        stride = heads * (2 * KEY + VALUE)
        rows = tl.program_id(0) * M + tl.arange(0, M)
        ks, vs = tl.arange(0, K), tl.arange(0, V)
        base = qkv + begin.to(tl.int64) * stride
        other = begin.to(tl.int64) * heads * VALUE + head * VALUE
        q = _tile(base + head * KEY, rows, ks, length, KEY, stride)
        do = _tile(dout + other, rows, vs, length, VALUE, heads * VALUE)
        o = _tile(out + other, rows, vs, length, VALUE, heads * VALUE)
        inner = tl.sum(do.to(tl.float32) * o.to(tl.float32), 1)
        tl.store(delta + head * tokens + begin + rows, inner, rows < length)
        log = tl.load(logsum + head * tokens + begin + rows, rows < length, 0.0)
        dq = tl.zeros((M, K), tl.float32)
        if DROPOUT:
            row_keys = row_key(tl.load(seed), (begin + rows) * heads + head)
        for first in range(0, length, N):
            columns = first + tl.arange(0, N)
            k = _tile(base + (heads + head) * KEY, columns, ks, length, KEY, stride)
            v = _tile(base + 2 * heads * KEY + head * VALUE, columns, vs, length, VALUE, stride)
            weight = tl.exp2(tl.dot(q, tl.trans(k)) * scale - log[:, None])
            weight = tl.where((columns < length)[None, :], weight, 0.0)
            dweight = tl.dot(do, tl.trans(v))
            if DROPOUT:
                keep = kept(row_keys[:, None], column_key(tl.load(seed), columns)[None, :], threshold)
                dweight = tl.where(keep, dweight * rescale, 0.0)
            dscore = weight * (dweight - inner[:, None])
            dq += tl.dot(dscore.to(k.dtype), k)
        _store(dqkv + begin.to(tl.int64) * stride + head * KEY, rows, ks, length, KEY, stride, dq * root)


@triton.jit
def _backward_keys(  # type: ignore[no-untyped-def]
    qkv, starts, dout, logsum, delta, seed, dqkv, heads, tokens, scale, root, threshold, rescale,
    KEY: tl.constexpr, VALUE: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Dk and dv of a tile of keys; scores are computed transposed, (keys, queries)."""
    scale, root, rescale = single(scale), single(root), single(rescale)
    head, window = tl.program_id(1), tl.program_id(2)
    begin = tl.load(starts + window)
    length = tl.load(starts + window + 1) - begin
    if tl.program_id(0) * N < length:
        stride = heads * (2 * KEY + VALUE)
        columns = tl.program_id(0) * N + tl.arange(0, N)
        ks, vs = tl.arange(0, K), tl.arange(0, V)
        base = qkv + begin.to(tl.int64) * stride
        other = begin.to(tl.int64) * heads * VALUE + head * VALUE
        k = _tile(base + (heads + head) * KEY, columns, ks, length, KEY, stride)
        v = _tile(base + 2 * heads * KEY + head * VALUE, columns, vs, length, VALUE, stride)
        dk = tl.zeros((N, K), tl.float32)
        dv = tl.zeros((N, V), tl.float32)
        if DROPOUT:
            column_keys = column_key(tl.load(seed), columns)
        for first in range(0, length, M):
            rows = first + tl.arange(0, M)
            q = _tile(base + head * KEY, rows, ks, length, KEY, stride)
            do = _tile(dout + other, rows, vs, length, VALUE, heads * VALUE)
            log = tl.load(logsum + head * tokens + begin + rows, rows < length, float("inf"))
            inner = tl.load(delta + head * tokens + begin + rows, rows < length, 0.0)
            weight = tl.exp2(tl.dot(k, tl.trans(q)) * scale - log[None, :])
            dweight = tl.dot(v, tl.trans(do))
            dropped = weight
            if DROPOUT:
                row_keys = row_key(tl.load(seed), (begin + rows) * heads + head)
                keep = kept(row_keys[None, :], column_keys[:, None], threshold)
                dropped = tl.where(keep, weight * rescale, 0.0)
                dweight = tl.where(keep, dweight * rescale, 0.0)
            dv += tl.dot(dropped.to(do.dtype), do)
            dscore = weight * (dweight - inner[None, :])
            dk += tl.dot(dscore.to(q.dtype), q)
        dbase = dqkv + begin.to(tl.int64) * stride
        _store(dbase + (heads + head) * KEY, columns, ks, length, KEY, stride, dk * root)
        _store(dbase + 2 * heads * KEY + head * VALUE, columns, vs, length, VALUE, stride, dv)


def _compute(
    qkv: Tensor, starts: Tensor, seed: Tensor, longest: int, heads: int, key: int, value: int, scale: float, p: float
) -> tuple[Tensor, Tensor]:
    """(mixed values (T, a·v), log₂ of each softmax's sum (a, T))."""
    tokens = len(qkv)
    out, logsum = _results(qkv, starts, seed, longest, heads, key, value)
    settings = _settings(key, value, p, _FORWARD)
    _forward[(triton.cdiv(longest, settings["M"]), heads, len(starts) - 1)](
        qkv.contiguous(), starts, out, logsum, seed, heads, tokens,
        _LOG2E * scale, keep_threshold(p), 1 / (1 - p), **settings,
    )  # fmt: skip
    return out, logsum


def _results(
    qkv: Tensor, starts: Tensor, seed: Tensor, longest: int, heads: int, key: int, value: int, *_: float
) -> tuple[Tensor, Tensor]:
    tokens = len(qkv)
    return qkv.new_empty((tokens, heads * value)), qkv.new_empty((heads, tokens), dtype=torch.float32)


def _compute_gradients(
    dout: Tensor, qkv: Tensor, starts: Tensor, seed: Tensor, out: Tensor, logsum: Tensor,
    longest: int, heads: int, key: int, value: int, scale: float, p: float,
) -> Tensor:  # fmt: skip
    tokens, windows = len(qkv), len(starts) - 1
    qkv, dout = qkv.contiguous(), dout.contiguous()
    dqkv, delta = torch.empty_like(qkv), torch.empty_like(logsum)
    numbers = (heads, tokens, _LOG2E * scale, scale, keep_threshold(p), 1 / (1 - p))
    settings = _settings(key, value, p, _QUERIES)
    _backward_queries[(triton.cdiv(longest, settings["M"]), heads, windows)](
        qkv, starts, out, dout, logsum, delta, seed, dqkv, *numbers, **settings
    )
    settings = _settings(key, value, p, _KEYS)
    _backward_keys[(triton.cdiv(longest, settings["N"]), heads, windows)](
        qkv, starts, dout, logsum, delta, seed, dqkv, *numbers, **settings
    )
    return dqkv


def _gradient_results(dout: Tensor, qkv: Tensor, *_: Any) -> Tensor:
    return qkv.new_empty(qkv.shape)


_gradients = operator("quoth::flash_backward", _compute_gradients, _gradient_results)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    qkv, starts, seed, *ctx.sizes = inputs
    ctx.save_for_backward(qkv, starts, seed, *output)


def _gradient(ctx: Any, dout: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    return _gradients(dout, *ctx.saved_tensors, *ctx.sizes), *(None,) * 8


_flash = operator("quoth::flash", _compute, _results, setup=_setup, backward=_gradient)


_LOG2E = 1.4426950408889634  # softmax in base 2: the hardware's exponential


def _settings(key: int, value: int, p: float, tiling: tuple[int, int, int, int]) -> dict[str, int]:
    """The compile-time sizes of a kernel, and how to launch it."""
    m, n, warps, stages = tiling
    return {
        "KEY": key,
        "VALUE": value,
        "K": max(16, triton.next_power_of_2(key)),
        "V": max(16, triton.next_power_of_2(value)),
        "M": m,
        "N": n,
        "DROPOUT": p > 0,
        "num_warps": warps,
        "num_stages": stages,
    }


def flash_attention(
    qkv: Tensor, starts: Tensor, longest: int, heads: int, key: int, value: int, scale: float, p: float
) -> Tensor:
    """Attention of every window to itself.

    qkv: (T, a·(2k + v)) in half precision: all queries, then all keys, then all values, head after head
    starts: (n + 1,) int32, cumulative lengths; longest: the longest window
    scale: 1/√k; p: dropout of the attention weights
    Returns (T, a·v).
    """
    return _flash(qkv, starts, seed_for(qkv, p), longest, heads, key, value, scale, p)[0]  # type: ignore[no-any-return]

"""Variable-length flash attention for short windows, with dropout and with key size ≠ value size, in Triton.

For query i, key j and a head's mask Z (0, or 1/(1 − p) with probability 1 − p):

    Sᵢⱼ = qᵢ·kⱼ / √k     P = softmax(S)     oᵢ = Σⱼ Pᵢⱼ Zᵢⱼ vⱼ
    dPᵢⱼ = Zᵢⱼ (doᵢ·vⱼ)   dSᵢⱼ = Pᵢⱼ (dPᵢⱼ − doᵢ·oᵢ)   dq = dS·K / √k   dk = dSᵀ·Q / √k   dv = (P∘Z)ᵀ·do

A bias of the distance j − i may be added to S (`kernels/relative.py`).
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
from quoth.encoder.kernels.relative import (
    LOG2E,
    add_bias,
    add_to_sums,
    bias_of_distances,
    gradient_of_buckets,
    room_for_sums,
)
from quoth.encoder.kernels.tiles import load_tile as _tile
from quoth.encoder.kernels.tiles import store_tile as _store

# (queries, keys) a tile, warps, pipeline stages: the fastest of 14 tried on an H200 at SQuAD's lengths, k = v = 64.
_FORWARD = (64, 32, 4, 2)
_QUERIES = (64, 64, 4, 3)
_KEYS = (32, 64, 4, 2)


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    qkv, starts, out, logsum, seed, line, middle, heads, tokens, scale, threshold, rescale,
    KEY: tl.constexpr, VALUE: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, DROPOUT: tl.constexpr, BIAS: tl.constexpr,
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
            score = tl.dot(q, tl.trans(k)) * scale
            if BIAS:
                score = add_bias(score, line, head, middle, rows[:, None], columns[None, :], length)
            score = tl.where((columns < length)[None, :], score, float("-inf"))
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
    qkv, starts, out, dout, logsum, delta, seed, dqkv, line, distances, sums, middle, half, heads, tokens,
    scale, root, threshold, rescale,
    KEY: tl.constexpr, VALUE: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, DROPOUT: tl.constexpr, BIAS: tl.constexpr, BUCKETS: tl.constexpr,
):  # fmt: skip
    """Dq of a tile of queries; also writes delta = do·o for the pass over keys and values.

    With BUCKETS > 0 it writes the tile's part of the gradient of the biases too.
    """
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
        if BUCKETS:
            summed = tl.zeros((M, BUCKETS), tl.float32)
        if DROPOUT:
            row_keys = row_key(tl.load(seed), (begin + rows) * heads + head)
        for first in range(0, length, N):
            columns = first + tl.arange(0, N)
            k = _tile(base + (heads + head) * KEY, columns, ks, length, KEY, stride)
            v = _tile(base + 2 * heads * KEY + head * VALUE, columns, vs, length, VALUE, stride)
            score = tl.dot(q, tl.trans(k)) * scale
            if BIAS:
                score = add_bias(score, line, head, middle, rows[:, None], columns[None, :], length)
            weight = tl.exp2(score - log[:, None])
            weight = tl.where((columns < length)[None, :], weight, 0.0)
            dweight = tl.dot(do, tl.trans(v))
            if DROPOUT:
                keep = kept(row_keys[:, None], column_key(tl.load(seed), columns)[None, :], threshold)
                dweight = tl.where(keep, dweight * rescale, 0.0)
            dscore = weight * (dweight - inner[:, None])
            dq += tl.dot(dscore.to(k.dtype), k)
            if BUCKETS:
                row = tl.program_id(0) * M
                summed = add_to_sums(summed, dscore, distances, middle, half, row, first, length, M, N, BUCKETS)
        _store(dqkv + begin.to(tl.int64) * stride + head * KEY, rows, ks, length, KEY, stride, dq * root)
        if BUCKETS:
            place = (window.to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * heads + head
            tl.store(sums + place * BUCKETS + tl.arange(0, BUCKETS), tl.sum(summed, 0))


@triton.jit
def _backward_keys(  # type: ignore[no-untyped-def]
    qkv, starts, dout, logsum, delta, seed, dqkv, line, middle, heads, tokens, scale, root, threshold, rescale,
    KEY: tl.constexpr, VALUE: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, DROPOUT: tl.constexpr, BIAS: tl.constexpr,
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
            score = tl.dot(k, tl.trans(q)) * scale
            if BIAS:
                score = add_bias(score, line, head, middle, rows[None, :], columns[:, None], length)
            weight = tl.exp2(score - log[None, :])
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
    qkv: Tensor, starts: Tensor, seed: Tensor, longest: int, heads: int, key: int, value: int, scale: float, p: float,
    relative: Tensor | None = None, distances: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(mixed values (T, a·v), log₂ of each softmax's sum (a, T))."""
    tokens = len(qkv)
    out, logsum = _results(qkv, starts, seed, longest, heads, key, value)
    settings = _settings(key, value, p, _FORWARD, relative)
    line, middle = bias_of_distances(relative, distances, qkv)
    _forward[(triton.cdiv(longest, settings["M"]), heads, len(starts) - 1)](
        qkv.contiguous(), starts, out, logsum, seed, line, middle, heads, tokens,
        LOG2E * scale, keep_threshold(p), 1 / (1 - p), **settings,
    )  # fmt: skip
    return out, logsum


def _results(
    qkv: Tensor, starts: Tensor, seed: Tensor, longest: int, heads: int, key: int, value: int, *_: Any
) -> tuple[Tensor, Tensor]:
    tokens = len(qkv)
    return qkv.new_empty((tokens, heads * value)), qkv.new_empty((heads, tokens), dtype=torch.float32)


def _compute_gradients(
    dout: Tensor, qkv: Tensor, starts: Tensor, seed: Tensor, relative: Tensor | None, distances: Tensor | None,
    out: Tensor, logsum: Tensor, longest: int, heads: int, key: int, value: int, scale: float, p: float, biases: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradient of qkv, and where `biases` are trained that of `relative`, else an empty tensor."""
    tokens, windows = len(qkv), len(starts) - 1
    qkv, dout = qkv.contiguous(), dout.contiguous()
    dqkv, delta = torch.empty_like(qkv), torch.empty_like(logsum)
    numbers = (heads, tokens, LOG2E * scale, scale, keep_threshold(p), 1 / (1 - p))
    line, middle = bias_of_distances(relative, distances, qkv)
    settings = _settings(key, value, p, _QUERIES, relative)
    tiles = triton.cdiv(longest, settings["M"])
    sums, buckets = room_for_sums(relative if biases else None, tiles * windows, qkv)
    half = len(relative) // 2 if relative is not None else 0
    _backward_queries[(tiles, heads, windows)](
        qkv, starts, out, dout, logsum, delta, seed, dqkv, line, qkv if distances is None else distances, sums,
        middle, half, *numbers, **settings, BUCKETS=buckets,
    )  # fmt: skip
    settings = _settings(key, value, p, _KEYS, relative)
    _backward_keys[(triton.cdiv(longest, settings["N"]), heads, windows)](
        qkv, starts, dout, logsum, delta, seed, dqkv, line, middle, *numbers, **settings
    )
    return dqkv, gradient_of_buckets(sums, relative) if relative is not None and biases else qkv.new_empty(0)


def _gradient_results(
    dout: Tensor, qkv: Tensor, starts: Tensor, seed: Tensor, relative: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor]:
    wanted = relative is not None and rest[-1]
    return qkv.new_empty(qkv.shape), torch.empty_like(relative) if wanted else qkv.new_empty(0)  # type: ignore[arg-type]


_gradients = operator("quoth::flash_backward", _compute_gradients, _gradient_results)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    qkv, starts, seed, *ctx.sizes, relative, distances = inputs
    ctx.save_for_backward(qkv, starts, seed, relative, distances, *output)


def _gradient(ctx: Any, dout: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    biases = bool(ctx.needs_input_grad[-2])
    dqkv, drelative = _gradients(dout, *ctx.saved_tensors, *ctx.sizes, biases)
    return dqkv, *(None,) * 8, drelative if biases else None, None


_flash = operator("quoth::flash", _compute, _results, setup=_setup, backward=_gradient)


def _settings(
    key: int, value: int, p: float, tiling: tuple[int, int, int, int], relative: Tensor | None
) -> dict[str, int]:
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
        "BIAS": relative is not None,
        "num_warps": warps,
        "num_stages": stages,
    }


def flash_attention(
    qkv: Tensor, starts: Tensor, longest: int, heads: int, key: int, value: int, scale: float, p: float,
    relative: Tensor | None = None, distances: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Attention of every window to itself.

    qkv: (T, a·(2k + v)) in half precision: all queries, then all keys, then all values, head after head
    starts: (n + 1,) int32, cumulative lengths; longest: the longest window
    scale: 1/√k; p: dropout of the attention weights
    relative: (buckets, a), biases of relative positions; distances: (2n − 1,), the bucket of each distance from 1 − n
    Returns (T, a·v).
    """
    seed = seed_for(qkv, p)
    return _flash(qkv, starts, seed, longest, heads, key, value, scale, p, relative, distances)[0]  # type: ignore[no-any-return]

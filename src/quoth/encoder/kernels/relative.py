"""Relative position biases inside flash attention, in Triton: the bias of each score, and the gradient of the biases.

    Sᵢⱼ = qᵢ·kⱼ / √k + B[bucket(j − i)]      dB[b] = Σ dSᵢⱼ over all windows, i and j with bucket(j − i) = b

The forward pass looks a bias up by the distance j − i, in a row of 2n − 1 numbers a head that stays in the caches. For
the gradient, each program sums dS over its tiles, bucket by bucket, and stores its sums; torch adds them up. There are
no atomics: the result is deterministic. A tile needs only the buckets between those of its least and its greatest
distance: one if it is far from the diagonal.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = 1.4426950408889634  # softmax is computed in base 2, with the hardware's exponential


@triton.jit
def add_bias(score, line, head, middle, rows, columns, length):  # type: ignore[no-untyped-def]
    """Scores, in base 2, with their biases. rows: of queries, columns: of keys; one is upright and the other flat."""
    inside = (rows < length) & (columns < length)
    bias = tl.load(line + head * (2 * middle + 1) + middle + columns - rows, inside, 0.0)
    return score + bias.to(tl.float32) * 1.4426950408889634


@triton.jit
def _group(bucket, half):  # type: ignore[no-untyped-def]
    """A bucket's number in the order of distances, and back: the buckets of keys up to the query are reversed."""
    return tl.where(bucket < half, half - 1 - bucket, bucket)


@triton.jit
def add_to_sums(  # type: ignore[no-untyped-def]
    sums, dscore, distances, middle, half, row, column, length,
    M: tl.constexpr, N: tl.constexpr, BUCKETS: tl.constexpr,
):  # fmt: skip
    """Sums, (M, BUCKETS), with those of another tile of dS, (M, N), whose first query and key are given."""
    rows, columns = row + tl.arange(0, M)[:, None], column + tl.arange(0, N)[None, :]
    inside = (rows < length) & (columns < length)
    buckets = tl.load(distances + middle + columns - rows, inside, -1).to(tl.int32)
    first = tl.load(distances + middle + column - (tl.minimum(row + M, length) - 1)).to(tl.int32)
    last = tl.load(distances + middle + tl.minimum(column + N, length) - 1 - row).to(tl.int32)
    places = tl.arange(0, BUCKETS)[None, :]
    for group in range(_group(first, half), _group(last, half) + 1):
        bucket = _group(group, half)
        part = tl.sum(tl.where(buckets == bucket, dscore, 0.0), 1)
        sums += tl.where(places == bucket, part[:, None], 0.0)
    return sums


def bias_of_distances(relative: Tensor | None, distances: Tensor | None, like: Tensor) -> tuple[Tensor, int]:
    """The bias of every distance, (a, 2n − 1), and n − 1, the place of distance 0.

    relative: (buckets, a); distances: (2n − 1,), their buckets. Where there are none, `like` takes the place, unread.
    """
    if relative is None or distances is None:
        return like, 0
    return relative.detach().T.index_select(1, distances), len(distances) // 2


def room_for_sums(relative: Tensor | None, tiles: int, like: Tensor) -> tuple[Tensor, int]:
    """Room for the sums of each tile, (tiles, a, buckets up to a power of 2), and that number; 0 where none are wanted.

    It is zero, since no program runs where a window has ended.
    """
    if relative is None:
        return like, 0
    buckets, heads = relative.shape
    width = triton.next_power_of_2(buckets)
    return like.new_zeros((tiles, heads, width), dtype=torch.float32), width


def gradient_of_buckets(sums: Tensor, relative: Tensor) -> Tensor:
    """The sums of all tiles, (tiles, a, buckets up to a power of 2), as the gradient of `relative`, (buckets, a)."""
    return sums.sum(0)[:, : len(relative)].T.to(relative.dtype).contiguous()

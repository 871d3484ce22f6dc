"""Relative position biases inside flash attention, in Triton: the bias of each score, and the gradient of the biases.

    Sᵢⱼ = qᵢ·kⱼ / √k + B[bucket(j − i)]      dB[b] = Σ dSᵢⱼ over all windows, i and j with bucket(j − i) = b

The forward pass looks a bias up by the distance j − i, in a row of 2n − 1 numbers a head that stays in the caches. For
the gradient, each program sums dS over its tiles, bucket by bucket, and stores its sums; torch adds them up. There are
no atomics: the result is deterministic. A tile needs only the buckets between those of its least and its greatest
distance: one if it is far from the diagonal. For this, buckets are renumbered to grow with the distance.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = 1.4426950408889634  # softmax is computed in base 2, with the hardware's exponential


@triton.jit
def add_bias(score, line, head, middle, rows, columns, length):  # type: ignore[no-untyped-def]
    """Scores with their biases. rows: of queries, columns: of keys, of which one is upright and the other flat."""
    inside = (rows < length) & (columns < length)
    return score + tl.load(line + head * (2 * middle + 1) + middle + columns - rows, inside, 0.0)


@triton.jit
def add_to_sums(  # type: ignore[no-untyped-def]
    sums, dscore, group, middle, row, column, length, M: tl.constexpr, N: tl.constexpr, GROUPS: tl.constexpr
):
    """Sums, (M, GROUPS), with those of another tile of dS, (M, N), whose first query and key are given."""
    rows, columns = row + tl.arange(0, M)[:, None], column + tl.arange(0, N)[None, :]
    inside = (rows < length) & (columns < length)
    groups = tl.load(group + middle + columns - rows, inside, -1)
    least = tl.load(group + middle + column - (tl.minimum(row + M, length) - 1))
    most = tl.load(group + middle + tl.minimum(column + N, length) - 1 - row)
    places = tl.arange(0, GROUPS)[None, :]
    for number in range(least, most + 1):
        part = tl.sum(tl.where(groups == number, dscore, 0.0), 1)
        sums += tl.where(places == number, part[:, None], 0.0)
    return sums


def bias_of_distances(relative: Tensor | None, distances: Tensor | None, like: Tensor) -> tuple[Tensor, int]:
    """The bias of every distance in base 2, (a, 2n − 1) float32, and n − 1, the place of distance 0.

    relative: (buckets, a); distances: (2n − 1,), their buckets. Where there are none, `like` takes the place, unread.
    """
    if relative is None or distances is None:
        return like, 0
    scaled = (relative.detach().float() * LOG2E).T.contiguous()
    return scaled[:, distances].contiguous(), len(distances) // 2


def groups_of(
    relative: Tensor | None, distances: Tensor | None, tiles: int, like: Tensor
) -> tuple[Tensor, Tensor, int]:
    """What the gradient needs: the group of every distance, (2n − 1,) int32; room for sums; how many groups there are.

    A group is a bucket, renumbered so that it grows with the distance: those of keys up to the query are reversed.
    sums: (tiles, a, groups up to a power of 2), zero for the tiles that no window reaches
    """
    if relative is None or distances is None:
        return like, like, 0
    buckets, heads = relative.shape
    half = buckets // 2
    groups = triton.next_power_of_2(buckets)
    group = torch.where(distances < half, half - 1 - distances, distances).int()
    return group, like.new_zeros((tiles, heads, groups), dtype=torch.float32), groups


def gradient_of_buckets(sums: Tensor, relative: Tensor) -> Tensor:
    """The sums of all tiles, (tiles, a, groups), as the gradient of `relative`, (buckets, a)."""
    half = len(relative) // 2
    total = sums.sum(0).T
    return torch.cat([total[:half].flip(0), total[half : len(relative)]]).to(relative.dtype)

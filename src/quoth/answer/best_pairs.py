"""The k best (start, end) pairs of many windows at once, exactly, without a look at all of them.

A pair scores start[i] + end[j], i ≤ j < i + longest. The best pair of a start i scores
start[i] + max(end[i : i + longest]), a sliding maximum. If k other starts do better than that, k pairs do better than
any pair of i: so the k best pairs start in the k best starts, and k × longest pairs are all to be looked at.

Ties: whatever equals the k-th best is kept until the last step, where score and place are put into one integer
that sorts like (score, then smaller start, then fewer tokens). So the result is the same every time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float32s = NDArray[np.float32]
Int64s = NDArray[np.int64]

_MINUS_INF = np.float32(-np.inf)
_SMALLEST = np.finfo(np.float32).min
_ALL_BUT_SIGN = np.int32(0x7FFFFFFF)
_LOW = np.int64(0xFFFFFFFF)


def best_pairs(start: Float32s, end: Float32s, k: int, longest: int) -> tuple[Float32s, Int64s, Int64s]:
    """The k best pairs of each window, best first.

    - start, end: (windows, length), -inf where no answer may start or end; elsewhere |x| ≤ 1e38, no NaN
    - returns score, i, j: (windows, k'), k' ≤ k, with score -inf where a window has fewer than k' pairs;
      k' < k only if no window has more than k' pairs
    """
    windows, length = start.shape
    longest = min(longest, length)
    rows = np.arange(windows)[:, None]
    # One more column, which `_largest` names where a window has too few: nothing starts or ends there.
    start = np.pad(start, ((0, 0), (0, 1)), constant_values=_MINUS_INF)
    ends = np.pad(end, ((0, 0), (0, longest)), constant_values=_MINUS_INF)
    firsts = _largest(start[:, :-1] + sliding_max(ends[:, :-1], longest), k)
    runs = np.lib.stride_tricks.sliding_window_view(ends, longest, axis=1)[rows, firsts]
    runs += start[rows, firsts][:, :, None]
    scores = runs.reshape(windows, firsts.shape[1] * longest)
    which = _largest(scores, k)
    missing = which == scores.shape[1]
    which = np.where(missing, 0, which)
    best = np.where(missing, _MINUS_INF, scores[rows, which])
    place = firsts[rows, which // longest] * longest + which % longest
    best, place = _unkey(np.sort(_key(best, place), axis=1)[:, : -k - 1 : -1])
    i = place // longest
    return best, i, i + place % longest


def sliding_max(values: Float32s, width: int) -> Float32s:
    """(windows, n) → (windows, n - width + 1): the maximum of `width` neighbours, in log₂ width steps."""
    have = 1
    while have < width:
        step = min(have, width - have)
        values = np.maximum(values[:, :-step], values[:, step:])
        have += step
    return values


def _largest(values: Float32s, k: int) -> Int64s:
    """(windows, n) → (windows, c): the columns of all values that are at least the k-th largest, from the left.

    -inf does not count. A window that has fewer than c such columns gets n, one past the last, for the rest.
    """
    windows, n = values.shape
    if k >= n:
        return np.broadcast_to(np.arange(n), values.shape)
    kth = np.partition(values, n - k, axis=1)[:, n - k, None]
    places = np.flatnonzero(values >= np.maximum(kth, _SMALLEST))
    if len(places) == windows * k:
        columns = places.reshape(windows, k) - np.arange(0, windows * n, n)[:, None]
        if (columns[:, 0] >= 0).all() and (columns[:, -1] < n).all():  # k in each window: the usual case
            return columns
    row, column = np.divmod(places, n)
    counts = np.bincount(row, minlength=windows)
    rank = np.arange(len(places)) - (np.cumsum(counts) - counts)[row]
    columns = np.full((windows, max(1, counts.max())), n)
    columns[row, rank] = column
    return columns


def _key(score: Float32s, place: Int64s) -> Int64s:
    """One integer that sorts like (score, -place), for 0 ≤ place < 2³².

    The bits of a float sort like an integer once those of a negative one, but for its sign, are flipped.
    """
    bits = (score + np.float32(0)).view(np.int32)  # + 0 turns -0.0, which has bits of its own, into 0.0
    ordered = bits ^ (bits >> 31 & _ALL_BUT_SIGN)
    return (ordered.astype(np.int64) << 32) | (_LOW - place)


def _unkey(key: Int64s) -> tuple[Float32s, Int64s]:
    """The score and the place of a `_key`."""
    ordered = (key >> 32).astype(np.int32)
    bits = ordered ^ (ordered >> 31 & _ALL_BUT_SIGN)
    return bits.view(np.float32), _LOW - (key & _LOW)

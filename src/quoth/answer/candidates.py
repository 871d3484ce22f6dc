"""The n best spans of each window in characters, and of each question over its windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quoth.answer.best_pairs import best_pairs
from quoth.answer.chunks import Chunk, chunks, log_probabilities
from quoth.runtime.logits import Flags, Floats, Integers, SpanLogits
from quoth.windows import Windows


@dataclass(frozen=True, eq=False)
class Spans:
    """The n best spans of R windows or questions, best first.

    - start, end: (R, n) int32 characters
    - score: (R, n) float32, -inf where there are fewer than n
    - null: (R,) float32, the score of "no answer", +inf if unknown
    """

    start: NDArray[np.int32]
    end: NDArray[np.int32]
    score: NDArray[np.float32]
    null: NDArray[np.float32]


def no_spans(rows: int, n: int) -> Spans:
    """`rows` rows with nothing in them."""
    where = np.zeros((2, rows, n), dtype=np.int32)
    score = np.full((rows, n), -np.inf, dtype=np.float32)
    return Spans(where[0], where[1], score, np.full(rows, np.inf, dtype=np.float32))


def window_spans(
    windows: Windows, logits: SpanLogits, contexts: Sequence[str], n: int, longest: int, log_softmax: bool
) -> tuple[Spans, Integers]:
    """The n best distinct spans of each window and its null score s_0 + e_0; the numbers of windows skipped.

    With `log_softmax` the scores are sums of log-probabilities instead of logits.
    """
    found = no_spans(len(windows.question), n)
    limits = np.fromiter(map(len, contexts), np.int64, len(contexts))[windows.question]
    skipped: list[Integers] = [np.zeros(0, dtype=np.int64)]
    for chunk, bad in chunks(windows, logits, cells_per_window=n * longest):
        skipped.append(bad)
        if log_softmax:
            chunk = log_probabilities(chunk)
        found.null[chunk.window] = chunk.null_start + chunk.null_end
        rows, k = np.arange(len(chunk.window)), n
        # A pair is no new span if its tokens have no characters, or those of other tokens: then ask for more.
        while len(rows):
            short = _fill(found, chunk, rows, windows.spans, limits, k, longest)
            rows, k = rows[short], 2 * k
    return found, np.concatenate(skipped)


def _fill(found: Spans, chunk: Chunk, rows: Integers, spans: Integers, limits: Integers, k: int, longest: int) -> Flags:
    """Write the n best distinct spans of the k best pairs of these rows; (rows,) whether k was too small."""
    score, i, j = best_pairs(chunk.start[rows], chunk.end[rows], k, longest)
    window, first, n = chunk.window[rows], chunk.first[rows, None], found.score.shape[1]
    start, end, good = in_characters(score, first + i, first + j, spans, limits[window])
    good &= ~_repeated(start, end, good)
    write(found, window, start, end, score, good)
    return np.asarray((np.count_nonzero(good, axis=1) < n) & np.isfinite(score[:, -1]) & (score.shape[1] == k))


def in_characters(
    score: Floats, first: Integers, last: Integers, spans: Integers, limit: Integers
) -> tuple[Integers, Integers, Flags]:
    """Pairs of flat tokens, (R, k), to start, end and whether there is text between them.

    spans: (T, 2) characters of the tokens; limit: (R,) the lengths of the contexts.
    """
    real = np.isfinite(score)
    start = spans[np.where(real, first, 0), 0]
    end = spans[np.where(real, last, 0), 1]
    return start, end, real & (start >= 0) & (start < end) & (end <= limit[:, None])


def merge_windows(found: Spans, bounds: Integers) -> Spans:
    """The same for questions: q has the windows [bounds[q], bounds[q + 1]); its null is their smallest."""
    n = found.score.shape[1]
    counts = np.diff(bounds)
    merged = no_spans(len(counts), n)
    for count in np.unique(counts[counts > 0]):
        question = np.flatnonzero(counts == count)
        window = bounds[question, None] + np.arange(count)
        merged.null[question] = found.null[window].min(axis=1)
        wide = len(question), int(count) * n
        start, end, score = (x[window].reshape(wide) for x in (found.start, found.end, found.score))
        good = np.isfinite(score)
        if count > 1:
            order = np.lexsort((end, start, -score), axis=1)
            start, end, score, good = (np.take_along_axis(x, order, axis=1) for x in (start, end, score, good))
            good &= ~_repeated(start, end, good)
        write(merged, question, start, end, score, good)
    return merged


def write(found: Spans, row: Integers, start: Integers, end: Integers, score: Floats, good: Flags) -> None:
    """The first n good ones of each row go to `found`, in their order."""
    n = found.score.shape[1]
    order = None
    if (good[:, 1:] > good[:, :-1]).any():  # there are gaps to close
        order = np.argsort(~good, axis=1, kind="stable")[:, :n]
    for column, values, nothing in ((found.start, start, 0), (found.end, end, 0), (found.score, score, -np.inf)):
        kept = np.where(good, values, nothing)
        kept = kept[:, :n] if order is None else np.take_along_axis(kept, order, axis=1)
        column[row, : kept.shape[1]] = kept


def _repeated(start: Integers, end: Integers, good: Flags) -> Flags:
    """(R, k): whether the same good span occurs further left, where it has a score at least as high."""
    span = np.where(good, start.astype(np.int64) << 32 | end, -1)
    order = np.argsort(span, axis=1, kind="stable")
    span = np.take_along_axis(span, order, axis=1)
    result = np.zeros(good.shape, dtype=bool)
    np.put_along_axis(result, order[:, 1:], span[:, 1:] == span[:, :-1], axis=1)
    return result

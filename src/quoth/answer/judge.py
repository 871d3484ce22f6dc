"""Answers of whole datasets by their probability of being right, in the form that `decode` gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quoth.answer.candidates import Spans, merge_windows
from quoth.answer.chunks import check, warn_skipped
from quoth.answer.confidence import NO_ANSWER, RIGHT, Confidence
from quoth.answer.decode import Decoded
from quoth.answer.features import Candidates, find_candidates
from quoth.errors import QuothError
from quoth.runtime.logits import SpanLogits
from quoth.windows import Windows

Float64s = NDArray[np.float64]


def judge(
    confidence: Confidence,
    windows: Windows,
    logits: SpanLogits,
    questions: Sequence[str],
    contexts: Sequence[str],
    *,
    n_best: int = 20,
    max_answer_tokens: int = 30,
    ids: Sequence[str] | None = None,
) -> Decoded:
    """The n best spans of each question, that furthest ahead of "no answer" in its own window first.

    `score` is log P(right), and `null` is log P(no answer), as the window of the best span has it. So the reader's
    rule, to abstain if "no answer" is more probable than "right", is that of `Decoded` at the threshold 0. Spans after
    the first have its score less what they are behind in the ranking.
    """
    if n_best < 1 or max_answer_tokens < 1:
        raise QuothError(f"n_best={n_best}, max_answer_tokens={max_answer_tokens}: both must be at least 1")
    check(windows, logits, contexts)
    found = find_candidates(
        windows, logits, questions, contexts, confidence.features, n=n_best, longest=max_answer_tokens
    )
    right, no_answer = window_probabilities(confidence, found)
    spans = Spans(found.spans.start, found.spans.end, margins(found).astype(np.float32), no_answer.astype(np.float32))
    best = merge_windows(spans, np.searchsorted(windows.question, np.arange(len(contexts) + 1)))
    warn_skipped(windows, found.skipped, ids)
    score, null = best.score.astype(np.float64), np.zeros(len(contexts))
    for q, w in _best_windows(spans, best, windows).items():
        score[q] += right[w] - score[q, 0]
        null[q] = no_answer[w]
    return Decoded(best.start, best.end, score, null, contexts)


def margins(found: Candidates) -> Float64s:
    """(W, n): how far each span is ahead of "no answer" in its own window; -inf where there is no span."""
    return np.where(found.good, found.spans.score.astype(np.float64) - found.spans.null[:, None], -np.inf)


def window_probabilities(confidence: Confidence, found: Candidates) -> tuple[Float64s, Float64s]:
    """Log P(right) and log P(no answer) of the best span of each window, (W,) each; -inf and 0 where there is none."""
    good = found.good[:, 0]
    p = _log(confidence.probabilities(np.where(good[:, None], found.values[:, 0], 0.0)))
    return np.where(good, p[:, RIGHT], -np.inf), np.where(good, p[:, NO_ANSWER], 0.0)


def _log(p: Float64s) -> Float64s:
    return np.log(np.maximum(p, 1e-30))


def _best_windows(spans: Spans, best: Spans, windows: Windows) -> dict[int, int]:
    """The window of each question's best span, the first at a tie; none for a question without a span."""
    top = best.score[windows.question, 0]
    mine = np.flatnonzero((spans.score[:, 0] == top) & np.isfinite(top))[::-1]
    return dict(zip(windows.question[mine].tolist(), mine.tolist()))

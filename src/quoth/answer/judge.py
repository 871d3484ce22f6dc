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
from quoth.search.retrieve import Passage, bm25
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
    """The n best spans of each question, the most probably right first.

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
    retrieval, counts = _retrieval(windows, found, questions, contexts)
    order, right, no_answer = window_probabilities(confidence, found, retrieval, counts)
    spans = Spans(found.spans.start, found.spans.end, order.astype(np.float32), no_answer.astype(np.float32))
    best = merge_windows(spans, np.searchsorted(windows.question, np.arange(len(contexts) + 1)))
    warn_skipped(windows, found.skipped, ids)
    score, null = best.score.astype(np.float64), np.zeros(len(contexts))
    for q, w in _best_windows(spans, best, windows).items():
        score[q] += right[w] - score[q, 0]
        null[q] = no_answer[w]
    return Decoded(best.start, best.end, score, null, contexts)


def window_probabilities(
    confidence: Confidence, found: Candidates, retrieval: Float64s, windows: Float64s
) -> tuple[Float64s, Float64s, Float64s]:
    """What spans are ranked by, in logarithms, (W, n), and log P(right) and log P(no answer), (W,), of the first ones.

    It was fitted on the best spans of windows, and holds for these alone. A span after the first of its window is as
    much less probable as the softmax of the window says: by exp(score - score of the first). -inf where there is none.
    """
    good = found.good
    values = np.where(good[:, :1], found.values[:, 0], 0.0)
    score = np.where(good, found.spans.score, 0.0).astype(np.float64)
    rank = _log(confidence.rank(values, retrieval, windows))
    order = np.where(good, rank[:, None] + (score - score[:, :1]), -np.inf)
    p = _log(confidence.probabilities(values, retrieval, windows))
    return order, np.where(good[:, 0], p[:, RIGHT], -np.inf), np.where(good[:, 0], p[:, NO_ANSWER], 0.0)


def _log(p: Float64s) -> Float64s:
    return np.log(np.maximum(p, 1e-30))


def _retrieval(
    windows: Windows, found: Candidates, questions: Sequence[str], contexts: Sequence[str]
) -> tuple[Float64s, Float64s]:
    """For each window BM25 over the best of its question's windows, less 1, and how many windows the question has."""
    relative = np.zeros(len(windows))
    numbers, first, counts = np.unique(windows.question, return_index=True, return_counts=True)
    for q, at, count in zip(numbers.tolist(), first.tolist(), counts.tolist()):
        if count > 1:
            passages = [Passage(0, begin, past) for begin, past in found.reach[at : at + count].tolist()]
            relative[at : at + count] = relative_bm25(questions[q], [contexts[q]], passages)
    return relative, np.repeat(counts, counts).astype(np.float64)


def relative_bm25(question: str, texts: Sequence[str], passages: Sequence[Passage]) -> Float64s:
    """(N,): BM25 of each passage over that of the best, less 1: from -1 to 0; 0 for all that share no word."""
    scores = bm25(question, texts, passages)
    top = scores.max(initial=0.0)
    return scores / top - 1 if top > 0 else np.zeros(len(scores))


def _best_windows(spans: Spans, best: Spans, windows: Windows) -> dict[int, int]:
    """The window of each question's best span, the first at a tie; none for a question without a span."""
    top = best.score[windows.question, 0]
    mine = np.flatnonzero((spans.score[:, 0] == top) & np.isfinite(top))[::-1]
    return dict(zip(windows.question[mine].tolist(), mine.tolist()))

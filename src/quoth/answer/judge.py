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

    `score` is log P(right) of each span, and `null` is log P(no answer), as the window of the best span has it. So the
    reader's rule, to abstain if "no answer" is more probable than "right", is that of `Decoded` at the threshold 0.
    """
    if n_best < 1 or max_answer_tokens < 1:
        raise QuothError(f"n_best={n_best}, max_answer_tokens={max_answer_tokens}: both must be at least 1")
    check(windows, logits, contexts)
    found = find_candidates(
        windows, logits, questions, contexts, confidence.features, n=n_best, longest=max_answer_tokens
    )
    retrieval, counts = _retrieval(windows, found, questions, contexts)
    right, no_answer = window_probabilities(confidence, found, retrieval, counts)
    spans = Spans(found.spans.start, found.spans.end, right.astype(np.float32), no_answer.astype(np.float32))
    bounds = np.searchsorted(windows.question, np.arange(len(contexts) + 1))
    best = merge_windows(spans, bounds)
    warn_skipped(windows, found.skipped, ids)
    null = _null_of_best(spans, best, windows)
    return Decoded(best.start, best.end, best.score.astype(np.float64), null, contexts)


def window_probabilities(
    confidence: Confidence, found: Candidates, retrieval: Float64s, windows: Float64s
) -> tuple[Float64s, Float64s]:
    """log P(right), (W, n), -inf where there is no span, and log P(no answer), (W,), of each window's best span.

    It was fitted on the best spans of windows, so it must not reorder those of one window: each is held at or below
    the one before it.
    """
    good = found.good
    values = np.where(good[:, :, None], found.values, 0.0)
    p = confidence.probabilities(values, retrieval[:, None], windows[:, None])
    logs = np.log(np.maximum(p, 1e-30))
    right = np.minimum.accumulate(np.where(good, logs[:, :, RIGHT], -np.inf), axis=1)
    return right, np.where(good[:, 0], logs[:, 0, NO_ANSWER], np.inf)


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


def _null_of_best(spans: Spans, best: Spans, windows: Windows) -> Float64s:
    """(Q,): the null score of the window that has the question's best span with the same score; 0 without a span."""
    null = np.zeros(len(best.null))
    top = best.score[windows.question, 0]
    mine = (spans.score[:, 0] == top) & np.isfinite(top)
    for w in np.flatnonzero(mine)[::-1]:  # the first window at a tie
        null[windows.question[w]] = spans.null[w]
    return null

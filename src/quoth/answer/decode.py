"""From logits to answers: the n best spans of every question, and how they compare with "no answer".

Rules, for the logits s, e of a window whose [CLS] is at 0:

- `devlin` (Devlin et al. 2019, run_squad.py): a span scores s_i + e_j; the null answer scores s_0 + e_0, the
  smallest of the windows, since each window that does not hold the answer rightly calls for null.
- `probability` (transformers' question-answering pipeline; the rest of what it did is in pipeline_rule.py): the same
  with p_i·q_j, where p = softmax(s) and q = softmax(e) over the passage and [CLS] of one window.
- `bertvision` (the evaluation of BERTVision's authors): argmax of s and of e apart; score p_i·q_j. The answer is all
  that stands between: nothing ("no answer") if both are [CLS] or if j < i; and if only the start is [CLS], the passage
  from its first token in the window to the end. Of several windows the one with the highest product counts, the
  first at a tie. Here the argmax and the softmax are over [CLS] and the passage: the authors' are over question,
  separators and padding too, and their answer from [CLS] has the question in front, which no passage contains.

A question has no answer if null - best > threshold (strictly), or if it has no span at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from quoth.answer.candidates import Spans, merge_windows, no_spans, window_spans
from quoth.answer.chunks import check, chunks, log_probabilities, warn_skipped
from quoth.errors import QuothError
from quoth.runtime.logits import Floats, Integers, SpanLogits
from quoth.windows import Windows

Rule = Literal["devlin", "probability", "bertvision"]


@dataclass(frozen=True)
class Answer:
    """An answer in the words of its source: `context[start:end] == text`, always.

    If `no_answer`, the text is empty, start and end are 0 and the score is that of the null answer. Then `rejected` may
    be the best answer that was not given.
    """

    text: str
    start: int
    end: int
    score: float
    no_answer: bool = False
    rejected: Answer | None = None


def finite_margins(null_minus_best: NDArray[np.float64]) -> list[float]:
    """Margins (Q,) as finite numbers: a question without any span, +inf, becomes 1 more than the largest other."""
    most = float(null_minus_best[null_minus_best < math.inf].max(initial=0.0)) + 1.0
    return [min(float(value), most) for value in null_minus_best]


@dataclass(frozen=True, eq=False)
class Decoded:
    """The n best spans of each of Q questions, best first.

    - start, end: (Q, n) int32, characters [start, end) of the question's context
    - score: (Q, n) float64, -inf where a question has fewer than n spans
    - null: (Q,) float64, the score of "no answer"; 0 if there was no window to tell
    - contexts: Q texts
    """

    start: NDArray[np.int32]
    end: NDArray[np.int32]
    score: NDArray[np.float64]
    null: NDArray[np.float64]
    contexts: Sequence[str]

    def __len__(self) -> int:
        return len(self.null)

    @property
    def null_minus_best(self) -> NDArray[np.float64]:
        """(Q,): how far "no answer" is ahead of the best span; +inf where there is no span."""
        return self.null - self.score[:, 0]

    def finite_margins(self) -> list[float]:
        """`null_minus_best` for files, see `finite_margins`."""
        return finite_margins(self.null_minus_best)

    def predictions(self, threshold: float = 0.0) -> list[str]:
        """Q texts: the best span, or "" where null - best > threshold; with `math.inf` "" only without any span."""
        spans = zip(self.contexts, self.start[:, 0].tolist(), self.end[:, 0].tolist())
        abstains = np.isneginf(self.score[:, 0]) | (self.null_minus_best > threshold)
        return ["" if none else context[start:end] for none, (context, start, end) in zip(abstains.tolist(), spans)]

    def answers(self, i: int, threshold: float = 0.0) -> list[Answer]:
        """The answers to question i, best first; "no answer" goes before spans it beats by > threshold.

        With `math.inf` "no answer" is left out, unless there is nothing else.
        """
        found = np.isfinite(self.score[i])
        spans = zip(self.start[i, found].tolist(), self.end[i, found].tolist(), self.score[i, found].tolist())
        answers = [Answer(self.contexts[i][start:end], start, end, score) for start, end, score in spans]
        null = float(self.null[i])
        if not answers or threshold < math.inf:
            place = sum(null - answer.score <= threshold for answer in answers)
            answers.insert(place, Answer("", 0, 0, null, no_answer=True))
        return answers


def decode(
    windows: Windows,
    logits: SpanLogits,
    contexts: Sequence[str],
    *,
    n_best: int = 20,
    max_answer_tokens: int = 30,
    rule: Rule = "devlin",
    ids: Sequence[str] | None = None,
) -> Decoded:
    """The n best character spans of each question over all windows and all pairs of tokens.

    - contexts: the text of each question (Q); ids: their names in warnings, the index if left out
    - a span lies inside the passage and has at most `max_answer_tokens` tokens and at least one character;
      found more than once, it counts once with its best score
    - ties: the smaller start first, then the shorter span (in tokens within a window, in characters between windows)
    - scores of logits are float32 sums, as in run_qa; probabilities are exp of float32 sums of logarithms
    - a window with NaN or ±inf (or beyond ±1e38) at [CLS] or in the passage is skipped with a `QuothWarning`; one
      without passage tokens gives its null score alone; a question without windows is "no answer", score 0
    - `bertvision` gives at most one span and heeds neither `n_best` nor `max_answer_tokens`; its null is the
      product if "no answer" won and 0 if not, so that null - best > 0 is its verdict
    """
    if n_best < 1 or max_answer_tokens < 1:
        raise QuothError(f"n_best={n_best}, max_answer_tokens={max_answer_tokens}: both must be at least 1")
    check(windows, logits, contexts)
    if rule == "bertvision":
        decoded, skipped = _argmaxes(windows, logits, contexts)
    elif rule in ("devlin", "probability"):
        logs = rule == "probability"
        found, skipped = window_spans(windows, logits, contexts, n_best, max_answer_tokens, log_softmax=logs)
        best = merge_windows(found, np.searchsorted(windows.question, np.arange(len(contexts) + 1)))
        decoded = _decoded(best, contexts, logs)
    else:
        raise QuothError(f"rule {rule!r} is unknown: choose devlin, probability or bertvision")
    warn_skipped(windows, skipped, ids)
    return decoded


def _decoded(best: Spans, contexts: Sequence[str], logs: bool) -> Decoded:
    score, null = best.score.astype(np.float64), best.null.astype(np.float64)
    known = np.isfinite(null)
    if logs:
        score = np.where(np.isfinite(score), np.exp(score), -np.inf)
        null = np.exp(null, where=known, out=null)
    return Decoded(best.start, best.end, score, np.where(known, null, 0.0), contexts)


def _argmaxes(windows: Windows, logits: SpanLogits, contexts: Sequence[str]) -> tuple[Decoded, Integers]:
    """The `bertvision` rule, and the numbers of the windows skipped."""
    count = len(windows.question)
    span = np.zeros((count, 2), dtype=np.int32)
    score = np.full(count, -np.inf)
    skipped: list[Integers] = [np.zeros(0, dtype=np.int64)]
    for chunk, bad in chunks(windows, logits, cells_per_window=1):
        skipped.append(bad)
        logs = log_probabilities(chunk)
        i, start = _argmax(chunk.start, chunk.null_start, logs.start, logs.null_start)
        j, end = _argmax(chunk.end, chunk.null_end, logs.end, logs.null_end)
        score[chunk.window] = np.exp(start + end)
        is_span = (j >= 0) & (j >= i)  # -1 is [CLS]
        place = chunk.first[is_span]
        span[chunk.window[is_span], 0] = windows.spans[place + i[is_span].clip(0), 0]
        span[chunk.window[is_span], 1] = windows.spans[place + j[is_span], 1]
    limits = np.fromiter(map(len, contexts), np.int64, len(contexts))[windows.question]
    is_span = (span[:, 0] >= 0) & (span[:, 0] < span[:, 1]) & (span[:, 1] <= limits)

    order = np.lexsort((-score, windows.question))  # stable: the first window at a tie
    question, first = np.unique(windows.question[order], return_index=True)
    winner = order[first]
    decoded = _decoded(no_spans(len(contexts), 1), contexts, logs=False)
    known = np.isfinite(score[winner])
    yes, no = known & is_span[winner], known & ~is_span[winner]
    decoded.start[question[yes], 0] = span[winner[yes], 0]
    decoded.end[question[yes], 0] = span[winner[yes], 1]
    decoded.score[question[yes], 0] = score[winner[yes]]
    decoded.null[question[no]] = score[winner[no]]
    return decoded, np.concatenate(skipped)


def _argmax(
    passage: Floats, null: Floats, passage_log: Floats, null_log: Floats
) -> tuple[Integers, NDArray[np.float64]]:
    """The place of the largest logit in each row, -1 for [CLS], and its log-probability."""
    place = passage.argmax(axis=1)
    row = np.arange(len(place))
    is_null = null >= passage[row, place]
    return np.where(is_null, -1, place), np.where(is_null, null_log, passage_log[row, place]).astype(np.float64)

"""Features of an answer: numbers computed from its window's logits and from the texts alone.

One row for each candidate, a span among the best of its window. With s, e the logits of the passage tokens of that
window, and s_0, e_0 those of [CLS]:

    margin           s_i + e_j - (s_0 + e_0): how far the span is ahead of "no answer"
    log_probability  log softmax(s)_i + log softmax(e)_j, over passage tokens alone
    start_entropy    of softmax(s) over passage tokens, in nats; end_entropy: of softmax(e)
    gap              how far the span is ahead of the best one of its window that does not overlap it; below 0 if behind
    question_mark    1 if the question ends with one
    question_length  log of 1 + the question's words; passage_length: log of 1 + the characters of the window's passage
    answer_length    log of 1 + its characters
    overlap          the share of the question's words that the passage of the window has
    near             the same within `NEAR` characters of the span
    echo             the share of the span's words that stand in the question

Words are those of `quoth.search.retrieve`, cut to six letters; for the last three without short ones ("the", "was").
A name such as "margin*overlap" is the product of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quoth.answer.candidates import Spans, window_spans
from quoth.answer.chunks import chunks
from quoth.runtime.logits import Integers, SpanLogits
from quoth.search.retrieve import LETTERS, WORD
from quoth.windows import Windows

Float64s = NDArray[np.float64]

OF_LOGITS = ("margin", "log_probability", "start_entropy", "end_entropy", "gap")
OF_TEXTS = ("question_mark", "question_length", "passage_length", "answer_length", "overlap", "near", "echo")
NAMES = OF_LOGITS + OF_TEXTS
COMPARED = 20  # spans of a window that the gap is computed from: as many as a calibration is fitted with
NEAR = 150  # characters on both sides of a span
SHORT = 3  # letters of a word that says little
MARKS = ("?", "\uff1f", "\u061f", "\u037e")  # Latin, wide, Arabic, Greek


@dataclass(frozen=True, eq=False)
class Candidates:
    """The n best spans of each of W windows, and their features.

    - spans: (W, n), best first, as `window_spans` gives them
    - values: (W, n, F) float64, the features that were asked for; NaN where there is no span
    - reach: (W, 2) int64, the characters [begin, past) of its context that a window has
    - skipped: the numbers of the windows whose logits are no numbers
    """

    spans: Spans
    values: Float64s
    reach: Integers
    skipped: Integers

    @property
    def good(self) -> NDArray[np.bool_]:
        """(W, n): where there is a span."""
        return np.isfinite(self.spans.score)


def factors(name: str) -> list[str]:
    """The features that a name is the product of."""
    return name.split("*")


def find_candidates(
    windows: Windows,
    logits: SpanLogits,
    questions: Sequence[str],
    contexts: Sequence[str],
    names: Sequence[str] = OF_LOGITS,
    *,
    n: int = 20,
    longest: int = 30,
) -> Candidates:
    """The n best spans of each window, of at most `longest` tokens, and their features.

    questions, contexts: Q texts each; names: which features, of `NAMES`, or products of them
    """
    wanted = {factor for name in names for factor in factors(name)}
    spans, skipped = window_spans(windows, logits, contexts, n, longest, log_softmax=False)
    reach = _reach(windows)
    columns = _of_logits(windows, logits, spans)
    asked = [questions[i] for i in windows.question]
    columns["question_mark"] = _each([text.rstrip().endswith(MARKS) for text in asked], n)
    columns["passage_length"] = _each(np.log1p(reach[:, 1] - reach[:, 0]), n)
    columns["answer_length"] = np.log1p(spans.end - spans.start)
    if "question_length" in wanted:
        columns["question_length"] = _each(np.log1p([len(WORD.findall(text)) for text in asked]), n)
    if not {"overlap", "near", "echo"}.isdisjoint(wanted):
        columns |= _shared_words(windows, spans, reach, questions, contexts)
    products = [np.prod([columns[factor] for factor in factors(name)], axis=0) for name in names]
    values = np.stack(products, axis=2).astype(np.float64)
    values[~np.isfinite(spans.score)] = np.nan
    return Candidates(spans, values, reach, skipped)


def _of_logits(windows: Windows, logits: SpanLogits, spans: Spans) -> dict[str, Float64s]:
    score = np.where(np.isfinite(spans.score), spans.score, np.nan).astype(np.float64)
    null = np.where(np.isfinite(spans.null), spans.null, np.nan).astype(np.float64)
    normaliser, start, end = np.full((3, len(windows)), np.nan)
    for chunk, _ in chunks(windows, logits, cells_per_window=1):
        of_start, start[chunk.window] = _entropy(chunk.start)
        of_end, end[chunk.window] = _entropy(chunk.end)
        normaliser[chunk.window] = of_start + of_end
    n = score.shape[1]
    return {
        "margin": score - null[:, None],
        "log_probability": score - normaliser[:, None],
        "start_entropy": _each(start, n),
        "end_entropy": _each(end, n),
        "gap": _gap(spans),
    }


def _entropy(passage: NDArray[np.float32]) -> tuple[Float64s, Float64s]:
    """(W, L) logits, -inf past a passage's end → log Σ exp and the entropy of the softmax, (W,) each."""
    top = np.maximum(passage.max(axis=1), np.finfo(np.float32).min).astype(np.float64)
    shifted = passage - top[:, None]
    weight = np.exp(shifted)
    total = np.maximum(weight.sum(axis=1), 1e-300)
    mean = (weight * np.where(np.isfinite(shifted), shifted, 0.0)).sum(axis=1) / total
    return top + np.log(total), np.log(total) - mean


def _gap(spans: Spans) -> Float64s:
    """(W, n): the score of a span less that of the best one that does not overlap it.

    It is compared with the `COMPARED` best alone, so that it does not depend on n above that. If all of them overlap
    it, the last takes its place: the gap is at least as wide.
    """
    start, end, score = spans.start, spans.end, spans.score.astype(np.float64)
    good = np.isfinite(score)
    best = np.where(good, score, -np.inf)[:, :COMPARED]
    last = np.where(np.isfinite(best), best, np.inf).min(axis=1, initial=np.inf)
    found = np.full(score.shape, np.nan)
    for k in range(score.shape[1]):
        apart = (start[:, :COMPARED] >= end[:, k, None]) | (end[:, :COMPARED] <= start[:, k, None])
        second = np.where(apart, best, -np.inf).max(axis=1)
        second = np.where(np.isneginf(second), last, second)
        found[good[:, k], k] = (score[:, k] - second)[good[:, k]]
    return found


def _reach(windows: Windows) -> Integers:
    """(W, 2): the characters [begin, past) of its context that each window has; 0, 0 without passage tokens."""
    first, past = (windows.starts[:-1, None] + windows.passage).T
    found = np.zeros((len(windows), 2), np.int64)
    some = past > first
    found[some, 0], found[some, 1] = windows.spans[first[some], 0], windows.spans[past[some] - 1, 1]
    return found


def _shared_words(
    windows: Windows, spans: Spans, reach: Integers, questions: Sequence[str], contexts: Sequence[str]
) -> dict[str, Float64s]:
    """`overlap`, `near` and `echo`, (W, n) each."""
    shape = spans.score.shape
    found = {name: np.zeros(shape) for name in ("overlap", "near", "echo")}
    context: tuple[int, list[tuple[int, str]]] = -1, []
    for w, q in enumerate(windows.question.tolist()):
        if context[0] != q:
            context = q, _words(contexts[q])
            asked = {word for _, word in _words(questions[q])}
            wanted = {word for word in asked if _telling(word)} or asked
        begin, past = reach[w]
        places: dict[str, list[int]] = {word: [] for word in wanted}
        for place, word in context[1]:
            if word in places and begin <= place < past:
                places[word].append(place)
        low, high = spans.start[w] - NEAR, spans.end[w] + NEAR
        near = sum((np.searchsorted(p, low) < np.searchsorted(p, high) for p in places.values()), np.zeros(shape[1]))
        found["overlap"][w] = _share(map(bool, places.values()))
        found["near"][w] = near / max(1, len(places))
        texts = [contexts[q][a:b] for a, b in zip(spans.start[w], spans.end[w])]
        found["echo"][w] = [_share(word in asked for _, word in _words(text)) for text in texts]
    return found


def _words(text: str) -> list[tuple[int, str]]:
    """Where each word of a text begins, and its first letters."""
    return [(found.start(), found[0][:LETTERS].lower()) for found in WORD.finditer(text)]


def _telling(word: str) -> bool:
    return len(word) > SHORT or not word.isascii() or any(map(str.isdigit, word))


def _share(flags: Iterable[bool]) -> float:
    known = list(flags)
    return sum(known) / max(1, len(known))


def _each(values: Sequence[float] | Float64s, n: int) -> Float64s:
    """(W,) → (W, n): one value for all spans of a window."""
    return np.repeat(np.asarray(values, np.float64)[:, None], n, axis=1)

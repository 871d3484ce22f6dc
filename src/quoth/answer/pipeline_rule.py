"""The answers that transformers' question-answering pipeline (of 4.57, gone in 5.3) gave for the same logits.

What it did after the model, and what is done here:

1. In each window p = softmax(start), q = softmax(end) over the passage tokens and [CLS] alone.
2. The null score is p_0·q_0, the smallest over the windows.
3. A pair of passage tokens scores p_i·q_j, i ≤ j, with at most `max_answer_tokens` tokens (both ends counted).
   Each window gives its k best pairs, exactly: k = top_k, or 2·top_k + 10 if answers are aligned to words.
4. Aligned to words, an answer begins where the word of its first token begins and ends where the word of its last one
   ends, as far as the word lies in the window; if either token has no word, the tokens' own characters count.
5. The answers are pooled window by window, best first. One whose text, lower-cased, is there already is not a new one:
   its score is *added* to the first, which keeps its place in the text. So a score depends on top_k and may pass 1.
6. "No answer" is pooled last, if allowed at all. Sorted by score, the earlier first at a tie; top_k stay.

What it did and is left out: where a window has fewer than k pairs, that code filled up with pairs of score 0
(reversed ones, or with [CLS]), which showed as answers of score 0 if top_k exceeded the number of real answers.
Spans without characters are no answers here. With SentencePiece (ALBERT) its answers began with the blank before
their first word; these do not. A literal [CLS] in the question took part in the softmax there.
Pairs of equal score fell as the sort happened to leave them; here the smaller start wins, then the shorter span.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from quoth.answer.best_pairs import best_pairs
from quoth.answer.candidates import Spans, in_characters, no_spans, write
from quoth.answer.chunks import check, chunks, log_probabilities, warn_skipped
from quoth.answer.decode import Answer
from quoth.errors import QuothError
from quoth.runtime.logits import Floats, Integers, SpanLogits
from quoth.windows import Windows


def pipeline_answers(
    windows: Windows,
    logits: SpanLogits,
    contexts: Sequence[str],
    words: Integers | None = None,
    *,
    top_k: int = 1,
    max_answer_tokens: int = 15,
    no_answer: bool = False,
    ids: Sequence[str] | None = None,
) -> list[list[Answer]]:
    """The top_k answers to each question, best first; fewer if there are no more, never none.

    - words: (T,) the word that each token belongs to, -1 for none: answers are aligned to words. Without it
      they are not (the pipeline's `align_to_words`).
    - no_answer: whether "no answer" competes (its `handle_impossible_answer`)
    - windows with non-finite logits are skipped with a warning as in `decode`; where no span is left, the
      answer is "no answer" with its score if `no_answer` and there is a window to tell, else with score 0
    """
    if top_k < 1 or max_answer_tokens < 1:
        raise QuothError(f"top_k={top_k}, max_answer_tokens={max_answer_tokens}: both must be at least 1")
    check(windows, logits, contexts)
    if words is not None and len(words) != len(windows.spans):
        raise QuothError(f"words has {len(words)} numbers for {len(windows.spans)} tokens: give one for each")
    k = top_k if words is None else 2 * top_k + 10
    found, skipped = _window_answers(windows, logits, contexts, words, k, max_answer_tokens)
    warn_skipped(windows, skipped, ids)
    bounds = np.searchsorted(windows.question, np.arange(len(contexts) + 1)).tolist()
    probability = np.exp(found.score.astype(np.float64))
    answers = []
    for context, first, past in zip(contexts, bounds, bounds[1:]):
        pooled = _pool(context, found.start[first:past], found.end[first:past], probability[first:past])
        null = float(np.exp(found.null[first:past].min(initial=np.inf).astype(np.float64)))
        if no_answer and null < np.inf:
            pooled.append(Answer("", 0, 0, null, no_answer=True))
        pooled.sort(key=lambda answer: -answer.score)
        answers.append(pooled[:top_k] or [Answer("", 0, 0, 0.0, no_answer=True)])
    return answers


def word_spans(windows: Windows, words: Integers) -> NDArray[np.int32]:
    """(T, 2): the characters of each token's word, as far as its window has it; without a word, its own."""
    word = np.where(windows.spans[:, 0] < 0, -1, words)
    begins = np.ones(len(word), dtype=bool)
    begins[1:] = (word[1:] != word[:-1]) | (word[1:] < 0)
    begins[windows.starts[:-1]] = True
    first = np.flatnonzero(begins)
    tokens = np.diff(np.append(first, len(word)))
    bounds = np.stack([windows.spans[first, 0], windows.spans[first + tokens - 1, 1]], axis=1)
    return np.repeat(bounds, tokens, axis=0)


def _window_answers(
    windows: Windows,
    logits: SpanLogits,
    contexts: Sequence[str],
    words: Integers | None,
    k: int,
    longest: int,
) -> tuple[Spans, Integers]:
    """Steps 1 to 4 for each window: at most k spans with the log of their scores; the windows skipped."""
    found = no_spans(len(windows.question), k)
    limits = np.fromiter(map(len, contexts), np.int64, len(contexts))[windows.question]
    whole = None if words is None else word_spans(windows, words)
    skipped: list[Integers] = [np.zeros(0, dtype=np.int64)]
    for chunk, bad in chunks(windows, logits, cells_per_window=k * longest):
        skipped.append(bad)
        chunk = log_probabilities(chunk)
        found.null[chunk.window] = chunk.null_start + chunk.null_end
        score, i, j = best_pairs(chunk.start, chunk.end, k, longest)
        i, j, limit = chunk.first[:, None] + i, chunk.first[:, None] + j, limits[chunk.window]
        start, end, good = in_characters(score, i, j, windows.spans, limit)
        if words is not None and whole is not None:
            real = np.isfinite(score)
            both = (words[np.where(real, i, 0)] >= 0) & (words[np.where(real, j, 0)] >= 0)
            word_start, word_end, word_good = in_characters(score, i, j, whole, limit)
            start, end = np.where(both, word_start, start), np.where(both, word_end, end)
            good = np.where(both, word_good, good)
        write(found, chunk.window, start, end, score, good)
    return found, np.concatenate(skipped)


def _pool(context: str, start: Integers, end: Integers, score: Floats) -> list[Answer]:
    """Step 5: the answers of (windows, k) spans in their order, those of equal text joined."""
    pool: dict[str, Answer] = {}
    for first, past, value in zip(start.ravel().tolist(), end.ravel().tolist(), score.ravel().tolist()):
        if first < past:  # where a window had fewer than k spans, the rest are empty
            text = context[first:past]
            same = pool.get(text.lower())
            if same is None:
                pool[text.lower()] = Answer(text, first, past, value)
            else:
                pool[text.lower()] = replace(same, score=same.score + value)
    return list(pool.values())

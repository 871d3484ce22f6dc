"""Questions and passages as windows: [CLS] question [SEP] a stretch of the passage [SEP].

`step` is how far a window moves on (run_squad.py, and the papers' "stride"); `overlap` is how much of a full
window the next one repeats (transformers' run_qa and its old pipeline call that "doc_stride").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from quoth.data.dataset import Question
from quoth.errors import QuothError
from quoth.windows.columns import Window, Windows, concatenate
from quoth.windows.layout import Pool, Rule, make_plan
from quoth.windows.tokenizer import Encoded, Tokens

__all__ = ["Window", "Windows", "concatenate", "iter_windows", "make_windows"]

STEP = 128
BLOCK = 1024  # questions tokenised at a time …
BLOCK_CHARACTERS = 4_000_000  # … or fewer, when their passages are this long


def make_windows(
    questions: Sequence[Question],
    tokens: Tokens,
    *,
    max_length: int = 384,
    question_limit: int | None = 64,
    step: int | None = None,
    overlap: int | None = None,
) -> Windows:
    """All windows of all questions: T tokens in 20 bytes each.

    - a question longer than `question_limit` tokens is cut to it, as run_squad does; with None it is not, and
      one that leaves no room for the passage is an error
    - `step` (128 if neither is given) moves as run_squad's doc_span loop; more than a window holds counts as
      a window
    - `overlap` cuts as a fast tokenizer does with truncation="only_second", stride=overlap
    - a passage without tokens gives one window without passage tokens
    """
    pieces = list(
        iter_windows(
            questions,
            tokens,
            max_length=max_length,
            question_limit=question_limit,
            step=step,
            overlap=overlap,
        )
    )
    return concatenate(pieces)


def iter_windows(
    questions: Sequence[Question],
    tokens: Tokens,
    *,
    max_length: int = 384,
    question_limit: int | None = 64,
    step: int | None = None,
    overlap: int | None = None,
    at_most: int = 4096,
) -> Iterator[Windows]:
    """The windows of `make_windows` in order, `at_most` of them at a time, for very long texts.

    `question` counts in all of `questions`. A question with many windows may go on in the next `Windows`.
    Held at a time: one such value, and the tokens (36 bytes each) of the passages that are still asked about.
    """
    rule = Rule(max_length, question_limit, STEP if step is None and overlap is None else step, overlap)
    rule.check(tokens.template.special)
    if at_most < 1:
        raise QuothError(f"at_most is {at_most}; it must be at least 1")
    return _iterate(questions, tokens, rule, at_most)


def _iterate(questions: Sequence[Question], tokens: Tokens, rule: Rule, at_most: int) -> Iterator[Windows]:
    last_use = {question.context: index for index, question in enumerate(questions)}
    held: dict[str, Encoded] = {}
    for low, high in _blocks(questions):
        block = questions[low:high]
        new = list(dict.fromkeys(q.context for q in block if q.context not in held))
        held.update(zip(new, tokens.encode(new), strict=True))
        asked = [np.array(ids[: rule.question_limit], np.int32) for ids in tokens.ids([q.question for q in block])]
        passages = {question.context: held[question.context] for question in block}
        number = {context: i for i, context in enumerate(passages)}
        pool = Pool.of(tokens.template, asked, list(passages.values()))
        plan = make_plan(rule, pool, block, np.array([number[question.context] for question in block]))
        for first in range(0, len(plan), at_most):
            yield pool.windows(plan[first : first + at_most], base=low)
        held = {context: encoded for context, encoded in held.items() if last_use[context] >= high}


def _blocks(questions: Sequence[Question]) -> Iterator[tuple[int, int]]:
    """Ranges of `BLOCK` questions, or fewer when their passages come to `BLOCK_CHARACTERS`."""
    low = size = 0
    for index, question in enumerate(questions):
        if index - low == BLOCK or (index > low and size >= BLOCK_CHARACTERS):
            yield low, index
            low, size = index, 0
        if index == low or question.context is not questions[index - 1].context:
            size += len(question.context)
    if questions:
        yield low, len(questions)

"""Questions and passages as windows: [CLS] question [SEP] tokens of the passage [SEP].

`step` is how far a window moves on (run_squad.py, and the papers' "stride"); `overlap` is how much of a full
window the next one repeats (transformers' run_qa and its question-answering pipeline call that "doc_stride").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from quoth.data import Question
from quoth.errors import QuothError
from quoth.windows.columns import Windows, concatenate
from quoth.windows.layout import Pool, Rule, make_plan
from quoth.windows.tokenizer import Encoded, Tokenizer

STEP = 128
BLOCK = 1024  # questions tokenised at a time …
BLOCK_CHARACTERS = 4_000_000  # … or fewer, when their passages are this long


def make_windows(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    *,
    max_length: int = 384,
    max_query_length: int | None = 64,
    step: int | None = None,
    overlap: int | None = None,
) -> Windows:
    """All windows of all questions: T tokens in 20 bytes each.

    - a question longer than `max_query_length` tokens is cut to it, as run_squad does; with None it is not, and
      one that leaves no space for the passage is an error
    - `step` (128 if neither is given) moves as run_squad's doc_span loop; more than a window holds counts as a window
    - `overlap` cuts as a fast tokenizer does with truncation="only_second", stride=overlap
    - a passage without tokens gives one window without passage tokens
    """
    windows = iter_windows(
        questions, tokenizer, max_length=max_length, max_query_length=max_query_length, step=step, overlap=overlap
    )
    return concatenate(list(windows))


def iter_windows(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    *,
    max_length: int = 384,
    max_query_length: int | None = 64,
    step: int | None = None,
    overlap: int | None = None,
    at_most: int = 4096,
) -> Iterator[Windows]:
    """The windows of `make_windows` in order, `at_most` of them at a time, for very long texts.

    `question` counts in all of `questions`. A question with many windows may go on in the next `Windows`.
    Held at a time: one such value, and the tokens (36 bytes each) of the passages that are still asked about.
    """
    rule = Rule(max_length, max_query_length, STEP if step is None and overlap is None else step, overlap)
    rule.check(tokenizer.template.special)
    if at_most < 1:
        raise QuothError(f"at_most is {at_most}; it must be at least 1")
    return _iterate(questions, tokenizer, rule, at_most)


def _iterate(questions: Sequence[Question], tokenizer: Tokenizer, rule: Rule, at_most: int) -> Iterator[Windows]:
    last_use = {question.context: index for index, question in enumerate(questions)}
    held: dict[str, Encoded] = {}
    for low, high in _blocks(questions):
        block = questions[low:high]
        new = list(dict.fromkeys(q.context for q in block if q.context not in held))
        held.update(zip(new, tokenizer.encode(new), strict=True))
        asked = [np.array(ids[: rule.max_query_length], np.int32) for ids in tokenizer.ids([q.question for q in block])]
        passages = {question.context: held[question.context] for question in block}
        number = {context: i for i, context in enumerate(passages)}
        pool = Pool.of(tokenizer.template, asked, list(passages.values()))
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

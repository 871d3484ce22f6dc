"""How windows are laid out: which tokens of the passage each one has, and the gathering of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quoth.data import Question
from quoth.errors import QuothError
from quoth.windows.columns import TOKENS, Windows
from quoth.windows.tokenizer import Encoded, Template

NOWHERE = -1


@dataclass(frozen=True)
class Rule:
    """How windows are cut: exactly one of `step` and `overlap` is set."""

    max_length: int
    max_query_length: int | None
    step: int | None
    overlap: int | None

    def check(self, special: int) -> None:
        """Refuse settings that leave no space for the passage or cannot advance, whatever the data."""
        if self.step is not None and self.overlap is not None:
            raise QuothError(f"give step or overlap, not both (step={self.step}, overlap={self.overlap})")
        for name, least in (("max_length", 1), ("max_query_length", 1), ("step", 1), ("overlap", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise QuothError(f"{name} is {value}; it must be at least {least}")
        space = self.max_length - special - (self.max_query_length or 0)
        if space < 1:
            raise QuothError(
                f"max_length={self.max_length} has no space for the passage beside {special} special tokens "
                f"and a question of {self.max_query_length or 0}; raise max_length or lower max_query_length"
            )
        if self.overlap is not None and self.overlap >= space:
            raise QuothError(
                f"overlap={self.overlap} cannot advance: a window may hold only {space} passage tokens; "
                "lower overlap or raise max_length"
            )


@dataclass(frozen=True)
class Pool:
    """Every token that the windows of some questions are made of: the frame, the questions, the passages.

    - ids, types, words: int32 (t,); spans: int32 (t, 2)
    - questions, passages: where each begins in the pool, and past the last one
    - frame: how many tokens prefix, middle and suffix have; the pool begins with them
    """

    ids: np.ndarray
    types: np.ndarray
    spans: np.ndarray
    words: np.ndarray
    questions: np.ndarray
    passages: np.ndarray
    frame: tuple[int, int, int]

    @classmethod
    def of(cls, template: Template, asked: list[np.ndarray], passages: list[Encoded]) -> Pool:
        """Lay frame, questions and passages end to end."""
        frame = np.array(template.prefix + template.middle + template.suffix, np.int32)
        questions = np.cumsum([len(frame), *(len(ids) for ids in asked)])
        begins = np.cumsum([questions[-1], *(len(passage) for passage in passages)])
        ids = np.concatenate([frame, *asked, *(passage.ids for passage in passages)])
        types = np.full(len(ids), template.question_type, np.int32)
        types[: len(frame)] = template.prefix_types + template.middle_types + template.suffix_types
        types[begins[0] :] = template.passage_type
        spans = np.full((len(ids), 2), NOWHERE, np.int32)
        spans[begins[0] :] = np.concatenate([passage.spans for passage in passages])
        words = np.full(len(ids), NOWHERE, np.int32)
        words[begins[0] :] = np.concatenate([passage.words for passage in passages])
        sizes = (len(template.prefix), len(template.middle), len(template.suffix))
        return cls(ids, types, spans, words, questions, begins, sizes)

    def windows(self, plan: np.ndarray, base: int) -> Windows:
        """Gather the windows of a plan; `base` is the index of the pool's first question.

        A window is five slices of the pool. With `lengths` (n, 5) and where each begins in the pool, the
        source of every token is one `repeat` and one `arange`.
        """
        q, begin, past = plan.T
        prefix, middle, suffix = self.frame
        question = np.diff(self.questions)[q]
        lengths = np.empty((len(plan), 5), np.int64)
        lengths[:] = prefix, 0, middle, 0, suffix
        lengths[:, 1], lengths[:, 3] = question, past - begin
        begins = np.empty((len(plan), 5), np.int64)
        begins[:] = 0, 0, prefix, 0, prefix + middle
        begins[:, 1], begins[:, 3] = self.questions[q], begin
        ends = np.cumsum(lengths)
        source = np.repeat(begins.ravel() - ends + lengths.ravel(), lengths.ravel()) + np.arange(ends[-1])
        first = prefix + question + middle
        tokens = {name: getattr(self, name)[source] for name in TOKENS}
        passage = np.stack([first, first + past - begin], axis=1).astype(np.int32)
        return Windows(**tokens, starts=np.append(0, ends[4::5]), question=(q + base).astype(np.int32), passage=passage)


def make_plan(rule: Rule, pool: Pool, questions: Sequence[Question], which: np.ndarray) -> np.ndarray:
    """Where each window lies: int64 (n, 3), its question and its passage tokens [begin, past) in the pool.

    `which` is each question's passage. Windows begin at 0, s, 2s, … of the passage until one reaches its end,
    where s is the step, at most the space there is (run_squad's doc_span loop), or the space less the overlap
    (`Encoding.truncate` of tokenizers).
    """
    sizes = np.diff(pool.questions)
    tokens = np.diff(pool.passages)[which]
    space = rule.max_length - sum(pool.frame) - sizes
    step = np.minimum(rule.step, space) if rule.step is not None else space - (rule.overlap or 0)
    stuck = (space < 1) | ((step < 1) & (tokens > space))
    if stuck.any():
        i = int(np.argmax(stuck))
        raise QuothError(
            f"question {questions[i].id}: its {sizes[i]} tokens leave too little space for the passage "
            f"in a window of {rule.max_length}; raise max_length or set max_query_length"
        )
    counts = 1 + np.maximum(0, -(-(tokens - space) // np.maximum(step, 1)))
    q = np.repeat(np.arange(len(questions)), counts)
    nth = np.arange(len(q)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = nth * step[q]
    past = np.minimum(first + space[q], tokens[q])
    return np.stack([q, pool.passages[which[q]] + first, pool.passages[which[q]] + past], axis=1)

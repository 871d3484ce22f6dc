"""One question asked of many texts of any length: which passages are read, and the best answers in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from quoth.answer.decode import Answer, decode
from quoth.data import Question
from quoth.errors import QuothError
from quoth.search.retrieve import Passage, best_passages, split_passages, widened
from quoth.windows import Windows, iter_windows

if TYPE_CHECKING:
    from quoth.answer.reader import Progress, Reader

READ = 100  # passages that are read of longer texts: docs/answer.md has the measurement
BLOCK = 400_000  # characters that are tokenised at a time …
OVERLAP = 3000  # … and read again in the next block: more than a window holds, so that no answer lacks its context
WINDOWS = 64  # run together, between two looks at the progress

Place = tuple[int, int, int]  # document, start, end
Best = dict[Place, tuple[float, Answer]]  # how far the null score of its window is ahead of a span, and the span


@dataclass(frozen=True)
class Hit:
    """An answer found in one of several texts. `probability` is that of the span against "no answer"."""

    document: int
    answer: Answer
    probability: float


@dataclass(frozen=True)
class SearchResult:
    """What a search gave.

    - hits: the answers, best first; none where `null_minus_best` is above the threshold: the reader abstains
    - rejected: the best answer where the reader abstains, if there is a span at all
    - null_minus_best: how far "no answer" is ahead of the best span in its window; +inf if there is no span at all
    - threshold: the one that was used
    - no_answer: the probability that what was read does not hold the answer
    - read, passages: how many passages were read, and how many the texts have
    """

    hits: list[Hit]
    rejected: Hit | None
    null_minus_best: float
    threshold: float
    no_answer: float
    read: int
    passages: int


def find_answers(
    reader: Reader,
    question: str,
    documents: Sequence[str],
    *,
    top: int = 1,
    threshold: float | None = None,
    read: int = READ,
    max_answer_tokens: int = 30,
    step: int | None = None,
    progress: Progress | None = None,
) -> SearchResult:
    """The best answers to a question over several texts of any length, their probabilities, how much was read.

    The best spans are those that are furthest ahead of the null score of their own window. A threshold is fitted on
    passages, so each window counts as one. The smallest null score of all windows, which is the rule for those of one
    passage, falls the more is read (docs/answer.md has the measurement).

    - threshold: abstain if "no answer" is ahead by more; left out, that of the model folder, else 0
    - read: if the texts have more passages than that, only so many are read, the best by BM25; 0: all are

    Texts are read in pieces, so that memory does not grow with them.
    """
    if not isinstance(question, str) or isinstance(documents, str):
        raise QuothError("find takes a question and a list of texts; for one text, put it in a list")
    if read < 0 or top < 1:
        raise QuothError(f"top={top}, read={read}: top must be at least 1, and read at least 0")
    passages = split_passages(documents)
    to_read = _select(question, documents, passages, read)
    best = _read(reader, question, documents, to_read, step, max(20, top), max_answer_tokens, progress)
    ranked = sorted(best.items(), key=lambda item: item[1][0])
    margin = ranked[0][1][0] if ranked else math.inf
    limit = reader.abstention.threshold if threshold is None else threshold
    probability = reader.abstention.calibration.probability
    hits = [Hit(number, answer, 1 - float(probability(behind))) for number, behind, answer in _apart(ranked, top)]
    hits, rejected = (hits, None) if margin <= limit else ([], next(iter(hits), None))
    count = min(read or len(passages), len(passages))
    return SearchResult(hits, rejected, margin, limit, float(probability(margin)), count, len(passages))


def _read(
    reader: Reader,
    question: str,
    documents: Sequence[str],
    passages: Sequence[Passage],
    step: int | None,
    n: int,
    longest: int,
    progress: Progress | None,
) -> Best:
    """The n best spans of each window, each place once, as the window has it in which it is furthest ahead."""
    best: Best = {}
    done, total = 0, max(1, sum(map(len, passages)))
    for group, asked in _groups(question, documents, passages):
        for windows in _windows(reader, asked, step):
            for passage, answers, null in _answers(reader, group, asked, windows, n, longest):
                for answer in answers:
                    place, behind = (passage.document, answer.start, answer.end), null - answer.score
                    if place not in best or behind < best[place][0]:
                        best[place] = behind, answer
            if progress:
                last = int(windows.question[-1])
                progress(done + sum(map(len, group[:last])) + int(windows[-1].spans.max(initial=0)), total)
        done += sum(map(len, group))
    return best


def _select(question: str, documents: Sequence[str], passages: Sequence[Passage], read: int) -> list[Passage]:
    """What to read: the best passages, or all texts, long ones in overlapping blocks."""
    if read and len(passages) > read:
        return [widened(one, documents[one.document]) for one in best_passages(question, documents, passages, read)]
    return [widened(block, documents[block.document], OVERLAP) for block in split_passages(documents, BLOCK, 1)]


def _groups(
    question: str, documents: Sequence[str], passages: Sequence[Passage]
) -> Iterator[tuple[list[Passage], list[Question]]]:
    """Passages to be read together, some `BLOCK` characters of them, and the question asked of each."""
    group: list[Passage] = []
    size = 0
    for number, passage in enumerate(passages, 1):
        group.append(passage)
        size += len(passage)
        if size >= BLOCK or number == len(passages):
            yield group, [_asked(question, documents, one) for one in group]
            group, size = [], 0


def _asked(question: str, documents: Sequence[str], passage: Passage) -> Question:
    where = f"text {passage.document + 1}, characters {passage.begin}–{passage.past}"
    return Question(where, question, documents[passage.document][passage.begin : passage.past], ())


def _windows(reader: Reader, asked: Sequence[Question], step: int | None) -> Iterator[Windows]:
    return iter_windows(
        asked,
        reader.tokenizer,
        max_length=reader.max_length,
        max_query_length=reader.max_query_length,
        step=reader.step if step is None else step,
        at_most=WINDOWS,
    )


def _answers(
    reader: Reader, group: Sequence[Passage], asked: Sequence[Question], windows: Windows, n: int, longest: int
) -> Iterator[tuple[Passage, list[Answer], float]]:
    """For each window: its passage, its n best spans, in characters of the document, and its null score."""
    question = windows.question
    alone = replace(windows, question=np.arange(len(windows)))
    contexts, ids = [asked[i].context for i in question], [asked[i].id for i in question]
    found = decode(alone, reader.logits(windows), contexts, n_best=n, max_answer_tokens=longest, ids=ids)
    for number, i in enumerate(question.tolist()):
        begin = group[i].begin
        spans = [
            replace(answer, start=answer.start + begin, end=answer.end + begin)
            for answer in found.answers(number, math.inf)
            if not answer.no_answer
        ]
        if spans:  # none are left of a window that was skipped
            yield group[i], spans, float(found.null[number])


def _apart(ranked: Sequence[tuple[Place, tuple[float, Answer]]], top: int) -> list[tuple[int, float, Answer]]:
    """The best `top` answers that do not overlap a better one of the same text: "in 1969" adds nothing to "1969"."""
    chosen: list[tuple[int, float, Answer]] = []
    for (number, start, end), (behind, answer) in ranked:
        if len(chosen) == top:
            break
        if not any(other == number and start < better.end and better.start < end for other, _, better in chosen):
            chosen.append((number, behind, answer))
    return chosen

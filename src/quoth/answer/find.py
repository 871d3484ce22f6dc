"""One question asked of many texts of any length: which passages are read, and the best answers in them.

Passages are read best first, `ROUND` at a time. From `FIRST` on, reading ends as soon as the best answer is right with
a probability of at least `SURE` and was the best after the round before too; else it goes on to `read` passages. The
rule needs the calibration of a model folder, and is for one answer: if several are asked for, all `read` are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quoth.answer.decode import Answer
from quoth.answer.ranking import Ranking, Seen, rank_by_confidence, rank_by_margin
from quoth.answer.read_passages import BLOCK, Documents, Told, read_passages
from quoth.errors import QuothError
from quoth.search.collection import Collection, TextCollection
from quoth.search.retrieve import Passage, split_passages, widened

if TYPE_CHECKING:
    from quoth.answer.reader import Progress, Reader

READ = 50  # passages of longer texts that are read: 100 gave no more right answers (benchmarks/results/index.md)
FIRST = 20  # passages that are read in any case: a text of no more is read as a whole
ROUND = 10  # passages between two looks at the best answer
SURE = 0.5  # from here on it is more probably right than not; benchmarks/results/index.md has what reading on gains
OVERLAP = (
    3000  # characters of a block that the next reads again: more than a window holds, so that answers have context
)


@dataclass(frozen=True)
class Hit:
    """An answer found in one of several texts. `probability` is that of the answer being right.

    Without a calibration in the model folder, it is that of the span against "no answer".
    """

    document: int
    answer: Answer
    probability: float


@dataclass(frozen=True)
class SearchResult:
    """What a search gave.

    - hits: the answers, best first; none where the reader abstains
    - rejected: the best answer where the reader abstains, if there is a span at all
    - null_minus_best: how far "no answer" is ahead of the best answer in its window; +inf if there is no span at all
    - threshold: the one on `null_minus_best` that decided, None if it did not
    - min_score: the least probability that was asked for, None if none was
    - no_answer: the probability that what was read does not hold the answer
    - read, passages: how many passages were read, and how many the texts have
    """

    hits: list[Hit]
    rejected: Hit | None
    null_minus_best: float
    threshold: float | None
    min_score: float | None
    no_answer: float
    read: int
    passages: int


def find_answers(
    reader: Reader,
    question: str,
    documents: Collection | Sequence[str],
    *,
    top: int = 1,
    every: bool = False,
    min_score: float | None = None,
    threshold: float | None = None,
    read: int = READ,
    max_answer_tokens: int = 30,
    step: int | None = None,
    progress: Progress | None = None,
) -> SearchResult:
    """The best answers to a question over several texts of any length, their probabilities, how much was read.

    The best answers are those furthest ahead of the null score of their own window: calibration and threshold are
    fitted on passages, so each window counts as one. The smallest null score of all windows, which is the rule for
    those of one passage, falls the more is read (docs/answer.md has the measurement).

    - every: only answers that would be given if they were the best; else those after the first have any probability
    - min_score: abstain if the probability of the best answer is below. Left out, abstain if "no answer" is more
      probable than that the answer is right; without a calibration, by the threshold of the model folder, else 0
    - threshold: rank by the margin alone, whatever calibration there is, and abstain if "no answer" is ahead by more
    - documents: a collection (`quoth.search.open_collection`), or a list of texts
    - read: if the texts have more passages than that, at most so many are read, the best by BM25; 0: all are

    Texts are read in pieces, so that memory does not grow with them.
    """
    if not isinstance(question, str) or isinstance(documents, str):
        raise QuothError("find takes a question and a list of texts; for one text, put it in a list")
    if read < 0 or top < 1:
        raise QuothError(f"top={top}, read={read}: top must be at least 1, and read at least 0")
    check_min_score(min_score, threshold)
    collection = documents if isinstance(documents, Collection) else TextCollection(documents)
    texts = Documents(collection)
    confidence = reader.confidence if threshold is None else None
    names = confidence.features if confidence else ("margin",)
    to_read = passages_to_read(question, collection, read)
    count = len(to_read) if _ranked(collection, read) else collection.passages
    told = Told(progress, sum(len(one) for one in to_read))

    def look(passages: Sequence[Passage]) -> list[Seen]:
        return list(
            read_passages(reader, question, texts, passages, names, step, max(20, top), max_answer_tokens, told)
        )

    def rank(seen: Sequence[Seen]) -> Ranking:
        return rank_by_confidence(confidence, seen) if confidence else rank_by_margin(reader.abstention, seen)

    if confidence and top == 1 and not every and count > FIRST:
        ranking, count = _until_sure(to_read, look, rank, max(SURE, min_score or 0.0))
    else:
        ranking = rank(look(to_read))
    behind, no_answer = _first(ranking)
    limit = reader.abstention.threshold if threshold is None else threshold
    given = ranking.no_answer <= ranking.right if confidence else ranking.behind <= limit
    if min_score is not None:
        given = ranking.right >= min_score
    if given[:1].any():
        hits, rejected = _hits(ranking.take(given) if every else ranking, texts, top), None
    else:
        hits, rejected = [], next(iter(_hits(ranking, texts, 1)), None)
    used = None if confidence or min_score is not None else limit
    return SearchResult(hits, rejected, behind, used, min_score, no_answer, count, collection.passages)


def passages_to_read(question: str, collection: Collection, read: int) -> Sequence[Passage]:
    """The `read` best passages, best first; or all texts, long ones in overlapping blocks."""
    if _ranked(collection, read):
        return collection.best(question, read)
    found: list[Passage] = []
    for number in range(len(collection)):
        text = collection.document(number).text
        blocks = (widened(block, text, OVERLAP) for block in split_passages([text], BLOCK, 1))
        found += (Passage(number, block.begin, block.past) for block in blocks)
    return found


def _ranked(collection: Collection, read: int) -> bool:
    return 0 < min(read, FIRST) < collection.passages


def check_min_score(min_score: float | None, threshold: float | None = None) -> None:
    """Raise an error for what is no probability, and for two limits at once."""
    if min_score is None:
        return
    if not 0 <= min_score <= 1:
        raise QuothError(f"the least score of an answer is {min_score}; it is a probability, from 0 to 1")
    if threshold is not None:
        raise QuothError("give the least score of an answer or a threshold on null − best, not both")


def _first(ranking: Ranking) -> tuple[float, float]:
    """Of the best span null - score, and the probability that there is no answer."""
    return (float(ranking.behind[0]), float(ranking.no_answer[0])) if len(ranking) else (math.inf, 1.0)


def _hits(ranking: Ranking, documents: Documents, top: int) -> list[Hit]:
    hits = []
    for i in ranking.apart(top):
        number, start, end = int(ranking.document[i]), int(ranking.start[i]), int(ranking.end[i])
        answer = Answer(documents.text(number)[start:end], start, end, float(ranking.score[i]))
        hits.append(Hit(number, answer, float(ranking.right[i])))
    return hits


def _until_sure(
    passages: Sequence[Passage],
    look: Callable[[Sequence[Passage]], list[Seen]],
    rank: Callable[[Sequence[Seen]], Ranking],
    sure: float,
) -> tuple[Ranking, int]:
    """Read until the best answer is sure and stays, or all passages are read; and how many were. See above."""
    seen: list[Seen] = []
    before: tuple[int, int, int] | None = None
    for done in range(ROUND, len(passages) + ROUND, ROUND):
        seen += look(passages[done - ROUND : done])
        ranking = rank(seen)
        best = (int(ranking.document[0]), int(ranking.start[0]), int(ranking.end[0])) if len(ranking) else None
        if done >= FIRST and best is not None and best == before and ranking.right[0] >= sure:
            break
        before = best
    return ranking, min(done, len(passages))

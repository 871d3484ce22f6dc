"""Fitting the terms of a `Confidence` for many windows: questions of a dataset, asked of its most similar passages.

Of each set `QUESTIONS` are drawn, and asked of the `PASSAGES` passages with the highest BM25 score; for every other
question that has an answer its own passage is left out, so that there is none. Each counts twice, with the first
`FEW` passages and with all. Then, one after the other,

- `retrieval` is fitted on windows: is the best span of this window right, wrong, or does the window have no answer?
- `windows` is fitted on questions: the same of the span that is ranked first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quoth.answer import Reader
from quoth.answer.confidence import NO_ANSWER, RIGHT, WRONG, Confidence, Outcome
from quoth.answer.features import find_candidates
from quoth.answer.judge import relative_bm25
from quoth.answer.logistic import fit_softmax
from quoth.answer.reader import Progress
from quoth.data import Question
from quoth.score.calibrate import RIDGE, outcomes
from quoth.search.retrieve import Passage, bm25

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]

QUESTIONS, PASSAGES, FEW = 90, 10, 3


@dataclass(frozen=True, eq=False)
class Search:
    """The W windows that one question was asked of.

    - values: (W, F) features of the best spans; retrieval: (W,) BM25 over the best, less 1
    - outcome: (W,) of each window; none: whether the texts of all of them hold no answer
    - f1: (W,) official F1 of the spans; article: of the question; group: the number of its dataset
    """

    values: Float64s
    retrieval: Float64s
    outcome: Int64s
    none: bool
    f1: Float64s
    article: str
    group: int

    def verdict(self, best: int) -> int:
        """What became of the question if this window's span is given."""
        if self.outcome[best] == RIGHT:
            return RIGHT
        return NO_ANSWER if self.none else WRONG


def searches(
    reader: Reader, questions: Sequence[Question], features: Sequence[str], group: int, progress: Progress | None = None
) -> list[Search]:
    """Ask drawn questions of a dataset of its passages."""
    contexts = list(dict.fromkeys(q.context for q in questions))
    drawn = _draw(questions)
    asked: list[Question] = []
    source: list[tuple[int, int]] = []  # of each pair: the drawn question, the passage
    for i, question in enumerate(drawn):
        scores = bm25(question.question, contexts, [Passage(p, 0, len(text)) for p, text in enumerate(contexts)])
        order = [p for p in np.argsort(-scores, kind="stable").tolist() if not _left_out(i, question, contexts[p])]
        for p in order[:PASSAGES]:
            asked.append(replace(question, id=f"{i}/{p}", context=contexts[p]))
            source.append((i, p))
    windows = reader.windows(asked)
    texts = [q.context for q in asked]
    found = find_candidates(windows, reader.logits(windows, progress), [q.question for q in asked], texts, features)
    pair = windows.question
    spans = zip(pair.tolist(), found.spans.start[:, 0].tolist(), found.spans.end[:, 0].tolist())
    f1, outcome, _ = outcomes([asked[p] for p in pair], [texts[p][start:end] for p, start, end in spans])
    made = []
    for i, question in enumerate(drawn):
        own = [p for p, (number, _) in enumerate(source) if number == i]
        for pairs in (own[:FEW], own):
            here = np.flatnonzero(np.isin(pair, pairs) & found.good[:, 0])
            if len(here) < 2:
                continue
            holds = np.array([texts[pair[w]] == question.context for w in here])
            now = np.where((outcome[here] == WRONG) & ~holds, NO_ANSWER, outcome[here])
            parts = [Passage(source[pair[w]][1], *found.reach[w].tolist()) for w in here]
            near = relative_bm25(question.question, contexts, parts)
            none = question.impossible or not holds.any()
            made.append(Search(found.values[here, 0], near, now, none, f1[here], question.title, group))
    return made


def fit_search(confidence: Confidence, made: Sequence[Search], ridge: float = RIDGE) -> Confidence:
    """The same confidence with its terms for many windows."""
    if not made:
        return confidence
    share = 1 / np.bincount([one.group for one in made])
    weight = np.concatenate([np.full(len(one.outcome), share[one.group] / len(one.outcome)) for one in made])
    offset = np.concatenate([confidence.exponents(one.values) for one in made])
    x = np.concatenate([np.stack([one.retrieval, np.full(len(one.f1), np.log(len(one.f1)))], axis=1) for one in made])
    terms, _ = fit_softmax(x, np.concatenate([one.outcome for one in made]), weight, ridge, offset, bias=False)
    confidence = _with(confidence, "retrieval", terms[:, 0])
    top = [best_window(confidence, one) for one in made]
    values = np.stack([one.values[w] for one, w in zip(made, top)])
    near = np.array([one.retrieval[w] for one, w in zip(made, top)])
    counts = np.log([[len(one.f1)] for one in made])
    outcome = np.array([one.verdict(w) for one, w in zip(made, top)])
    weight = np.array([share[one.group] for one in made])
    terms, _ = fit_softmax(counts, outcome, weight, ridge, confidence.exponents(values, near), bias=False)
    return _with(confidence, "windows", terms[:, 0])


def best_window(confidence: Confidence, one: Search) -> int:
    """The window whose span is given."""
    return int(np.argmax(confidence.rank(one.values, one.retrieval, len(one.f1))))


def _draw(questions: Sequence[Question]) -> list[Question]:
    """Always the same questions; those without an answer only if nobody asks the same of another passage."""
    answered = {q.question for q in questions if not q.impossible}
    able = [q for q in questions if not q.impossible or q.question not in answered]
    number = np.random.default_rng(0).permutation(len(able))[:QUESTIONS]
    return [able[i] for i in np.sort(number)]


def _left_out(i: int, question: Question, context: str) -> bool:
    return i % 2 == 1 and not question.impossible and context == question.context


def _with(confidence: Confidence, term: str, values: Float64s) -> Confidence:
    right, none = ({**asdict(one), term: float(value)} for one, value in zip(_outcomes(confidence), values))
    return replace(confidence, right=Outcome(**right), no_answer=Outcome(**none))


def _outcomes(confidence: Confidence) -> tuple[Outcome, Outcome]:
    return confidence.right, confidence.no_answer

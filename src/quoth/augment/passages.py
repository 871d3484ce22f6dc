"""Questions asked of other passages: of the same article (`moved`), or of the most similar one anywhere (`lookalike`).

A passage is taken for one that does not answer if no gold answer stands in it, normalised as the official score does,
nor half of the words of one; and if it lacks a word of the question that the question's own passage has, so that
"What did the committee decide?" does not find another committee that decided.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quoth.augment.base import WORD, Negative, Passage, content, gather, is_article, passages_of
from quoth.data import Question
from quoth.data.bm25 import weigh

DEPTH = 50  # how far down the ranking to look for a passage without the answer


def moved(questions: Sequence[Question], count: int, seed: int = 0) -> list[Negative]:
    """At most `count` questions, each asked of another passage of the same article, drawn at random."""
    passages = passages_of(questions)
    articles: dict[str, dict[str, Passage]] = {}
    for question in questions:
        articles.setdefault(question.title, {})[question.context] = passages[question.context]

    def attempt(question: Question, draw: int) -> tuple[str, Passage] | None:
        others = list(articles[question.title].values()) if is_article(question.title) else []
        for i in range(len(others)):
            other = others[(draw + i) % len(others)]
            if _fits(question, passages[question.context], other):
                return question.question, other
        return None

    return gather(questions, count, "moved", seed, attempt)


def lookalike(questions: Sequence[Question], count: int, seed: int = 0) -> list[Negative]:
    """At most `count` questions, each asked of the passage most like it and its own, anywhere in the data.

    Most like by BM25: the mean over the words of the question plus the mean over those of its own passage.
    """
    passages = passages_of(questions)
    listed = list(passages.values())
    index = Bm25([words(passage.context) for passage in listed])

    def attempt(question: Question, _: int) -> tuple[str, Passage] | None:
        scores = index.scores(words(question.question)) + index.scores(words(question.context))
        for i in np.argsort(-scores, kind="stable")[:DEPTH].tolist():
            if _fits(question, passages[question.context], listed[i]):
                return question.question, listed[i]
        return None

    return gather(questions, count, "lookalike", seed, attempt)


def _fits(question: Question, own: Passage, other: Passage) -> bool:
    if other is own:
        return False
    asked = content(question.question)
    return bool((asked & own.stems) - other.stems) and not other.may_answer(question.gold_texts, asked)


def words(text: str) -> list[str]:
    """The words of a text in lower case, in order."""
    return [word.lower() for word in WORD.findall(text)]


class Bm25:
    """Scores of n documents for many queries: every word's score in every document is computed once."""

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        self._count = n = len(documents)
        self._terms: dict[str, int] = {}
        flat = np.array([self._terms.setdefault(w, len(self._terms)) for d in documents for w in d], np.int64)
        sizes = np.array([len(d) for d in documents], np.float64)
        owner = np.repeat(np.arange(n), sizes.astype(np.int64))
        pairs, often = np.unique(flat * max(n, 1) + owner, return_counts=True)  # by term, then by document
        term, self._owner = np.divmod(pairs, max(n, 1))
        holders = np.bincount(term, minlength=len(self._terms))
        self._starts = np.append(0, np.cumsum(holders))
        mean = float(sizes.mean()) if n else 1.0
        self._weights = weigh(often, holders[term], sizes[self._owner], n, mean)

    def scores(self, query: Sequence[str]) -> np.ndarray:
        """The mean over the query's distinct words of their scores in each document, (n,)."""
        distinct = list(dict.fromkeys(query))
        terms = [self._terms[word] for word in distinct if word in self._terms]
        if not terms:
            return np.zeros(self._count)
        rows = np.concatenate([np.arange(self._starts[t], self._starts[t + 1]) for t in terms])
        sums = np.bincount(self._owner[rows], self._weights[rows], minlength=self._count)
        return np.asarray(sums / len(distinct))

"""Which questions are hard: the data cut into slices by length, question word and article.

A slicing divides the questions: each is in exactly one slice, so the mean of the slices, weighted by their counts, is
the score of the whole. It looks at the data alone, so the slices of all runs are the same questions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quoth.data import Question
from quoth.score.significance import RESAMPLES, bootstrap
from quoth.score.squad import Scored

QUESTION_WORDS = ("what", "which", "who", "when", "where", "why", "how", "how many/much", "other")
NO_ANSWER, NO_TITLE = "no answer", "no title"

_KINDS = {word: word for word in QUESTION_WORDS[:7]} | {"whom": "who", "whose": "who"}
# "Was it controversial when …", "Name the man who …": closed questions and commands ask with no question word.
_OPENING_WORDS = """
is are was were am do does did can could has have
had will would shall should may might must name list
"""
_OPENERS = frozenset(_OPENING_WORDS.split())
_RELATIVE = frozenset(("who", "when", "where"))  # inside a sentence mostly conjunctions: "the area where …"
_TOKENS = re.compile(r"[^\W_]+|,")


@dataclass(frozen=True, eq=False)
class Slicing:
    """Q questions divided into slices.

    - name: by what; labels: one for each slice; which: (Q,) the index of each question's slice
    """

    name: str
    labels: tuple[str, ...]
    which: NDArray[np.intp]


def words(text: str) -> int:
    """How many words a text has, separated by blanks."""
    return len(text.split())


def slicings(questions: Sequence[Question]) -> list[Slicing]:
    """By context, question and answer length in words, by question word, and by title (the largest first).

    Lengths are cut at the quartiles of the data; equal lengths stay together, so bins may be uneven or fewer than
    four. Of several gold answers the first tells the length, and questions without an answer are a slice of their own.
    """
    contexts = Slicing("context_length", *_quartiles([words(q.context) for q in questions]))
    asked = Slicing("question_length", *_quartiles([words(q.question) for q in questions]))
    answered = np.array([bool(q.gold_texts) for q in questions])
    labels, which = _quartiles([words(q.gold_texts[0]) for q in questions if q.gold_texts])
    answers = np.full(len(questions), len(labels), np.intp)
    answers[answered] = which
    labels += () if answered.all() else (NO_ANSWER,)
    by_word = _groups([question_word(q.question) for q in questions], QUESTION_WORDS)
    titles = [q.title or NO_TITLE for q in questions]
    by_title = _groups(titles, [title for title, _ in Counter(titles).most_common()])
    return [
        contexts,
        asked,
        Slicing("answer_length", labels, answers),
        Slicing("question_word", *by_word),
        Slicing("title", *by_title),
    ]


def question_word(question: str) -> str:
    """The word that asks, one of `QUESTION_WORDS`.

    It may stand anywhere ("In what year …", "Paris lies on which river?"). The first one counts, but for: *who*, *when*
    and *where* inside the sentence, which give way to a word that can only ask; and a *when* or *where* that opens a
    clause of its own ("When violence is used, what …"). Closed questions and commands are "other".
    """
    tokens = _TOKENS.findall(question.lower())
    places = [i for i, token in enumerate(tokens) if token in _KINDS]
    if not places or tokens[0] in _OPENERS:
        return "other"
    after_comma = {i for i in places if i and tokens[i - 1] == ","}

    def doubtful(i: int) -> bool:
        if i == 0:
            return bool(after_comma) and tokens[i] in ("when", "where")
        return i not in after_comma and tokens[i] in _RELATIVE

    place = min(places, key=lambda i: (doubtful(i), i))
    kind = _KINDS[tokens[place]]
    return "how many/much" if kind == "how" and tokens[place + 1 : place + 2] in (["many"], ["much"]) else kind


def slice_scores(slicing: Slicing, scored: Scored, resamples: int = RESAMPLES) -> list[dict[str, Any]]:
    """Of each slice: label, questions, exact and f1 in per cent, and the 95 % intervals of both."""
    result = []
    for i, label in enumerate(slicing.labels):
        inside = slicing.which == i
        row: dict[str, Any] = {"label": label, "questions": int(inside.sum()), "interval": {}}
        for name, scores in (("exact", scored.exact), ("f1", scored.f1)):
            found = bootstrap(scores[inside], resamples=resamples)
            row[name], row["interval"][name] = 100 * found.mean, found.percent()
        result.append(row)
    return result


def _quartiles(lengths: Sequence[int]) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """The labels of the bins, `low–high`, and the bin of each length."""
    values = np.array(lengths, np.int64)
    if not len(values):
        return (), np.zeros(0, np.intp)
    edges = np.unique(np.quantile(values, [0.25, 0.5, 0.75], method="inverted_cdf"))
    _, which = np.unique(np.searchsorted(edges, values), return_inverse=True)  # an edge belongs to the bin below it
    labels = []
    for i in range(int(which.max()) + 1):
        low, high = int(values[which == i].min()), int(values[which == i].max())
        labels.append(f"{low}" if low == high else f"{low}–{high}")
    return tuple(labels), which


def _groups(kinds: Sequence[str], order: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """The kinds that occur, in this order, and the index of each question's kind."""
    present = set(kinds)
    labels = tuple(kind for kind in order if kind in present)
    place = {kind: i for i, kind in enumerate(labels)}
    return labels, np.array([place[kind] for kind in kinds], np.intp)

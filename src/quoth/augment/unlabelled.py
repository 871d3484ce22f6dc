"""Pairs of question and passage without a label, for a student that learns from what its teacher says of them.

Unlike for negatives (`quoth.augment.passages`) it does not matter whether the passage answers: the teacher judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil

import numpy as np

from quoth.augment.base import Passage, is_article, passages_of
from quoth.augment.cloze import cloze
from quoth.augment.edited import edited
from quoth.augment.passages import Bm25, words
from quoth.data import Question
from quoth.data.normalise import normalise

SPARE = 4  # passages more than wanted that are ranked for a question, in case it is already asked of some

Others = Callable[[Sequence[int], int], dict[int, list[Passage]]]
"""From the numbers of questions, and how many passages each wants, to the passages of each, best first."""


def make_unlabelled(
    questions: Sequence[Question], parts: Mapping[str, float], passages: Sequence[str] = (), seed: int = 0
) -> dict[str, list[Question]]:
    """New pairs of each kind: "moved", "lookalike", "edited", and "new" and "cloze" of the texts `passages`.

    What the kinds are, `quoth.tasks.settings.Unlabelled` says.
    parts: pairs for each question, such as 0.5 or 3; there are fewer where no other passage is left. Every question, in
    an order drawn by the seed, is asked of its best passage before any is asked of its second: fewer pairs are the
    beginning of more. No pair is made twice, nor one that is asked already.
    """
    known = passages_of(questions)
    found: dict[str, list[Question]] = {}
    ways: dict[str, Callable[[], Others]] = {
        "moved": lambda: _moved(questions, known, seed),
        "lookalike": lambda: _alike(questions, list(known.values()), with_own=True),
        "new": lambda: _alike(questions, list(passages_of(_new(passages)).values()), with_own=False),
    }
    for kind, way in ways.items():
        count = round(parts.get(kind, 0) * len(questions))
        found[kind] = _gather(questions, count, kind, seed, way()) if count else []
    found["edited"] = edited(questions, round(parts.get("edited", 0) * len(questions)), seed)
    found["cloze"] = cloze(passages, round(parts.get("cloze", 0) * len(questions)), seed)
    return found


def bare(question: Question) -> Question:
    """A question without its answers."""
    return Question(question.id, question.question, question.context, (), False, question.title)


def _new(texts: Sequence[str]) -> list[Question]:
    return [Question("", "", text, ()) for text in texts]


def _gather(questions: Sequence[Question], count: int, kind: str, seed: int, others: Others) -> list[Question]:
    draws = np.random.PCG64(np.random.SeedSequence([seed, *f"unlabelled {kind}".encode()])).random_raw(len(questions))
    order = np.argsort(draws, kind="stable").tolist()
    rounds = ceil(count / len(questions))
    needed = order if rounds > 1 else order[: count + count // 10 + SPARE]  # some have no other passage
    lists = {i: iter(passages) for i, passages in others(needed, rounds + SPARE).items()}
    made: list[Question] = []
    for number in range(rounds):
        for i in needed:
            if len(made) >= count:
                return made
            passage = _next(lists[i], normalise(questions[i].question))
            if passage is not None:
                name = f"{questions[i].id}-{kind}-{number + 1}"
                made.append(Question(name, questions[i].question, passage.context, (), False, passage.title))
    return made


def _next(passages: Iterator[Passage], asked: str) -> Passage | None:
    """The next passage of which this is not asked yet; now it is."""
    for passage in passages:
        if asked not in passage.asked:
            passage.asked.add(asked)
            return passage
    return None


def _moved(questions: Sequence[Question], known: Mapping[str, Passage], seed: int) -> Others:
    articles: dict[str, dict[str, Passage]] = {}
    for question in questions:
        if is_article(question.title):
            articles.setdefault(question.title, {})[question.context] = known[question.context]
    draws = np.random.PCG64(np.random.SeedSequence([seed, *b"unlabelled passages"])).random_raw(len(questions))

    def others(needed: Sequence[int], most: int) -> dict[int, list[Passage]]:
        found = {}
        for i in needed:
            here = list(articles.get(questions[i].title, {}).values())
            first = int(draws[i]) % max(1, len(here))
            found[i] = [here[(first + k) % len(here)] for k in range(min(most, len(here)))]
        return found

    return others


def _alike(questions: Sequence[Question], passages: Sequence[Passage], *, with_own: bool) -> Others:
    """By BM25: the mean over the words of the question, with `with_own` plus that over those of its own passage."""
    index = Bm25([words(passage.context) for passage in passages])

    def others(needed: Sequence[int], most: int) -> dict[int, list[Passage]]:
        found, context, own = {}, "", np.zeros(len(passages))
        for i in sorted(needed, key=lambda i: questions[i].context):
            question = questions[i]
            if with_own and question.context != context:
                context, own = question.context, index.scores(words(question.context))
            scores = own + index.scores(words(question.question))
            found[i] = [passages[k] for k in _best(scores, most)]
        return found

    return others


def _best(scores: np.ndarray, count: int) -> list[int]:
    """The numbers of the highest scores, highest first; of equal ones the first."""
    count = min(count, len(scores))
    if not count:
        return []
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    among = np.flatnonzero(scores >= least)
    return list(map(int, among[np.argsort(-scores[among], kind="stable")[:count]]))

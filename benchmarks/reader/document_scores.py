"""What became of each question of the documents benchmark, and the tables of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.race import markdown
from benchmarks.reader.document_questions import HALVES, Asked, plain, words
from quoth.score.squad import score_squad2

F1 = 50.0  # an answer with at least that F1 is right …
LONGER = 3  # … or one that holds an acceptable answer and is at most so many times as long
EVIDENCE = 0.8  # of the words of the evidence: a passage that has these and an acceptable answer holds the answer
HEAD = ("", "with answer", "right", "wrong", "refused", "lost: format", "lost: search", "first is right", "right in 5")
HEAD_NONE = ("", "without answer", "refused")


@dataclass(frozen=True)
class Reply:
    """What a reader gave for a question.

    - answers: the best five spans, the best first, whether or not it abstains
    - refused: whether it abstains
    - read: the passages that it read
    - score: the probability of the best span
    """

    answers: tuple[str, ...]
    refused: bool
    read: tuple[str, ...]
    score: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """A question's result: right, wrong, refused, or unread (its document has a format that is not read).

    - found: whether a passage that was read holds the answer
    - among_five: whether one of the five best spans is right
    - score: the probability of the best span
    """

    id: str
    result: str
    given: str
    found: bool
    among_five: bool
    score: float = 0.0


def judge(asked: Asked, reply: Reply) -> Outcome:
    """The outcome of a question that was asked."""
    given = reply.answers[0] if reply.answers else ""
    refused = reply.refused or not given
    right = bool(asked.answers) and is_right(given, asked.answers)
    result = "refused" if refused else "right" if right else "wrong"
    found = bool(asked.answers) and any(holds(passage, asked) for passage in reply.read)
    among_five = any(is_right(answer, asked.answers) for answer in reply.answers)
    return Outcome(asked.id, result, given, found, among_five, reply.score)


def unread(asked: Asked) -> Outcome:
    """The outcome of a question about a document that was left out."""
    return Outcome(asked.id, "unread", "", False, False)


def is_right(given: str, answers: Sequence[str]) -> bool:
    """Whether an answer is one of the acceptable ones, nearly, or holds one and is not much longer."""
    return any(f1(given, answer) >= F1 or _within(given, answer) for answer in answers)


def f1(given: str, answer: str) -> float:
    """The official F1 of SQuAD, from 0 to 100."""
    return score_squad2([_Gold("one", (answer,))], {"one": given}).summary()["f1"]


@dataclass(frozen=True)
class _Gold:
    id: str
    gold_texts: tuple[str, ...]


def _within(given: str, answer: str) -> bool:
    return has(given, answer) and len(plain(given)) <= LONGER * len(plain(answer))


def has(text: str, answer: str) -> bool:
    """Whether a text has an answer, not as a part of a longer word; case and white space do not matter."""
    return bool(re.search(rf"(?<!\w){re.escape(plain(answer).lower())}(?!\w)", plain(text).lower()))


def holds(passage: str, asked: Asked) -> bool:
    """Whether a passage holds the answer: an acceptable one, and nearly all words of the evidence."""
    needed = words(asked.evidence)
    there = len(needed & words(passage)) >= EVIDENCE * len(needed)
    return there and any(has(passage, answer) for answer in asked.answers)


def summary(questions: Sequence[Asked], outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """The counts of a group of questions."""
    answerable = [one for one in questions if one.kind == "answer"]
    with_answer = [outcomes[one.id] for one in answerable]
    without = [outcomes[one.id] for one in questions if one.kind != "answer"]

    def count(result: str) -> int:
        return sum(one.result == result for one in with_answer)

    return {
        "with_answer": len(with_answer),
        "right": count("right"),
        "wrong": count("wrong"),
        "refused": count("refused"),
        "lost_format": count("unread"),
        "lost_search": sum(one.result != "unread" and not one.found for one in with_answer),
        "first_is_right": sum(is_right(outcomes[one.id].given, one.answers) for one in answerable),
        "right_in_five": sum(one.among_five for one in with_answer),
        "without_answer": len(without),
        "without_answer_refused": sum(one.result == "refused" for one in without),
    }


def groups(questions: Sequence[Asked]) -> dict[str, list[Asked]]:
    """The questions by half, and all of them by format, form, wording and kind."""
    answerable = [one for one in questions if one.kind == "answer"]
    found = {half: [one for one in questions if one.half == half] for half in HALVES}
    found["all"] = list(questions)
    found |= _by(answerable, lambda one: one.format)
    found |= _by(answerable, lambda one: one.form)
    found |= _by(answerable, lambda one: one.wording)
    found |= _by([one for one in questions if one.kind != "answer"], lambda one: one.kind)
    return {name: group for name, group in found.items() if group}


def _by(questions: Sequence[Asked], key: Callable[[Asked], str]) -> dict[str, list[Asked]]:
    return {name: [one for one in questions if key(one) == name] for name in sorted(set(map(key, questions)))}


def tables(questions: Sequence[Asked], outcomes: Mapping[str, Outcome]) -> str:
    """Two tables: the questions with an answer, and those without."""
    facts = {name: summary(group, outcomes) for name, group in groups(questions).items()}
    rows = [[name, *map(str, list(one.values())[:8])] for name, one in facts.items() if one["with_answer"]]
    none = [
        [name, str(one["without_answer"]), str(one["without_answer_refused"])]
        for name, one in facts.items()
        if one["without_answer"]
    ]
    return f"{markdown(list(HEAD), rows)}\n\n{markdown(list(HEAD_NONE), none)}"


def report(questions: Sequence[Asked], outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """All counts, and the outcome of every question."""
    return {
        "groups": {name: summary(group, outcomes) for name, group in groups(questions).items()},
        "questions": [{"question": one.question, **asdict(outcomes[one.id])} for one in questions],
    }

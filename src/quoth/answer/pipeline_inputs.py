"""All the ways in which transformers' question-answering pipeline (gone in 5.3) took its questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from quoth.config import shown
from quoth.data import Question
from quoth.errors import QuothError


def pipeline_questions(args: tuple[Any, ...], question: Any, context: Any, more: dict[str, Any]) -> list[Question]:
    """The questions of a call, each with its context, numbered from 0.

    Taken: question= and context=, or the two as arguments, each a text or a list; one or more dicts, or lists or other
    iterables of dicts, as arguments; `data=` and `X=`, which are removed from `more`.
    """
    given = [*args, *(more.pop(name) for name in ("X", "data") if name in more)]
    if len(given) == 2 and all(isinstance(item, str) for item in given):
        (question, context), given = given, []
    if given and (question is not None or context is not None):
        raise QuothError("give either question= and context=, or dicts with these keys, not both")
    if not given:
        given = [_combine(question, context)]
    pairs: list[tuple[str, str]] = []
    for item in given:
        several = isinstance(item, Iterable) and not isinstance(item, str | Mapping)
        pairs.extend(_pair(one, i) for i, one in enumerate(item if several else [item]))
    return [Question(str(number), asked, text, ()) for number, (asked, text) in enumerate(pairs)]


def whole_number(name: str, value: Any, default: int, least: int) -> int:
    """A setting of a call, as a whole number; None is the default, as it was there."""
    if value is None:
        return default
    if type(value) is not int or value < least:
        raise QuothError(f"{name} is {shown(value)}; it must be a whole number from {least}")
    return value


def _combine(question: Any, context: Any) -> list[Any]:
    if question is None or context is None:
        raise QuothError("a reader needs question= and context=, or dicts with these keys")
    for name, value in (("question", question), ("context", context)):
        if not isinstance(value, Iterable):
            raise QuothError(f"{name} is {type(value).__name__}, not a text or a list of texts")
    if isinstance(question, str):
        if not isinstance(context, str):
            raise QuothError("one question was given with several contexts: give a question for each")
        return [{"question": question, "context": context}]
    questions = list(question)
    contexts = [context] * len(questions) if isinstance(context, str) else list(context)
    if len(questions) != len(contexts):
        raise QuothError(f"{len(questions)} questions and {len(contexts)} contexts do not pair up")
    return [{"question": q, "context": c} for q, c in zip(questions, contexts)]


def _pair(item: Any, number: int) -> tuple[str, str]:
    if isinstance(item, Mapping):
        values = {name: item.get(name) for name in ("question", "context")}
    else:  # transformers' SquadExample, or anything alike
        values = {
            "question": getattr(item, "question_text", getattr(item, "question", None)),
            "context": getattr(item, "context_text", getattr(item, "context", None)),
        }
    for name, value in values.items():
        if not isinstance(value, str):
            raise QuothError(f"input {number}: {name} is {type(value).__name__}, not a text")
        if not value:
            raise QuothError(f"input {number}: {name} is empty")
    return str(values["question"]), str(values["context"])

"""From raw questions to a `Dataset`: every answer stands where it says, or the report says why not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from quoth.data.dataset import Dataset, Gold, Question, Raw, Report
from quoth.errors import QuothError

Troubles = defaultdict[str, list[str]]
"""The ids of a `Report`, by its fields, while it grows."""


def build(source: str, raws: Iterable[Raw], may_be_impossible: bool = False) -> Dataset:
    """Check raw questions and gather them.

    A question without answers is impossible, unless its file says outright that it is not. Equal contexts
    become one string, so that a table with a row per question costs what SQuAD's nested form costs. A
    repeated id is an error: predictions are kept by id, so neither of the two could be scored.
    """
    troubles: Troubles = defaultdict(list)
    contexts: dict[str, str] = {}
    questions: dict[str, Question] = {}
    for raw in raws:
        if raw.id in questions:
            raise QuothError(f"{source}: the id {raw.id!r} stands twice; give every question its own")
        context = contexts.setdefault(raw.context, raw.context)
        questions[raw.id] = _question(raw, context, troubles)
    unanswerable = sum(question.impossible for question in questions.values())
    found = {kind: tuple(ids) for kind, ids in troubles.items()}
    report = Report(source, len(questions), unanswerable, **found)
    return Dataset(list(questions.values()), report, "2.0" if unanswerable or may_be_impossible else "1.1")


def _question(raw: Raw, context: str, troubles: Troubles) -> Question:
    texts = tuple(text for text, _ in raw.golds)
    impossible = not raw.golds if raw.impossible is None else raw.impossible
    if impossible:
        if raw.golds:
            troubles["contradictory"].append(raw.id)
        return Question(raw.id, raw.question, context, (), True, raw.title, texts)
    answers = []
    moved = False
    for text, start in raw.golds:
        gold = place(context, text, start)
        if gold is not None:
            answers.append(gold)
            moved |= gold.start != start
    if moved:
        troubles["repaired"].append(raw.id)
    if not answers:
        troubles["skipped"].append(raw.id)
    elif len(answers) < len(texts):
        troubles["partial"].append(raw.id)
    return Question(raw.id, raw.question, context, tuple(answers), False, raw.title, texts)


def place(context: str, text: str, start: int | None) -> Gold | None:
    """The gold where it stands: at `start`, or at its only occurrence in the context; None if neither.

    A blank text stands everywhere and says nothing, so it is never placed.
    """
    if not text.strip():
        return None
    if start is not None and start >= 0 and context.startswith(text, start):
        return Gold(text, start)
    found = context.find(text)
    if found < 0 or context.find(text, found + 1) >= 0:
        return None
    return Gold(text, found)

"""More unanswerable questions, made from answerable ones by four rules. `Negative` states the rule and the source.

Each maker is a function of (questions, count, seed): `moved` and `lookalike` ask a question of another passage,
`entity` and `negation` change the question. Some of the results are answerable after all: docs/augment.md has counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quoth.augment.base import Negative
from quoth.augment.entity import entity
from quoth.augment.negation import negation
from quoth.augment.passages import lookalike, moved
from quoth.data import Question
from quoth.errors import QuothError

MAKERS = {"moved": moved, "lookalike": lookalike, "entity": entity, "negation": negation}


def make_negatives(questions: Sequence[Question], fractions: Mapping[str, float], seed: int = 0) -> list[Negative]:
    """New questions by each maker, as many as its fraction of all questions, or as can be made; in the order of MAKERS.

    fractions: by a maker's name, such as {"moved": 0.1}; a maker left out, or 0, makes none
    """
    for name, fraction in fractions.items():
        if name not in MAKERS:
            raise QuothError(f"negatives: {name!r} is unknown; choose from {', '.join(MAKERS)}")
        if not 0 <= fraction <= 1:
            raise QuothError(f"negatives: {name} is {fraction!r}; it must be a fraction of the questions, from 0 to 1")
    counts = {name: round(fractions.get(name, 0) * len(questions)) for name in MAKERS}
    return [made for name, maker in MAKERS.items() if counts[name] for made in maker(questions, counts[name], seed)]


def as_squad(negatives: Sequence[Negative]) -> dict[str, Any]:
    """The content of a SQuAD 2.0 file: each question beside its usual keys has "maker" and "source"."""
    articles: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for made in negatives:
        asked = made.question
        entry = {"id": asked.id, "question": asked.question, "answers": [], "is_impossible": True}
        place = articles.setdefault(asked.title, {}).setdefault(asked.context, [])
        place.append({**entry, "maker": made.maker, "source": made.source})
    data = [
        {"title": title, "paragraphs": [{"context": context, "qas": qas} for context, qas in passages.items()]}
        for title, passages in articles.items()
    ]
    return {"version": "v2.0", "data": data}

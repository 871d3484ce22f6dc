"""`quoth negatives`: make unanswerable questions from answerable ones, to be read before they are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from quoth.augment import Negative, as_squad, make_negatives
from quoth.cli.common import AsJson, Data, read_dataset
from quoth.cli.screen import console, print_json
from quoth.data import Question
from quoth.errors import QuothError
from quoth.files import write_json


def _fraction(what: str) -> Any:
    return typer.Option(metavar="FRACTION", help=f"{what}; as many as this fraction of all questions.")


def negatives(
    data: Data,
    moved: Annotated[float, _fraction("Ask questions of another passage of the same article")] = 0.0,
    lookalike: Annotated[float, _fraction("Ask questions of the most similar passage (BM25) of any article")] = 0.0,
    entity: Annotated[float, _fraction("Replace a name, year or number by another that is not in the passage")] = 0.0,
    negation: Annotated[float, _fraction("Replace a word by its opposite, or add or remove a negation")] = 0.0,
    seed: Annotated[int, typer.Option(help="Use this seed for all random choices.", min=0)] = 0,
    out: Annotated[Path | None, typer.Option(help="Write only the new questions to this SQuAD 2.0 file.")] = None,
    show: Annotated[int, typer.Option(help="Print this many examples of each kind.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Make unanswerable questions from answerable ones: ask them of another passage, or change a word."""
    fractions = {"moved": moved, "lookalike": lookalike, "entity": entity, "negation": negation}
    if not any(fractions.values()):
        raise QuothError("nothing to make: give --moved, --lookalike, --entity or --negation, such as --moved 0.1")
    questions = read_dataset(data).trainable
    made = make_negatives(questions, fractions, seed)
    if out is not None:
        write_json(out, as_squad(made))
    counts = {name: sum(one.maker == name for one in made) for name, fraction in fractions.items() if fraction}
    sources = {question.id: question for question in questions}
    some = {name: _some(made, name, show, sources) for name in counts}
    if as_json:
        facts: dict[str, Any] = {"questions": len(questions), "made": counts, "file": str(out) if out else None}
        print_json(facts | ({"examples": some} if show else {}))
        return
    screen = console(wrap=False)
    for name, count in counts.items():
        screen.print(f"{name}: {count:,} new questions from {len(questions):,}")
        for one in some[name]:
            screen.print(f"\n  {one['question']}")
            if one["was"] != one["question"]:
                screen.print(f"  (was: {one['was']})")
            screen.print(f"  {one['passage']}")
        if show:
            screen.print()
    if out is not None:
        screen.print(f"written to {out}")


def _some(made: Sequence[Negative], maker: str, count: int, sources: dict[str, Question]) -> list[dict[str, str]]:
    """The first of a maker, each with the question that it was made from."""
    return [
        {
            "id": one.question.id,
            "source": one.source,
            "was": sources[one.source].question,
            "question": one.question.question,
            "passage": one.question.context,
        }
        for one in made
        if one.maker == maker
    ][:count]

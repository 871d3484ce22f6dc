"""`quoth negatives`: unanswerable questions made from answerable ones, to be read before they are learnt from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from quoth.cli.common import AsJson, Data, read_dataset
from quoth.errors import QuothError
from quoth.files import write_json

if TYPE_CHECKING:
    from quoth.augment.base import Negative
    from quoth.data.dataset import Question

Part = Annotated[float, typer.Option(help="New questions by this maker, as a part of all questions.")]


def negatives(
    data: Data,
    moved: Part = 0.0,
    lookalike: Part = 0.0,
    entity: Part = 0.0,
    negation: Part = 0.0,
    seed: Annotated[int, typer.Option(help="Of what is drawn.", min=0)] = 0,
    out: Annotated[Path | None, typer.Option(help="The SQuAD 2.0 file to write, with the new questions alone.")] = None,
    show: Annotated[int, typer.Option(help="Print so many examples of each maker.", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Make unanswerable questions of answerable ones: asked of another passage, or with a word changed."""
    from quoth.augment.negatives import as_squad, make_negatives

    parts = {"moved": moved, "lookalike": lookalike, "entity": entity, "negation": negation}
    if not any(parts.values()):
        raise QuothError("nothing to make: give --moved, --lookalike, --entity or --negation, such as --moved 0.1")
    questions = read_dataset(data).trainable
    made = make_negatives(questions, parts, seed)
    if out is not None:
        write_json(out, as_squad(made))
    counts = {name: sum(one.maker == name for one in made) for name, part in parts.items() if part}
    sources = {question.id: question for question in questions}
    some = {name: _some(made, name, show, sources) for name in counts}
    if as_json:
        facts: dict[str, Any] = {"questions": len(questions), "made": counts, "file": str(out) if out else None}
        print(json.dumps(facts | ({"examples": some} if show else {}), indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for name, count in counts.items():
        console.print(f"{name}: {count:,} new questions from {len(questions):,}")
        for one in some[name]:
            console.print(f"\n  {one['question']}")
            if one["was"] != one["question"]:
                console.print(f"  (was: {one['was']})")
            console.print(f"  {one['passage']}")
        if show:
            console.print()
    if out is not None:
        console.print(f"written to {out}")


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

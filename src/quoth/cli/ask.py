"""`quoth ask`: one question, answered from a user's own texts."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from quoth.answer import Hit, Reader, SearchResult
from quoth.answer.find import READ, check_min_score
from quoth.cli.common import AsJson, Device, MinScore, Model, Precision, progress
from quoth.cli.screen import console, print_json, say, visible
from quoth.errors import QuothError
from quoth.search import Document, read_documents


def ask(
    question: Annotated[str, typer.Argument(help="The question to answer.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE | FOLDER | -]…", help="The texts to search; - is standard input."),
    ] = None,
    model: Model = None,
    top: Annotated[int, typer.Option(help="Show at most this many answers.", min=1, max=1000)] = 1,
    min_score: MinScore = None,
    read: Annotated[
        int,
        typer.Option(help="Read this many passages, those most similar to the question; 0 reads all.", min=0),
    ] = READ,
    device: Device = None,
    precision: Precision = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question from your documents: the answer, its sentence, its place and its probability."""
    if not question.strip():
        raise QuothError("the question is empty")
    check_min_score(min_score)
    if not texts and (sys.stdin is None or sys.stdin.isatty()):
        raise QuothError("name the texts to answer from: a file, a folder, or - for standard input")
    documents, notes = read_documents(texts or ["-"])
    for note in notes:
        say(f"quoth: {note}; left out")
    reader = Reader.load(model, device=device, precision=precision)
    with progress("reading") as tell:
        contents = [document.text for document in documents]
        found = reader.find(question, contents, top=top, min_score=min_score, read=read, progress=tell)
    if found.read < found.passages:
        say(
            f"quoth: read {found.read:,} of {found.passages:,} passages, those most similar to the question; "
            "--read 0 reads all"
        )
    summary = _summary(question, found, documents)
    if as_json:
        print_json(summary)
    else:
        _show(summary)


def _summary(question: str, found: SearchResult, documents: Sequence[Document]) -> dict[str, Any]:
    """The best answer and its score, or null and the score of "no answer"; then all of them, or the one rejected."""
    answers = [_facts(hit, documents[hit.document]) for hit in found.hits]
    return {
        "question": question,
        "answer": answers[0]["answer"] if answers else None,
        "score": answers[0]["score"] if answers else found.no_answer,
        "no_answer": not answers,
        "null_minus_best": found.null_minus_best if math.isfinite(found.null_minus_best) else None,
        "min_score": found.min_score,
        "read": found.read,
        "passages": found.passages,
        "answers": answers,
        "rejected": _facts(found.rejected, documents[found.rejected.document]) if found.rejected else None,
    }


def _facts(hit: Hit, document: Document) -> dict[str, Any]:
    """An answer, its sentence with the place of the answer in it, and where it stands in the file."""
    start, end = hit.answer.start, hit.answer.end
    first, past = document.sentence(start, end)
    place = document.place(start, end)
    return {
        "answer": hit.answer.text,
        "score": hit.probability,
        "file": document.name,
        "start": place.start,
        "end": place.end,
        "line": place.line,
        "part": place.part,
        "page": place.page,
        "label": place.label,
        "boxes": [[box.x0, box.y0, box.x1, box.y1] for box in place.boxes],
        "headings": list(place.headings),
        "sentence": document.text[first:past],
        "sentence_start": document.place(first, past).start,
        "in_sentence": [start - first, end - first],
    }


def _show(summary: dict[str, Any]) -> None:
    """The answers; or "no answer", the rejected one, and how to get it."""
    screen = console(wrap=False)
    for facts in summary["answers"]:
        screen.print(Text(visible(facts["answer"]), style="bold"))
        _show_place(screen, facts)
    if summary["no_answer"]:
        screen.print(f"No answer in these texts (score {summary['score']:.2f}).")
    rejected = summary["rejected"]
    if rejected:
        screen.print(Text(visible(f"Rejected: {rejected['answer']}"), style="dim"))
        _show_place(screen, rejected)
        enough = math.floor(100 * rejected["score"]) / 100
        more = f"--min-score {enough:.2f} gives this one, " if enough else ""
        screen.print(f"  {more}--min-score 0 always gives one")


def _show_place(screen: Console, facts: dict[str, Any]) -> None:
    """The sentence of an answer with the answer marked, where it stands, and its score."""
    start, end = facts["in_sentence"]
    sentence = Text(visible(f"  {facts['sentence']}"), style="dim")
    sentence.stylize("bold not dim underline", start + 2, end + 2)
    screen.print(sentence)
    screen.print(Text(visible(f"  {_where(facts)}, score {facts['score']:.2f}")))


def _where(facts: dict[str, Any]) -> str:
    """File, page or line, characters, and the headings above."""
    file = "standard input" if facts["file"] == "-" else facts["file"]
    if facts["page"] is not None:
        label = f" ({facts['label']})" if facts["label"] else ""
        where = f"{file}, page {facts['page']}{label}"
    elif facts["part"] is not None:
        where = f"{file}, {facts['part']}"
    else:
        where = f"{file}:{facts['line']}, characters {facts['start']}–{facts['end']}"
    return ", ".join([where, *([" > ".join(facts["headings"])] if facts["headings"] else [])])

"""`laconic ask`: one question, answered from a user's own texts."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from laconic.answer.reader import Hit
from laconic.cli.common import AsJson, Device, Model, Precision, load_reader, progress
from laconic.errors import LaconicError
from laconic.text.documents import Document, read_documents


def ask(
    question: Annotated[str, typer.Argument(help="What you want to know.")],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE | FOLDER | -]…", help="Where to look; - is standard input.")
    ] = None,
    model: Model = None,
    top: Annotated[int, typer.Option(help="How many answers to show.", min=1)] = 1,
    device: Device = None,
    precision: Precision = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question from text files: the answer, its sentence, where it stands, and how sure the reader is.

    Exits with 1 if the texts do not hold an answer.
    """
    if not question.strip():
        raise LaconicError("the question is empty")
    if not texts and sys.stdin.isatty():
        raise LaconicError("say where to look: a file, a folder, or - for standard input")
    documents, notes = read_documents(texts or ["-"])
    for note in notes:
        print(f"laconic: {note}; left out", file=sys.stderr)
    reader = load_reader(model, device, precision)
    with progress("reading") as tell:
        hits = reader.search(question, [document.text for document in documents], top=top, progress=tell)
    found = [_facts(hit, documents[hit.document]) for hit in hits]
    if as_json:
        print(
            json.dumps({"question": question, "no_answer": not found, "answers": found}, ensure_ascii=False, indent=2)
        )
    else:
        _show(found)
    raise typer.Exit(0 if found else 1)


def _facts(hit: Hit, document: Document) -> dict[str, Any]:
    first, past = document.sentence(hit.answer.start, hit.answer.end)
    return {
        "answer": hit.answer.text,
        "score": hit.probability,
        "file": document.name,
        "start": hit.answer.start,
        "end": hit.answer.end,
        "line": document.line(hit.answer.start),
        "sentence": document.text[first:past],
        "sentence_start": first,
    }


def _show(found: list[dict[str, Any]]) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)  # a file name may have brackets
    if not found:
        console.print("No answer in these texts.")
    for facts in found:
        console.print(Text(facts["answer"], style="bold"))
        start, end = facts["start"] - facts["sentence_start"], facts["end"] - facts["sentence_start"]
        sentence = Text(f"  {facts['sentence']}", style="dim")
        sentence.stylize("bold not dim underline", start + 2, end + 2)
        console.print(sentence)
        where = "standard input" if facts["file"] == "-" else facts["file"]
        console.print(
            f"  {where}:{facts['line']}, characters {facts['start']}–{facts['end']}, score {facts['score']:.2f}"
        )

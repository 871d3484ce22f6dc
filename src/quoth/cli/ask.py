"""`quoth ask`: questions, answered from a user's own texts."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from quoth.answer import Reader
from quoth.answer.find import READ, check_min_score
from quoth.answer.result import PLACES, Form, Kind, result
from quoth.cli.ask_output import show
from quoth.cli.ask_prompt import prompt
from quoth.cli.common import Device, MinScore, Model, Precision, progress
from quoth.cli.screen import print_json, say
from quoth.data.source import decoded, read_source
from quoth.errors import QuothError
from quoth.limits import read_bounded
from quoth.search import Collection, open_collection

NOTES = 10  # on files that could not be read, at most
LINE_END = re.compile(r"\r\n|\r|\n")


def ask(
    question: Annotated[str | None, typer.Argument(help="The question to answer; not with -q or -i.")] = None,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE | FOLDER | -]…", help="The texts to search; - is standard input."),
    ] = None,
    questions: Annotated[
        str | None,
        typer.Option(
            "-q", "--questions", metavar="FILE", help="Answer the questions of a file, one a line; - is stdin."
        ),
    ] = None,
    interactive: Annotated[
        bool, typer.Option("-i", "--interactive", help="Answer questions as they are typed, until Ctrl-D.")
    ] = False,
    model: Model = None,
    top: Annotated[
        int | None,
        typer.Option(help="Show at most this many; by default one, or all with --all or --sentences.", min=1, max=1000),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every distinct answer above the least score, with all its places.")
    ] = False,
    sentences: Annotated[
        bool, typer.Option("--sentences", help="Show every distinct sentence that has an answer above the least score.")
    ] = False,
    min_score: MinScore = None,
    read: Annotated[
        int,
        typer.Option(help="Read this many passages, those most similar to the question; 0 reads all.", min=0),
    ] = READ,
    index: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the index of the texts here, not in the cache folder.")
    ] = None,
    no_index: Annotated[bool, typer.Option("--no-index", help="Read the texts afresh, and keep no index.")] = False,
    device: Device = None,
    precision: Precision = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object; with -q and -i one a line for each question.")
    ] = False,
) -> None:
    """Answer questions from your documents: the answer, its sentence, its place and its probability."""
    form = Form(_kind(every, sentences), top, min_score, read)
    check_min_score(min_score)
    if index is not None and no_index:
        raise QuothError("--index and --no-index: choose one")
    paths = _paths(question, texts, questions, interactive)
    asked = _questions(question, questions) if not interactive else []
    collection = _open(paths, index, not no_index)
    reader = Reader.load(model, device=device, precision=precision)
    if interactive:
        prompt(form, collection, _answering(reader, collection, as_json, line=True))
        return
    answer = _answering(reader, collection, as_json, line=questions is not None)
    for number, one in enumerate(asked):
        if number and not as_json:
            print()
        answer(one, form, asked=questions is not None)


def _kind(every: bool, sentences: bool) -> Kind:
    if every and sentences:
        raise QuothError("--all and --sentences: choose one; --all has the sentence of each answer, too")
    return "all" if every else "sentences" if sentences else "top"


def _paths(question: str | None, texts: list[str] | None, questions: str | None, interactive: bool) -> list[str]:
    """The texts to search. With -q and -i every argument is one, for the questions come from elsewhere."""
    if interactive and questions is not None:
        raise QuothError("-i and -q: choose one; -i takes the questions of a file too: quoth ask -i FOLDER < FILE")
    option = "-i" if interactive else "-q" if questions is not None else ""
    paths = list(texts or ())
    if option and question is not None:
        paths.insert(0, question)
        if question != "-" and not Path(question).exists():
            raise QuothError(f"{question}: no such file or folder; with {option} every argument is a text to search")
    if not option and question is None:
        raise QuothError("give a question, -q FILE with questions, or -i to type them; see quoth ask --help")
    if interactive or questions == "-":
        if not paths or "-" in paths:
            raise QuothError("name the texts to answer from: the questions come from standard input")
    elif not paths and (sys.stdin is None or sys.stdin.isatty()):
        raise QuothError("name the texts to answer from: a file, a folder, or - for standard input")
    return paths or ["-"]


def _questions(question: str | None, file: str | None) -> list[str]:
    """The one of the command line, or those of a file: its lines, but for blank ones and those that begin with #."""
    if file is None:
        if not (question or "").strip():
            raise QuothError("the question is empty")
        return [question or ""]
    name = "standard input" if file == "-" else file
    if file != "-":
        text = read_source(file)
    elif sys.stdin is None:
        raise QuothError("standard input: is closed")
    else:
        text = decoded(read_bounded(sys.stdin.buffer, name), name)
    found = [line for line in map(str.strip, LINE_END.split(text)) if line and not line.startswith("#")]
    if not found:
        raise QuothError(f"{name}: has no questions; one a line is wanted")
    return found


def _open(paths: list[str], index: Path | None, use_index: bool) -> Collection:
    with progress("reading documents") as tell:
        collection = open_collection(paths, use_index=use_index, index=index, progress=tell)
    for note in collection.notes[:NOTES]:
        say(f"quoth: {note}")
    if len(collection.notes) > NOTES:
        say(f"quoth: and {len(collection.notes) - NOTES:,} more lines like these; quoth index FOLDER shows all")
    return collection


def _answering(reader: Reader, collection: Collection, as_json: bool, line: bool) -> Callable[..., None]:
    """A function that answers a question and shows the result. line: JSON objects take one line each."""
    told: set[str] = set()

    def answer(question: str, form: Form, **shown: Any) -> None:
        with progress("reading") as tell:
            found = result(reader, collection, question, form, tell)
        for note in _notes(found, form):
            if note not in told:
                told.add(note)
                say(f"quoth: {note}")
        if as_json:
            print_json(found, indent=None if line else 2)
        else:
            show(found, **shown)
        sys.stdout.flush()

    return answer


def _notes(found: dict[str, Any], form: Form) -> Iterator[str]:
    """What a user may want to know of a result, once."""
    if found["read"] < found["passages"] and (found["read"] == form.read or found["no_answer"]):
        yield (
            f"read {found['read']:,} of {found['passages']:,} passages, those most similar to the question; "
            "--read 0 reads all"
        )
    if sum(one.get("count", 0) for one in found.get("sentences", found["answers"])) == PLACES:
        yield f"only the {PLACES} most probable places were looked at"

"""What an agent can do with a folder of documents: the three tools, their arguments and their results.

Arguments are pydantic models (the package `mcp` brings pydantic): their JSON schemas are what an agent reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal
from urllib.parse import quote as percent

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quoth.answer.find import READ
from quoth.answer.result import Form, place_facts, result
from quoth.errors import QuothError
from quoth.search import Document
from quoth.serve.mcp_backend import Backend
from quoth.serve.quotes import LONGEST, verify

SCHEME = "quoth://documents/"
SHOWN = 20  # places of a quote


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)


class AskArguments(_Arguments):
    """Of the tool `ask`."""

    question: str = Field(min_length=1, max_length=2000, description="One question, in plain words.")
    form: Literal["top", "all", "sentences"] = Field(
        "top",
        description="top: the best answers. all: every distinct answer with all its places. sentences: every sentence "
        "that has an answer.",
    )
    top: int | None = Field(
        None, ge=1, le=100, description="At most so many; by default 1 for top, and no limit for all and sentences."
    )
    min_score: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Give no answer whose probability of being right is below this; 0 always gives one. By default "
        "none is given if it is more probable that the documents do not answer the question.",
    )


class FindPassagesArguments(_Arguments):
    """Of the tool `find_passages`."""

    query: str = Field(min_length=1, max_length=2000, description="Words to look for, or a question.")
    count: int = Field(5, ge=1, le=50, description="How many passages at most.")


class VerifyQuoteArguments(_Arguments):
    """Of the tool `verify_quote`."""

    quote: str = Field(
        min_length=1,
        max_length=LONGEST,
        description="The words as they are quoted: a sentence, several, or a part of one.",
    )


@dataclass(frozen=True)
class Tool:
    """A tool: what an agent is told of it, and the function that it calls."""

    name: str
    title: str
    description: str
    arguments: type[_Arguments]
    call: Callable[[Backend, Any], dict[str, Any]]


def call(tool: Tool, backend: Backend, given: dict[str, Any]) -> dict[str, Any]:
    """The result of a tool as an object for JSON. A mistake in the arguments is one line."""
    try:
        arguments = tool.arguments.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or tool.name
        raise QuothError(f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
    return plain(tool.call(backend, arguments))  # type: ignore[no-any-return]


def ask(backend: Backend, arguments: AskArguments) -> dict[str, Any]:
    """The object of `quoth ask --json`, with the `uri` of the document at every place."""
    collection = backend.collection()
    document = cache(collection.document)

    def more(number: int, start: int, end: int) -> dict[str, Any]:
        return {"uri": document_uri(document(number).name)}

    form = Form(arguments.form, arguments.top, arguments.min_score, READ)
    return result(backend.reader, collection, arguments.question, form, more=more)


def find_passages(backend: Backend, arguments: FindPassagesArguments) -> dict[str, Any]:
    """The passages that go best with a query; none where no passage shares a word with it."""
    collection = backend.collection()
    document = cache(collection.document)
    found = [one for one in collection.best(arguments.query, arguments.count) if one.score > 0]
    passages = [{"score": one.score, **_piece(document(one.document), one.begin, one.past)} for one in found]
    return {"query": arguments.query, "passages": passages, "of": collection.passages}


def verify_quote(backend: Backend, arguments: VerifyQuoteArguments) -> dict[str, Any]:
    """Whether a quote stands in the documents, where, and what stands there instead."""
    collection = backend.collection()
    document = cache(collection.document)
    found = verify(arguments.quote, collection, backend.texts())
    places = [
        {"exact": one.exact, **_piece(document(one.document), one.start, one.end)} for one in found.places[:SHOWN]
    ]
    nearest = None
    if near := found.nearest:
        nearest = {
            "similarity": round(near.similarity, 3),
            "differences": [{"quote": one.quote, "document": one.document} for one in near.differences],
            **_piece(document(near.document), near.start, near.end),
        }
    return {
        "quote": arguments.quote,
        "verdict": found.verdict,
        "stands": bool(found.places),
        "documents": len(collection),
        "count": len(found.places),
        "more": found.more,
        "places": places,
        "nearest": nearest,
    }


def document_uri(name: str) -> str:
    """The address of a document: its path in the folder, percent-encoded."""
    return SCHEME + percent(os.fsencode(name))


def _piece(document: Document, start: int, end: int) -> dict[str, Any]:
    """The characters [start, end) of a document, and where they stand."""
    facts = place_facts(document, start, end)
    return {"text": document.text[start:end], **facts, "uri": document_uri(document.name)}


def plain(value: Any) -> Any:
    """A value for JSON without what UTF-8 cannot hold: names of files may have it."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "ask",
            "Ask the documents",
            "Answer a question from the documents, in their own words. Gives the answer, its sentence, file and line "
            "or page, and the probability that it is right. If `no_answer` is true, the documents probably do not "
            "answer the question; `rejected` is then the best candidate, which should not be presented as an answer.",
            AskArguments,
            ask,
        ),
        Tool(
            "find_passages",
            "Find passages",
            "Find the passages of the documents that share most words with a query, best first (BM25). Use it to read "
            "more around a subject than one answer.",
            FindPassagesArguments,
            find_passages,
        ),
        Tool(
            "verify_quote",
            "Verify a quote",
            "Check whether a quote stands in the documents, and where. `verdict` is exact; normalised, if only white "
            "space, quotation marks, dashes, ligatures or hyphens differ (`text` is what stands there); altered, if it "
            "does not stand there but `nearest` is like it, with the words that differ; or absent. Every document is "
            "searched: altered and absent mean that it stands nowhere. Use it on every sentence that you quote.",
            VerifyQuoteArguments,
            verify_quote,
        ),
    )
}

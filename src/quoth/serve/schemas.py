"""What requests and responses look like, for checking and for `/openapi.json`."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

QUESTION = "What did the repair of the north pier cost?"
CONTEXT = "The repair of the north pier cost 310,000 euros. It took a year."

SEEN = r"[^\x00-\x20\x7f]"  # some character is no space: what \S means is not the same for all who read a schema
Text = Annotated[str, StringConstraints(min_length=1, max_length=10_000, pattern=SEEN)]
Id = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class Strict(BaseModel):
    """A part of a request: no other keys, no other types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, regex_engine="python-re")


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 3.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _not_both(first: str, second: str) -> dict[str, Any]:
    """The schema of an object that does not have two keys with values other than null and false."""
    given = {"not": {"enum": [None, False]}}
    return {"not": {"required": [first, second], "properties": {first: given, second: given}}}


class AskRequest(Strict):
    """One question or several, and what they are asked of: `context`, `document`, or the folder."""

    model_config = ConfigDict(
        json_schema_extra={"allOf": [_not_both("all", "sentences"), _not_both("context", "document")]}
    )

    question: Text | Annotated[list[Text], Field(min_length=1, max_length=100)] = Field(
        description="A question, or several: each gets a result of its own.", examples=[QUESTION]
    )
    context: str | Annotated[list[str], Field(min_length=1, max_length=1000)] | None = Field(
        None, description="A text, or several, that every question is asked of.", examples=[CONTEXT]
    )
    document: Id | None = Field(None, description="The id of a document that every question is asked of.")
    top: Annotated[int, Field(ge=1, le=1000), BeforeValidator(_whole)] | None = Field(
        None, description="How many answers at most; by default one, or all with `all` or `sentences`."
    )
    all: bool = Field(False, description="Every distinct answer, with all its places.")
    sentences: bool = Field(False, description="Every distinct sentence that has an answer.")
    min_score: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description='Abstain below this probability; by default if "no answer" is more probable.'
    )

    @model_validator(mode="after")
    def _one_of_each(self) -> AskRequest:
        if self.all and self.sentences:
            raise ValueError("choose one of `all` and `sentences`")
        if self.context is not None and self.document is not None:
            raise ValueError("choose one of `context` and `document`")
        return self


AskBody = AskRequest | Annotated[list[AskRequest], Field(min_length=1, max_length=100)]


class DocumentFacts(BaseModel):
    """What is told of a document."""

    id: str = Field(examples=["d3f1c0a9b2e4d5f60718293a4"])
    name: str = Field(description="The path in the folder, or the name of the file that was sent.")
    title: str
    kind: str = Field(description="The extension, without its dot.", examples=["pdf"])
    pages: int | None = Field(description="Of a PDF: up to the last page with text.")
    characters: int = Field(description="Of the extracted text.")


class DocumentList(BaseModel):
    """Some documents of the folder."""

    documents: list[DocumentFacts]
    next: str | None = Field(description="What `after` is for the documents after these; null at the end.")
    total: int = Field(description="How many documents there are whose names have `search`.")


class HeadingFacts(BaseModel):
    """A heading: where it begins in the text, its level from 1, its words."""

    at: int
    level: int
    title: str


class DocumentText(DocumentFacts):
    """A document with its extracted text."""

    text: str
    headings: list[HeadingFacts]
    page_starts: list[int] = Field(description="Of a PDF: where each page begins in the text.")
    notes: list[str] = Field(description="What of the file was not read.")


class SentFile(DocumentFacts):
    """A file that was sent."""

    document: str = Field(description="The same as `id`: what `document` of a question is.")


class PassageText(BaseModel):
    """A part of a document."""

    id: str
    document: str
    name: str
    text: str
    text_start: int
    text_end: int
    line: int | None
    page: int | None
    headings: list[str]


class ErrorFacts(BaseModel):
    """A code that does not change, and one sentence."""

    code: str = Field(examples=["busy"])
    message: str = Field(examples=["too many questions wait for an answer; ask again later"])


class Error(BaseModel):
    """What is wrong."""

    error: ErrorFacts


class Health(BaseModel):
    """That the server runs."""

    status: str = Field(examples=["ok"])
    version: str


@cache
def result_schemas() -> dict[str, Any]:
    """The schema of a result, `AskResult`, and of its parts, for the components of an OpenAPI document."""
    text = files("quoth.answer").joinpath("ask.schema.json").read_text(encoding="utf-8")
    schema = json.loads(text.replace("#/$defs/", "#/components/schemas/ask."))
    parts = {f"ask.{name}": part for name, part in schema.pop("$defs").items()}
    schema.pop("$schema")
    return {"AskResult": schema, **parts}

"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): articles → paragraphs → questions, one JSON file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from quoth.data.check import build
from quoth.data.dataset import Dataset, Raw
from quoth.data.source import parse_json, read_source
from quoth.errors import QuothError

Kind = TypeVar("Kind")
KINDS = {str: "a string", int: "an integer", bool: "true or false", list: "a list", dict: "an object"}


def read_squad(path: str | Path) -> Dataset:
    """Read a SQuAD file, `.json` or `.json.gz`. A file of version 2 may hold impossible questions."""
    content = parse_json(read_source(path), str(path))
    if not isinstance(content, dict) or "data" not in content:
        raise QuothError(f'{path}: not a SQuAD file, it has no "data" (a file of JSON lines is named .jsonl)')
    version = str(content.get("version", "")).lower().lstrip("v")
    return build(str(path), _questions(content, str(path)), may_be_impossible=version.startswith("2"))


def _questions(content: dict[str, Any], path: str) -> Iterator[Raw]:
    for a, article in enumerate(get(content, "data", list, path)):
        where = f"{path}, article {a + 1}"
        title = get(article, "title", str, where) if "title" in as_kind(article, dict, where) else ""
        for p, paragraph in enumerate(get(article, "paragraphs", list, where)):
            here = f"{where}, paragraph {p + 1}"
            context = get(paragraph, "context", str, here)
            for q, qa in enumerate(get(paragraph, "qas", list, here)):
                yield _question(qa, context, title, f"{here}, question {q + 1}")


def _question(qa: Any, context: str, title: str, where: str) -> Raw:
    name = get(qa, "id", str, where)
    where = f"{where} (id {name})"
    impossible = get(qa, "is_impossible", bool, where) if "is_impossible" in qa else None
    golds = squad_golds(get(qa, "answers", list, where), where)
    return Raw(name, get(qa, "question", str, where), context, golds, impossible, title)


def squad_golds(answers: list[Any], where: str) -> list[tuple[str, int | None]]:
    """Answers in SQuAD's form, [{text, answer_start}, …]."""
    return [(get(answer, "text", str, where), get(answer, "answer_start", int, where)) for answer in answers]


def get(value: Any, key: str, kind: type[Kind], where: str) -> Kind:
    """`value[key]`, or an error that names the place, the key and what it should have been."""
    if key not in as_kind(value, dict, where):
        raise QuothError(f'{where}: "{key}" is missing')
    return as_kind(value[key], kind, f'{where}: "{key}"')


def as_kind(value: Any, kind: type[Kind], where: str) -> Kind:
    """`value` if it is of `kind`, else an error. True and false are no integers here."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise QuothError(f"{where}: {KINDS[kind]} is wanted, not {type(value).__name__}")
    return value

"""A user's own questions, one a row: JSON lines or CSV with `question, context, answer, answer_start`."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quoth.data.check import build
from quoth.data.dataset import Dataset, Raw
from quoth.data.source import parse_json, read_source
from quoth.data.squad import as_kind, get, squad_golds
from quoth.errors import QuothError


def read_jsonl(path: str | Path) -> Dataset:
    """Read JSON lines: an object a line, blank lines ignored.

    `question` and `context` are needed; `answer` is a text or a list of texts, `answer_start` an offset or a
    list of them, in step. No answer (missing, null, empty) means unanswerable. No offset means: find it, if
    it occurs exactly once. `id` (else the line's number) and `title` are optional. `answers` in the form of
    the hub or of SQuAD is understood too.
    """
    rows = _json_rows(read_source(path), str(path))
    return build(str(path), (row_question(row, where, number) for row, where, number in rows))


def read_csv(path: str | Path) -> Dataset:
    """Read comma-separated values with a header; the columns of `read_jsonl`, one answer a row at most."""
    rows = _csv_rows(read_source(path), str(path))
    return build(str(path), (row_question(row, where, number) for row, where, number in rows))


def row_question(row: Any, where: str, number: int) -> Raw:
    """A row of columns as a raw question; `number` is its id if it has none."""
    name = as_kind(row, dict, where).get("id")
    name = str(number) if name is None or name == "" else str(name)
    where = f"{where} (id {name})"
    title = row.get("title")
    return Raw(
        name,
        get(row, "question", str, where),
        get(row, "context", str, where),
        hub_golds(row["answers"], where) if row.get("answers") is not None else _golds(row, where),
        title="" if title is None else as_kind(title, str, f'{where}: "title"'),
    )


def hub_golds(answers: Any, where: str) -> list[tuple[str, int | None]]:
    """Answers in the hub's form, {text: […], answer_start: […]}, or in SQuAD's, [{text, answer_start}, …]."""
    if isinstance(answers, list):
        return squad_golds(answers, where)
    texts = get(answers, "text", list, where)
    return _pair(texts, get(answers, "answer_start", list, where), where)


def _golds(row: dict[str, Any], where: str) -> list[tuple[str, int | None]]:
    answer, start = row.get("answer"), row.get("answer_start")
    if answer is None or answer == "" or answer == []:
        return []
    texts = answer if isinstance(answer, list) else [answer]
    if start is None or start == "":
        starts: list[Any] = [None] * len(texts)
    else:
        starts = start if isinstance(start, list) else [start]
    return _pair(texts, starts, where)


def _pair(texts: list[Any], starts: list[Any], where: str) -> list[tuple[str, int | None]]:
    if len(texts) != len(starts):
        raise QuothError(f"{where}: {len(texts)} answers but {len(starts)} offsets")
    return [
        (
            as_kind(text, str, f"{where}: an answer"),
            None if start is None else as_kind(start, int, f'{where}: "answer_start"'),
        )
        for text, start in zip(texts, starts, strict=True)
    ]


def _json_rows(text: str, path: str) -> Iterator[tuple[Any, str, int]]:
    # Not str.splitlines: a JSON string may hold U+2028 and its kin as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            yield parse_json(line, where), where, number


def _csv_rows(text: str, path: str) -> Iterator[tuple[dict[str, Any], str, int]]:
    old = csv.field_size_limit(sys.maxsize)  # a passage may be longer than the 128 KiB that the module allows
    try:
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        header = [name.strip() for name in next(reader, [])]
        _check_header(header, path)
        for number, cells in enumerate((cells for cells in reader if cells), start=1):
            where = f"{path}, line {reader.line_num}"
            if len(cells) != len(header):
                raise QuothError(f"{where}: {len(cells)} cells under {len(header)} columns; quote cells with commas")
            row: dict[str, Any] = dict(zip(header, cells, strict=True))
            row["answer_start"] = _offset(row.get("answer_start", ""), where)
            yield row, where, number
    except csv.Error as error:
        raise QuothError(f"{path}, line {reader.line_num}: not valid CSV ({error})") from None
    finally:
        csv.field_size_limit(old)


def _check_header(header: list[str], path: str) -> None:
    for column in ("question", "context"):
        if column not in header:
            raise QuothError(f"{path}: no column {column!r} in its first line, which has {header}")
    for column in header:
        if header.count(column) > 1:
            raise QuothError(f"{path}: the column {column!r} stands twice in its first line")
    if "answers" in header:
        raise QuothError(f"{path}: a CSV has one answer a row, in the column 'answer'; for lists use JSON lines")


def _offset(cell: str, where: str) -> int | None:
    if not cell.strip():
        return None
    try:
        return int(cell)
    except ValueError:
        raise QuothError(f"{where}: answer_start is {cell!r}, an integer is wanted") from None

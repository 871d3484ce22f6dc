"""One `read` for every source of questions; the name says which kind it is. What is no file is a dataset of the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quoth.data.check import build
from quoth.data.dataset import Dataset
from quoth.data.rows import read_csv, read_jsonl, row_question
from quoth.data.squad import read_squad
from quoth.errors import QuothError

READERS = {".json": read_squad, ".jsonl": read_jsonl, ".ndjson": read_jsonl, ".csv": read_csv}


def read(path_or_id: str | Path) -> Dataset:
    """Read questions from a file or the hub, checked; `dataset.report.lines()` is the summary to print.

    - `.json`: SQuAD 1.1 or 2.0; `.jsonl`, `.ndjson`, `.csv`: a row a question; each also with `.gz` after it
    - anything else that is not a file: a dataset of the hub, `name` or `name:split` (else the validation split)
    """
    path = Path(path_or_id)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] == ".gz" else "".join(suffixes[-1:])
    if kind in READERS:
        return READERS[kind](path)
    if path.is_dir():
        raise QuothError(f"{path}: is a folder; name a file of questions in it")
    if kind == ".tsv":
        raise QuothError(f"{path}: a GLUE table has sentences, not questions; read it with quoth.data.read_glue")
    if path.exists():
        raise QuothError(f"{path}: name it by what it holds: .json (SQuAD), .jsonl or .csv, with .gz or without")
    name, _, split = str(path_or_id).partition(":")
    if not name or name.count("/") > 1 or name[0] in "./~":
        raise QuothError(f"{path}: no such file")
    return read_hub(name, split or "validation")


def read_hub(name: str, split: str = "validation") -> Dataset:
    """Read a split of a hub dataset: id, title, context, question, answers{text: […], answer_start: […]}.

    An empty list of answers means unanswerable, as in `squad_v2`.
    """
    source = f"{name}:{split}"
    rows = enumerate(load_hub(name, split), start=1)
    return build(source, (row_question(row, f"{source}, row {number}", number) for number, row in rows))


def load_hub(name: str, split: str, part: str = "") -> Any:
    """The rows of a split, as dicts. part: the configuration, where a dataset has several (mrpc of nyu-mll/glue)."""
    whole = f"{name}/{part}" if part else name
    try:
        from datasets import load_dataset  # optional
    except ImportError:
        raise QuothError(f"{whole}: no such file; to read it from the hub, first: pip install 'quoth[hub]'") from None
    try:
        return load_dataset(name, *((part,) if part else ()), split=split)
    except Exception as error:  # whatever the hub, the network or a loader says, the user has one line to read
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise QuothError(f"{whole}: the hub dataset (split {split!r}) cannot be read: {reason}") from None

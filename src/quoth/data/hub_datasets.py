"""Datasets of the hub, where the optional package `datasets` is installed: questions here, GLUE in `glue`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quoth.data.check import build
from quoth.data.dataset import Dataset, Raw
from quoth.data.rows import row_question
from quoth.errors import QuothError


def read_hub(name: str, split: str = "validation") -> Dataset:
    """Read a split of a hub dataset: id, title, context, question, answers{text: […], answer_start: […]}.

    An empty list of answers means unanswerable, as in `squad_v2`.
    """
    rows = load_hub(name, split)
    source = f"{name}:{split}"
    return build(source, _questions(rows, source))


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


def _questions(rows: Any, source: str) -> Iterator[Raw]:
    for number, row in enumerate(rows, start=1):
        yield row_question(row, f"{source}, row {number}", number)

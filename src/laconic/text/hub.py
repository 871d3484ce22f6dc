"""Question-answering datasets of the hub, where the optional package `datasets` is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from laconic.errors import LaconicError
from laconic.text.check import build
from laconic.text.dataset import Dataset, Raw
from laconic.text.tables import row_question


def read_hub(name: str, split: str = "validation") -> Dataset:
    """Read a split of a hub dataset: id, title, context, question, answers{text: […], answer_start: […]}.

    An empty list of answers means unanswerable, as in `squad_v2`.
    """
    try:
        from datasets import load_dataset
    except ImportError:
        raise LaconicError(
            f"{name}: no such file; to read it from the hub, first: pip install 'laconic[hub]'"
        ) from None
    try:
        rows = load_dataset(name, split=split)
    except Exception as error:  # whatever the hub, the network or a loader says, the user has one line to read
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise LaconicError(f"{name}: the hub dataset (split {split!r}) cannot be read: {reason}") from None
    source = f"{name}:{split}"
    return build(source, _questions(rows, source))


def _questions(rows: Any, source: str) -> Iterator[Raw]:
    for number, row in enumerate(rows, start=1):
        yield row_question(row, f"{source}, row {number}", number)

"""reStructuredText."""

from __future__ import annotations

from quoth.search.document import Document
from quoth.search.text import read_text


def read_rst(data: bytes, name: str) -> Document:
    """For now as plain text."""
    return read_text(data, name)

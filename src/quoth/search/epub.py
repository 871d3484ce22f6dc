from __future__ import annotations
from quoth.search.document import Document
from quoth.search.failure import NoTextError
def read_epub(data: bytes, name: str) -> Document:
    raise NoTextError(f"{name}: not yet")

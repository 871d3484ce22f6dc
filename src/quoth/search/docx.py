from __future__ import annotations
from quoth.search.document import Document
from quoth.search.failure import NoTextError
def read_docx(data: bytes, name: str) -> Document:
    raise NoTextError(f"{name}: not yet")

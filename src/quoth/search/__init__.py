"""Documents of a user, and the choice of the passages that a question is asked of."""

from quoth.search.document import Box, Document, Heading, Place
from quoth.search.documents import read_documents
from quoth.search.failure import NoTextError
from quoth.search.formats import read_document, register_format
from quoth.search.packing import from_bytes, to_bytes

__all__ = [
    "Box",
    "Document",
    "Heading",
    "NoTextError",
    "Place",
    "from_bytes",
    "read_document",
    "read_documents",
    "register_format",
    "to_bytes",
]

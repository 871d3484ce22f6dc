"""Documents of a user, and the choice of the passages that a question is asked of."""

from quoth.search.collection import Collection, IndexCollection, open_collection
from quoth.search.document import Box, Document, Heading, Place
from quoth.search.documents import read_documents
from quoth.search.failure import NoTextError
from quoth.search.formats import read_document, register_format
from quoth.search.index_refresh import open_index
from quoth.search.packing import from_bytes, to_bytes
from quoth.search.retrieve import FoundPassage

__all__ = [
    "Box",
    "Collection",
    "Document",
    "FoundPassage",
    "Heading",
    "IndexCollection",
    "NoTextError",
    "Place",
    "from_bytes",
    "open_collection",
    "open_index",
    "read_document",
    "read_documents",
    "register_format",
    "to_bytes",
]

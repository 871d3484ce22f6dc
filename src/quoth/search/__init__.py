"""A user's documents, and the passages of them that a question is asked of."""

from quoth.search.documents import Document, read_documents

__all__ = ["Document", "read_documents"]

"""Documents of a user, and the choice of the passages that a question is asked of."""

from quoth.search.documents import Document, read_documents

__all__ = ["Document", "read_documents"]

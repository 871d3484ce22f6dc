"""`SharedCollection`: a collection that many threads ask at once; and one of a single document."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from quoth.search import Collection, Document, FoundPassage, IndexCollection
from quoth.search.index import FileEntry, Index
from quoth.search.index_passages import cut_passages

HELD = 20_000_000  # characters of documents that are kept in memory


class DocumentCache:
    """The documents last used, by any key, up to `HELD` characters of them. Not for several threads at once."""

    def __init__(self, held: int = HELD) -> None:
        self._kept: OrderedDict[int, Document] = OrderedDict()
        self._held = held
        self._size = 0

    def get(self, key: int) -> Document | None:
        """A document, if it is kept."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def put(self, key: int, document: Document) -> None:
        """Keep a document, and let go of those not used for longest."""
        self._kept[key] = document
        self._size += len(document.text)
        while self._size > self._held and len(self._kept) > 1:
            self._size -= len(self._kept.popitem(last=False)[1].text)


class SharedCollection:
    """The same collection; `lock` lets one thread at a time in, since SQLite's connection has one transaction.

    keys: of the documents in the cache, by their numbers
    """

    def __init__(self, inner: Collection, lock: threading.Lock, cache: DocumentCache, keys: Sequence[int]) -> None:
        self._inner, self._lock, self._cache, self._keys = inner, lock, cache, keys
        self.notes = inner.notes
        self.passages = inner.passages

    def __len__(self) -> int:
        return len(self._keys)

    def document(self, number: int) -> Document:
        """One of them."""
        with self._lock:
            found = self._cache.get(self._keys[number])
            if found is None:
                found = self._inner.document(number)
                self._cache.put(self._keys[number], found)
            return found

    def best(self, question: str, count: int) -> list[FoundPassage]:
        """As the collection itself."""
        with self._lock:
            return self._inner.best(question, count)


def one_document(document: Document) -> SharedCollection:
    """A document as a collection of its own, with an index in memory: what `quoth ask` makes of one file."""
    index = Index(None, "")
    with index.change():
        index.add(FileEntry(document.name, 0, 0, b"", ""), document, cut_passages(document))
    return SharedCollection(IndexCollection(index), threading.Lock(), DocumentCache(), [0])

"""`Folder`: the documents of a folder as they are now, while another process keeps their index up to date.

A state is what one request sees from its beginning to its end. Each commit of the other process makes a new one, at the
next request. Then a request that is in the middle may ask for a document that is gone: it is asked again
(`quoth.serve.service`). SQLite lets readers in but for the moment of a commit.

The id of a document is made of its path, so that it stays when the document changes, and leads nowhere but to a file of
the index. A link that leads out of the folder is no document.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quoth.errors import QuothError
from quoth.search import Document, IndexCollection
from quoth.search.collection import TextCollection
from quoth.search.index import FileEntry, Index, UnusableError
from quoth.serve.child import Caller
from quoth.serve.shared import DocumentCache, SharedCollection


@dataclass(frozen=True, eq=False)
class State:
    """The documents at one moment. entries: by number; numbers: by the ids of documents."""

    collection: SharedCollection
    entries: Sequence[FileEntry]
    numbers: dict[str, int]


@dataclass(frozen=True)
class Facts:
    """What a list of documents tells of one. pages: up to the last one with text; None if it has none."""

    title: str
    pages: int | None
    characters: int


class Folder:
    """The documents of a folder. refresher: the process that keeps its index."""

    def __init__(self, root: Path, index: Path | None, refresher: Caller) -> None:
        self.root = root.resolve()
        self._given = index
        self._refresher = refresher
        self._lock = threading.Lock()  # of the connection
        self._cache = DocumentCache()
        self._facts: dict[int, Facts] = {}
        self._index: InsideIndex | None = None
        self._empty = False
        self._seen = (0, 0)
        self._state: State | None = None

    def refresh(self) -> dict[str, Any]:
        """Bring the index up to date, and tell what was done. The first time may take long."""
        call = {"folder": str(self.root), "index": str(self._given) if self._given else None}
        done, _ = self._refresher.call(call)
        with self._lock:
            self._empty = done.get("empty", False)
            if self._empty:
                return done
            if self._index is None or self._inode() != self._seen[0]:
                old, self._index = self._index, InsideIndex(Path(done["path"]), self.root, done["writable"])
                self._seen = (self._inode(), -1)
                if old is not None:
                    old.close()
        return done

    def state(self) -> State:
        """The documents as they are now."""
        with self._lock:
            if self._empty:
                return State(SharedCollection(TextCollection([]), self._lock, self._cache, []), [], {})
            if self._index is None:
                raise QuothError("the index is not ready")
            version = self._index.version()
            if self._state is None or self._seen[1] != version:
                self._state = self._read(self._index)
                self._seen = (self._seen[0], version)
                kept = {entry.id for entry in self._state.entries}
                self._facts = {number: facts for number, facts in self._facts.items() if number in kept}
            return self._state

    def facts(self, state: State, number: int) -> Facts:
        """What is told of a document in a list; looked at once."""
        key = state.entries[number].id
        found = self._facts.get(key)
        if found is None:
            found = self._facts[key] = facts_of(state.collection.document(number))
        return found

    def file(self, path: str) -> Path:
        """The file of a document, which lies in the folder."""
        place = Path(os.path.realpath(self.root / path))
        if not place.is_relative_to(self.root):
            raise QuothError(f"{path}: is not in the folder")
        return place

    def close(self) -> None:
        """Close the index."""
        with self._lock:
            if self._index is not None:
                self._index.close()
                self._index = None

    def _read(self, index: InsideIndex) -> State:
        inner = IndexCollection(index)
        entries = [entry for entry in index.entries() if entry.passages]
        keys = [entry.id for entry in entries]
        numbers = {document_id(entry.path): number for number, entry in enumerate(entries)}
        return State(SharedCollection(inner, self._lock, self._cache, keys), entries, numbers)

    def _inode(self) -> int:
        with suppress(OSError):
            if self._index is not None and self._index.path is not None:
                return self._index.path.stat().st_ino
        return -1


class InsideIndex(Index):
    """An index without the files that are links out of its folder."""

    def __init__(self, path: Path, root: Path, writable: bool) -> None:
        self._root = root
        self._outside: dict[int, bool] = {}
        super().__init__(path, str(root), writable)

    def version(self) -> int:
        """Another number after each change by another process."""
        try:
            return int(self._base.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error as error:
            raise UnusableError(f"the index cannot be read ({error})") from None

    def entries(self) -> list[FileEntry]:
        """All files that lie in the folder."""
        found = super().entries()
        self._outside = {entry.id: self._outside.get(entry.id) or self._leads_out(entry) for entry in found}
        return [entry for entry in found if not self._outside[entry.id]]

    def _leads_out(self, entry: FileEntry) -> bool:
        place = self._root / entry.path
        return place.is_symlink() and not Path(os.path.realpath(place)).is_relative_to(self._root)


def document_id(path: str) -> str:
    """The id of the document at a path of the folder."""
    return "d" + hashlib.sha256(os.fsencode(path)).hexdigest()[:24]


def facts_of(document: Document) -> Facts:
    """What is told of a document in a list."""
    pages = int(document.boxes.page.max(initial=0)) if document.boxes is not None else None
    return Facts(document.title, pages or None, len(document.text))


def page_starts(document: Document) -> list[int]:
    """Where each page of a PDF begins in the text; a page without text where the next one does."""
    if document.boxes is None:
        return []
    found: dict[int, int] = {}
    for at, page in zip(document.boxes.at.tolist(), document.boxes.page.tolist()):
        if page:
            found.setdefault(page, at)
    starts, after = [], len(document.text)
    for page in range(max(found, default=0), 0, -1):
        after = found.get(page, after)
        starts.append(after)
    return starts[::-1]

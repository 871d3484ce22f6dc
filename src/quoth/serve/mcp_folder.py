"""The documents of a folder as they are now, for calls that come one at a time.

Before a call, the folder is looked at again if the last look is more than `EVERY` seconds ago; the index is brought up
to date if a file is new, changed or gone. Names of documents are their paths in the folder: what is outside of it,
through a link too, or hidden, cannot be named, and where the folder lies is not told.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from quoth.errors import QuothError
from quoth.search import Collection, Document, FoundPassage, IndexCollection, open_collection, open_index
from quoth.search.index import UnwritableError
from quoth.search.index_refresh import FRESH, FoundFile, walk_files
from quoth.serve.folder import InsideIndex

EVERY = 2.0  # seconds between two looks at the folder


class Folder:
    """A folder and its index. index: the file of the index; left out, one in the user's cache directory."""

    def __init__(self, folder: str | Path, index: str | Path | None = None) -> None:
        self.path = Path(folder)
        if not self.path.is_dir():
            why = "is a file; name the folder that it is in" if self.path.exists() else "no such folder"
            raise QuothError(f"{folder}: {why}")
        self._place = index
        self._index: InsideIndex | None = None
        self._notes: Sequence[str] = ()
        self._held: Collection | None = None
        self._files: list[FoundFile] = []
        self._looked = 0.0
        self._young = False  # a file changed so shortly ago that it may change again and keep its time
        self.names: dict[str, int] = {}

    def collection(self) -> Collection:
        """The documents as they are now. `names` has the number of each."""
        if self._held is not None and time.monotonic() - self._looked < EVERY:
            return self._held
        now = time.time_ns()
        files = walk_files(self.path.resolve())[0]
        if self._held is None or self._young or files != self._files:
            self._close()
            self._held = self._open()
        self._files, self._young = files, any(now - file.mtime < FRESH for file in files)
        self._looked = time.monotonic()
        return self._held

    def document(self, name: str) -> Document:
        """The document of this name; a `KeyError` if there is none."""
        collection = self.collection()
        document = collection.document(self.names[name])
        if document.name != name:  # the index was damaged, and has been built again
            raise KeyError(name)
        return document

    def _open(self) -> Collection:
        try:
            index = self._opened()
        except UnwritableError as error:
            return self._in_memory(error)
        found = IndexCollection(index, "", self._notes, lambda: self._opened(rebuild=True))
        entries = [entry for entry in index.entries() if entry.passages]
        self.names = {entry.path: number for number, entry in enumerate(entries)}
        if not entries:
            told = found.notes[0] if found.notes else str(self.path)
            raise QuothError(f"{told}: there is no text to answer from")
        return found

    def _opened(self, rebuild: bool = False) -> InsideIndex:
        """The index, up to date."""
        index, done = open_index(self.path, self._place, rebuild=rebuild)
        index.close()
        assert index.path is not None
        self._notes = done.notes
        self._index = InsideIndex(index.path, self.path.resolve(), index.writable)
        return self._index

    def _in_memory(self, error: UnwritableError) -> Collection:
        root = self.path.resolve()
        files = [root / file.path for file in walk_files(root)[0]]
        inside = [str(file) for file in files if file.resolve().is_relative_to(root)]
        if not inside:
            raise QuothError(f"{self.path}: there is no text to answer from")
        found = _Named(open_collection(inside, use_index=False), root, f"{error}; the folder was read without an index")
        self.names = {name: number for number, name in enumerate(found.names)}
        return found

    def _close(self) -> None:
        self._held = None
        if self._index is not None:
            self._index.close()
            self._index = None


class _Named:
    """A collection in memory whose documents are named by their paths in the folder."""

    def __init__(self, inside: Collection, root: Path, note: str) -> None:
        self._inside = inside
        self.notes = [note, *inside.notes]
        self.passages = inside.passages
        names = (inside.document(number).name for number in range(len(inside)))
        self.names = [Path(name).relative_to(root).as_posix() for name in names]

    def __len__(self) -> int:
        return len(self._inside)

    def document(self, number: int) -> Document:
        """One of them."""
        return replace(self._inside.document(number), name=self.names[number])

    def best(self, question: str, count: int) -> list[FoundPassage]:
        """As the collection finds them."""
        return self._inside.best(question, count)

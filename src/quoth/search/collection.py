"""`open_collection`: the documents of a user, and the passages of them that go best with a question.

A folder has an index (`quoth.search.index`), which is brought up to date when the folder is opened. Files, standard
input, and folders whose index cannot be written are read into an index in memory: what is found is the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from quoth.errors import QuothError
from quoth.search.document import Document
from quoth.search.documents import find_files, read_file
from quoth.search.failure import NoTextError
from quoth.search.index import SHIFT, FileEntry, Index, UnusableError, UnwritableError
from quoth.search.index_passages import cut_passages
from quoth.search.index_refresh import open_index
from quoth.search.retrieve import FoundPassage, rank_passages, split_passages, widened

Progress = Callable[[int, int], None]
Given = TypeVar("Given")


@runtime_checkable
class Collection(Protocol):
    """Documents, numbered from 0, and their passages."""

    @property
    def notes(self) -> Sequence[str]:
        """What was left out, and what is to be told of the index: a line each."""

    @property
    def passages(self) -> int:
        """How many there are."""

    def __len__(self) -> int:
        """How many documents there are."""

    def document(self, number: int) -> Document:
        """One of them."""

    def best(self, question: str, count: int) -> list[FoundPassage]:
        """At most `count` passages, those that go best with the question first.

        Passages that share no word with it are given only if all passages are asked for, or if none shares one.
        """


class OpenCollection(Collection, Protocol):
    """A collection of files and folders, which may change."""

    def refreshed(self) -> OpenCollection:
        """The documents as they are now: this collection if none changed, else a new one.

        Questions of this one can be asked meanwhile from other threads, and after it too: a document that is gone or
        changed is then a `QuothError` that says so.
        """


def open_collection(
    paths: Sequence[str], *, use_index: bool = True, index: str | Path | None = None, progress: Progress | None = None
) -> OpenCollection:
    """Open files, folders and standard input (`-`) for questions.

    - use_index: for each folder, use its index and bring it up to date; else read everything into memory
    - index: the file of the index; left out, a file in the user's cache directory. For one folder alone
    - progress: is told how many files of a folder are read, and of how many

    It is an error if nothing gives a text, or if a path does not exist.
    """
    if not paths:
        raise QuothError("name the texts to answer from: a file, a folder, or - for standard input")
    for path in paths:
        if path != "-" and not Path(path).exists():
            raise QuothError(f"{path}: no such file or folder")
    folders = _outermost([path for path in paths if path != "-" and Path(path).is_dir()]) if use_index else []
    if index is not None and len(folders) != 1:
        raise QuothError(f"{index}: an index is of one folder; name one, or leave out --index")
    parts: list[IndexCollection] = []
    left = [path for path in paths if path == "-" or not Path(path).is_dir() or not use_index]
    notes: list[str] = []
    for folder in folders:
        try:
            parts.append(_of_folder(folder, index, progress))
        except UnwritableError as error:
            notes.append(f"{error}; {folder} was read without an index")
            left.append(folder)
    if left:
        known = {os.path.realpath(name) for part in parts for name in part.names()}
        if _files(left, known):
            parts.append(_in_memory(left, known))
    parts[0].notes = [*notes, *parts[0].notes]
    found: OpenCollection = parts[0] if len(parts) == 1 else Joined(parts)
    if not len(found):
        told = found.notes
        more = f" (and {len(told) - 1:,} more like it)" if len(told) > 1 else ""
        raise QuothError(f"{told[0]}{more}: there is no text to answer from")
    return found


class IndexCollection:
    """The documents of an index as it is now; files that are added later are seen by what `refreshed` gives.

    - folder: "" or what comes before their names
    - reopen: builds the index again
    - again: opens the same paths again; None if that is not possible
    """

    def __init__(
        self,
        index: Index,
        folder: str = "",
        notes: Sequence[str] = (),
        reopen: Callable[[], Index] | None = None,
        again: Callable[[], IndexCollection] | None = None,
    ) -> None:
        self._folder = folder
        self._reopen = reopen
        self._again = again
        self._open(index, notes)

    def _open(self, index: Index, notes: Sequence[str]) -> None:
        entries = index.entries()
        self._index = index
        self._state = {(entry.path, entry.id, entry.hash) for entry in entries}
        self._entries = [entry for entry in entries if entry.passages]
        self._number = {entry.id: number for number, entry in enumerate(self._entries)}
        self._paths = [entry.path for entry in entries]
        self.notes: Sequence[str] = [*notes, *(self._note(entry, note) for entry in entries for note in entry.notes)]
        self.passages = sum(entry.passages for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> list[str]:
        """Of all files, of those that gave no text too."""
        return [self._name(path) for path in self._paths]

    def document(self, number: int) -> Document:
        """One of them."""
        document = self._safely(lambda: self._index.document(self._entries[number].id))
        return replace(document, name=self._name(self._entries[number].path))

    def best(self, question: str, count: int) -> list[FoundPassage]:
        """By FTS5's BM25; equal ones in the order of the documents."""
        return self._safely(lambda: self._best(question, count))

    def refreshed(self) -> IndexCollection:
        """By a connection of its own to the index. Content that is the same keeps its number there."""
        if self._again is None:
            return self
        new = self._again()
        if new is not self and new._state == self._state:
            new._index.close()
            return self
        return new

    def _best(self, question: str, count: int) -> list[FoundPassage]:
        with self._index.reading():
            found = [row for row in self._index.best(question, count) if row[0] >> SHIFT in self._number]
            ranked = sorted(found, key=lambda row: (-row[1], self._number[row[0] >> SHIFT], row[0]))[:count]
            if not ranked or (len(ranked) < count and self.passages <= count):
                have = {number for number, _ in ranked}
                first = self._index.first((entry.id for entry in self._entries), count)
                ranked += [(number, 0.0) for number in first if number not in have]
            places = [(number, score, *self._index.passage(number)) for number, score in ranked[:count]]
        return [
            FoundPassage(self._number[number >> SHIFT], begin, past, score, heading)
            for number, score, begin, past, heading in places
        ]

    def _safely(self, look: Callable[[], Given]) -> Given:
        """What `look` gives; a damaged index is built again, once."""
        try:
            return look()
        except UnusableError as error:
            if self._reopen is None:
                raise
            self._open(self._reopen(), [*self.notes, f"{self._index.path}: {error}; the index was built again"])
            return look()

    def _name(self, path: str) -> str:
        return str(Path(self._folder, path)) if self._folder else path

    def _note(self, entry: FileEntry, note: str) -> str:
        return self._name(entry.path) + note[len(entry.path) :] if note.startswith(entry.path) else note


class Joined:
    """Several collections as one: their best passages in turn, since scores of different indices do not compare."""

    def __init__(self, parts: Sequence[OpenCollection]) -> None:
        self._parts = parts
        self._starts = [sum(len(part) for part in parts[:i]) for i in range(len(parts) + 1)]
        self.notes = [note for part in parts for note in part.notes]
        self.passages = sum(part.passages for part in parts)

    def __len__(self) -> int:
        return self._starts[-1]

    def document(self, number: int) -> Document:
        """One of them."""
        i = max(i for i, start in enumerate(self._starts[:-1]) if start <= number)
        return self._parts[i].document(number - self._starts[i])

    def best(self, question: str, count: int) -> list[FoundPassage]:
        """The best of each, then the second best of each, and so on."""
        found = [
            [replace(one, document=one.document + start) for one in part.best(question, count)]
            for part, start in zip(self._parts, self._starts)
        ]
        return [one for row in zip_longest(*found) for one in row if one is not None][:count]

    def refreshed(self) -> Joined:
        """Itself if all parts are themselves."""
        parts = [part.refreshed() for part in self._parts]
        return self if all(new is old for new, old in zip(parts, self._parts)) else Joined(parts)


class TextCollection:
    """Texts in memory, by BM25 as `quoth.search.retrieve` computes it. Nothing is kept between questions."""

    notes: Sequence[str] = ()

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._passages = split_passages(texts)
        self.passages = len(self._passages)

    def __len__(self) -> int:
        return len(self._texts)

    def document(self, number: int) -> Document:
        """One of them, without a name."""
        return Document("", self._texts[number])

    def best(self, question: str, count: int) -> list[FoundPassage]:
        """The earlier one at a tie."""
        found = []
        for passage, score in rank_passages(question, self._texts, self._passages, count):
            wide = widened(passage, self._texts[passage.document])
            found.append(FoundPassage(wide.document, wide.begin, wide.past, score))
        return found


def _of_folder(folder: str, path: str | Path | None, progress: Progress | None) -> IndexCollection:
    def rebuilt() -> Index:
        return open_index(folder, path, rebuild=True)[0]

    def again() -> IndexCollection:
        return _of_folder(folder, path, None)

    index, done = open_index(folder, path, progress=progress)
    return IndexCollection(index, folder, done.notes, rebuilt, again)


def _in_memory(paths: Sequence[str], known: Container[str]) -> IndexCollection:
    """Read files into an index in memory. known: see `_files`."""
    index, files = Index(None, ""), _files(paths, known)
    stamps = _stamps(files)
    with index.change():
        for name, stamp in zip(files, stamps):
            inside = next((folder for folder in paths if Path(name).is_relative_to(folder)), None)
            label = Path(name).relative_to(inside or Path(name).parent).as_posix()
            entry = FileEntry(name, 0, 0, repr(stamp).encode(), "", label=label)
            try:
                document = read_file(name)
                index.add(replace(entry, notes=document.notes), document, cut_passages(document))
            except NoTextError as error:
                index.add(replace(entry, notes=(str(error),)), None, ())

    def again() -> IndexCollection:
        return found if _stamps(_files(paths, known)) == stamps else _in_memory(paths, known)

    found = IndexCollection(index, again=None if "-" in files else again)
    return found


def _files(paths: Sequence[str], known: Container[str]) -> list[str]:
    """The files of paths, without those that an index has. known: the real paths of these."""
    return [name for name in find_files(paths) if os.path.realpath(name) not in known]


def _stamps(files: Sequence[str]) -> list[tuple[str, int, int]]:
    """Name, size and time of each file; of one that is not there 0."""
    found = []
    for name in files:
        try:
            status = Path(name).stat()
            found.append((name, status.st_size, status.st_mtime_ns))
        except OSError:
            found.append((name, 0, 0))
    return found


def _outermost(folders: Sequence[str]) -> list[str]:
    """Without those that are inside another, or named twice."""
    found: dict[Path, str] = {}
    for folder in folders:
        found.setdefault(Path(folder).resolve(), folder)
    return [
        name for path, name in found.items() if not any(path != other and path.is_relative_to(other) for other in found)
    ]

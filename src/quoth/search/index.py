"""`Index`: documents and their passages in one SQLite file, searched with its FTS5.

Tables: `file` has a row for each file of the folder, of one that gave no text too; `document` what was read of it
(`quoth.search.packing`); `passage` where its passages begin and end; `words` the inverted index, which holds words
alone. The number of a passage is (number of its file) * 2²⁴ + (which of its passages it is).

A file that is not ours is refused, and one of another version or a damaged one is `Unusable`: it is to be built again.
The journal is SQLite's default one and not a write-ahead log: the index is then one file, which can also be read where
nothing can be written, and on network drives.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from quoth._version import __version__
from quoth.errors import QuothError
from quoth.search.document import Document
from quoth.search.index_passages import heading_words, match_expression, searchable
from quoth.search.packing import from_bytes, to_bytes

KIND = 0x51494458  # "QIDX", SQLite's application id of our files
VERSION = 1  # of the tables, of how passages are cut and of which words are looked at
WAIT = 60.0  # seconds for another process that writes at this moment
SHIFT = 24  # bits of the number of a passage that count within its file
HEADING = 1.0  # weight of a word in a heading, title or file name, as of one in the text: benchmarks/results/index.md

UNWRITABLE = (
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
)  # fmt: skip

SCHEMA = f"""
CREATE TABLE origin (folder BLOB, quoth TEXT);
CREATE TABLE file (
    id INTEGER PRIMARY KEY AUTOINCREMENT, path BLOB UNIQUE, size INTEGER, mtime INTEGER, hash BLOB, format TEXT,
    passages INTEGER, notes TEXT
);
CREATE TABLE document (id INTEGER PRIMARY KEY, data BLOB);
CREATE TABLE passage (id INTEGER PRIMARY KEY, begin INTEGER, past INTEGER, heading TEXT);
CREATE VIRTUAL TABLE words USING fts5(text, heading, content='', tokenize='porter unicode61 remove_diacritics 2');
PRAGMA application_id = {KIND};
PRAGMA user_version = {VERSION};
"""


class UnusableError(QuothError):
    """An index that is damaged, or of another version: it is to be built again. The message says why."""


class ForeignError(QuothError):
    """A file that is not an index of Quoth, or of another folder: it is left alone."""


class UnwritableError(QuothError):
    """An index that cannot be written: no permission, no space. The message says why; what was there is valid."""


@dataclass(frozen=True)
class FileEntry:
    """What the index keeps of a file. passages: 0 if it gave no text; notes: a line each, without its folder.

    label: what is searched of its name, where that is not the path: of an index in memory, which removes nothing
    """

    path: str
    size: int
    mtime: int
    hash: bytes
    format: str
    notes: tuple[str, ...] = ()
    passages: int = 0
    id: int = 0
    label: str = ""


class Index:
    """An open index. path: None for one in memory; folder: of which it is."""

    def __init__(self, path: Path | None, folder: str, writable: bool = True) -> None:
        self.path = path
        self.writable = writable
        self._lock = threading.RLock()  # a transaction is of the connection, and threads share it
        with _told():
            self._base = _connect(path, writable)
            if writable and not self._tables():
                self._create(folder)
            self._check(folder)

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def entries(self) -> list[FileEntry]:
        """All files, by their paths; those of an index in memory as they were added."""
        with _told():
            columns = "path, size, mtime, hash, format, notes, passages, id"
            rows = self._base.execute(f"SELECT {columns} FROM file ORDER BY id")
            found = [
                FileEntry(
                    os.fsdecode(path),
                    size,
                    mtime,
                    kept,
                    form,
                    tuple(json.loads(notes)) if notes != "[]" else (),
                    passages,
                    number,
                )
                for path, size, mtime, kept, form, notes, passages, number in rows
            ]
        return sorted(found, key=lambda entry: entry.path.split("/")) if self.path else found

    @contextmanager
    def change(self) -> Iterator[None]:
        """All that is changed here is kept, or nothing if the process or the disk fails."""
        with self._lock, _told():
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._base.execute("COMMIT")
            except BaseException:
                if self._base.in_transaction:  # a full disk has ended it already
                    self._base.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """All that is read here is of one state, whatever another process writes; to be short, since it has to wait."""
        with self._lock, _told():
            self._base.execute("BEGIN")
            try:
                yield
            finally:
                self._base.execute("ROLLBACK")

    def add(self, entry: FileEntry, document: Document | None, passages: Sequence[tuple[int, int]]) -> None:
        """A new file; document: None if it gave no text."""
        row = (os.fsencode(entry.path), entry.size, entry.mtime, entry.hash, entry.format)
        number = self._base.execute(
            "INSERT INTO file (path, size, mtime, hash, format, passages, notes) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*row, len(passages), json.dumps(entry.notes)),
        ).lastrowid
        if document is None or number is None:
            return
        self._base.execute("INSERT INTO document VALUES (?, ?)", (number, to_bytes(document)))
        rows = [
            ((number << SHIFT) + i, begin, past, _plain(" > ".join(document.path(begin))))
            for i, (begin, past) in enumerate(passages)
        ]
        self._base.executemany("INSERT INTO passage VALUES (?, ?, ?, ?)", rows)
        self._base.executemany(
            "INSERT INTO words (rowid, text, heading) VALUES (?, ?, ?)", _words(document, entry, rows)
        )

    def remove(self, entry: FileEntry) -> None:
        """All of a file. The inverted index is given the same words as when they were added."""
        if entry.passages:
            here = (entry.id << SHIFT, ((entry.id + 1) << SHIFT) - 1)
            rows = self._base.execute("SELECT * FROM passage WHERE id BETWEEN ? AND ?", here).fetchall()
            old = _words(self._stored(entry.id), entry, rows)
            self._base.executemany("INSERT INTO words (words, rowid, text, heading) VALUES ('delete', ?, ?, ?)", old)
            self._base.execute("DELETE FROM passage WHERE id BETWEEN ? AND ?", here)
            self._base.execute("DELETE FROM document WHERE id = ?", (entry.id,))
        self._base.execute("DELETE FROM file WHERE id = ?", (entry.id,))

    def touch(self, entry: FileEntry, size: int, mtime: int) -> None:
        """The file has another time and the same content."""
        self._base.execute("UPDATE file SET size = ?, mtime = ? WHERE id = ?", (size, mtime, entry.id))

    def document(self, number: int) -> Document:
        """What was read of file `number`."""
        with self._lock, _told():
            return self._stored(number)

    def best(self, question: str, count: int) -> list[tuple[int, float]]:
        """The numbers and scores of the `count` best passages, best first; all that are as good as the last one too."""
        expression = match_expression(question)
        if not expression:
            return []
        matches = f"SELECT rowid AS id, -bm25(words, 1.0, {HEADING}) AS score FROM words WHERE words MATCH ?"
        with _told():
            found = self._base.execute(f"{matches} ORDER BY score DESC LIMIT ?", (expression, count + 1)).fetchall()
            if len(found) <= count or found[count - 1][1] > found[count][1]:
                return found[:count]
            least = found[count][1]
            equal = self._base.execute(f"SELECT * FROM ({matches}) WHERE score = ?", (expression, least)).fetchall()
        return [row for row in found if row[1] > least] + equal

    def first(self, files: Iterable[int], count: int) -> list[int]:
        """The numbers of the first `count` passages of these files."""
        found: list[int] = []
        with _told():
            for file in files:
                here = (file << SHIFT, ((file + 1) << SHIFT) - 1, count - len(found))
                if here[2] <= 0:
                    break
                found += (row[0] for row in self._base.execute(
                    "SELECT id FROM passage WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?", here))  # fmt: skip
        return found

    def passage(self, number: int) -> tuple[int, int, str]:
        """Where a passage begins and ends in its document, and the headings above it."""
        with _told():
            row = self._base.execute("SELECT begin, past, heading FROM passage WHERE id = ?", (number,)).fetchone()
        if row is None:
            raise _gone()
        return row  # type: ignore[no-any-return]

    def _stored(self, number: int) -> Document:
        row = self._base.execute("SELECT data FROM document WHERE id = ?", (number,)).fetchone()
        if row is None:
            raise _gone()
        try:
            return from_bytes(row[0])
        except QuothError as error:
            raise UnusableError(str(error)) from None

    def _create(self, folder: str) -> None:
        """Make the tables, unless another process has done so in the meantime."""
        with self.change():
            if not self._tables():
                for statement in filter(str.strip, SCHEMA.split(";\n")):
                    self._base.execute(statement)
                self._base.execute("INSERT INTO origin VALUES (?, ?)", (os.fsencode(folder), __version__))

    def _tables(self) -> int:
        return int(self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])

    def _check(self, folder: str) -> None:
        """That it is an index, of this version and of this folder."""
        kind, version = (
            self._base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if kind != KIND:
            raise ForeignError(f"{self.path}: is not an index of Quoth; choose another --index")
        if version != VERSION:
            raise UnusableError("is of another version of Quoth")
        row = self._base.execute("SELECT folder, quoth FROM origin").fetchone()
        if row is None or row[1] != __version__:
            raise UnusableError("is of another version of Quoth")
        if os.fsdecode(row[0]) != folder:
            raise ForeignError(f"{self.path}: is the index of {os.fsdecode(row[0])}; choose another --index")


@contextmanager
def _told() -> Iterator[None]:
    """What SQLite says, as one of our errors."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if "no such module: fts5" in str(error):
            raise QuothError("this Python has an SQLite without FTS5; use --no-index") from None
        if code & 0xFF in UNWRITABLE and code != sqlite3.SQLITE_IOERR_SHORT_READ:
            raise UnwritableError(str(error)) from None
        raise UnusableError(f"is damaged ({error})") from None


def _connect(path: Path | None, writable: bool) -> sqlite3.Connection:
    name = f"file:{quote(str(path))}?mode={'rw' if writable else 'ro'}" if path else ":memory:"
    base = sqlite3.connect(name, uri=path is not None, timeout=WAIT, isolation_level=None, check_same_thread=False)
    base.execute("PRAGMA trusted_schema = OFF")  # what a file of somebody else could make us run
    base.execute("PRAGMA cache_spill = OFF")  # a batch is written at its end, so that others can read until then
    return base


def _words(document: Document, entry: FileEntry, rows: Sequence[Any]) -> Iterator[tuple[int, str, str]]:
    """Number, words of the text, words of the headings of each passage. rows: of the table `passage`."""
    path = os.fsencode(os.path.splitext(entry.label or entry.path)[0]).decode("utf-8", "replace")  # noqa: PTH122
    for number, begin, past, heading in rows:
        yield number, searchable(document.text[begin:past]), heading_words(document, path, heading)


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _gone() -> QuothError:
    return QuothError("a document changed while it was read; ask again")

"""The index of a folder, brought up to date: which files are new, changed or gone, and what is read of them.

A file is unchanged if its size and time are; else its content decides, by hash, so that a copy with a new time is not
read again. The changes are written in batches, one transaction each: whenever the process ends, the index holds some
files as they were and some as they are, and the next refresh goes on from there.

One process at a time writes: it holds a lock on a file beside the index, which the system releases when the process
ends. Others wait, and then find nothing left to do.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from quoth.errors import QuothError
from quoth.files import make_parent
from quoth.limits import open_bytes, read_bounded
from quoth.search.document import Document
from quoth.search.formats import known_extensions, read_document
from quoth.search.index import KIND, FileEntry, ForeignError, Index, UnusableError, UnwritableError
from quoth.search.index_passages import cut_passages

Progress = Callable[[int, int], None]

BATCH = 8_000_000  # characters of a transaction …
FILES = 1000  # … and files
FRESH = 2_000_000_000  # nanoseconds: a file that changed so shortly ago may change again and keep its time


@dataclass(frozen=True)
class FoundFile:
    """A file of a folder. path: from the folder on, parts separated by /."""

    path: str
    size: int
    mtime: int


@dataclass
class Refresh:
    """What a refresh did, in files. notes: of the folder and the index as a whole."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Change:
    """The new content of a file (none if it is gone), to be written in place of what the index has (none if new)."""

    old: FileEntry | None
    new: FileEntry | None
    document: Document | None = None
    passages: Sequence[tuple[int, int]] = ()

    @property
    def same_content(self) -> bool:
        """Whether only the time of the file is another."""
        return bool(self.old and self.new and self.new.hash and self.old.hash == self.new.hash)


def default_index(folder: str | Path) -> Path:
    """Where the index of a folder is kept if nothing else is said: in the user's cache directory."""
    import platformdirs  # here: training does without it

    name = hashlib.sha256(os.fsencode(Path(folder).resolve())).hexdigest()[:32]
    return Path(platformdirs.user_cache_dir("quoth")) / "index" / f"{name}.sqlite"


def open_index(
    folder: str | Path, path: str | Path | None = None, *, rebuild: bool = False, progress: Progress | None = None
) -> tuple[Index, Refresh]:
    """The index of a folder, up to date, and what was done for it.

    - path: its file; left out, `default_index`
    - progress: is told how many files are read, and of how many

    `UnwritableError` if it cannot be written; what it held is then valid.
    """
    root = Path(folder).resolve()
    files, notes = walk_files(root)
    if not files:
        raise QuothError(f"{folder}: the folder has no {', '.join(known_extensions())} file")
    done = Refresh(notes=notes)
    place = Path(path) if path else default_index(folder)
    if path and not Path(f"{place}.lock").exists():  # not ours yet, unless it was copied
        _check_ours(place)
    with _alone(place) as writable:
        if rebuild:
            _discard(place, path is None)
        try:
            index = _opened(place, root, writable)
            refresh(index, root, files, done, progress)
        except (UnusableError, ForeignError) as error:
            if not writable:
                raise UnwritableError(f"{place}: {error}") from None
            if isinstance(error, ForeignError) and path is not None:
                raise
            _discard(place, path is None)
            done = Refresh(notes=[*notes, f"{place}: {error}; the index is built again"])
            index = _opened(place, root, writable)
            refresh(index, root, files, done, progress)
        except UnwritableError as error:
            raise UnwritableError(f"{place}: cannot be written ({error})") from None
    return index, done


def refresh(
    index: Index, root: Path, files: Sequence[FoundFile], done: Refresh, progress: Progress | None = None
) -> None:
    """Bring the index of a folder up to date with its files."""
    old = {entry.path: entry for entry in index.entries()}
    there = {file.path for file in files}
    gone = [_Change(entry, None) for path, entry in old.items() if path not in there]
    todo = [file for file in files if not _same(file, old.get(file.path))]
    batch: list[_Change] = []
    size = 0
    for number, change in enumerate(chain(gone, (_look(root, file, old.get(file.path)) for file in todo))):
        if progress:
            progress(max(0, number - len(gone)), len(todo))
        if change is not None:
            batch.append(change)
            size += len(change.document.text) if change.document else 0
        if size > BATCH or len(batch) >= FILES:
            _write(index, batch, done)
            batch, size = [], 0
    _write(index, batch, done)
    done.unchanged = len(files) - done.added - done.changed
    if progress and todo:
        progress(len(todo), len(todo))


def walk_files(root: Path) -> tuple[list[FoundFile], list[str]]:
    """The files of known formats below a folder, but for hidden ones, by their paths; and folders that are closed.

    Links to folders are not followed. A link to a file that is found anyway, or that another link leads to, is no file.
    """
    known, found, links, notes = known_extensions(), {}, [], []
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(root / folder))
        except OSError as error:
            notes.append(f"{folder or root}: cannot be read ({error.strerror})")
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif os.path.splitext(entry.name)[1].lower() in known and entry.is_file():  # noqa: PTH122
                status = entry.stat()
                found[path] = FoundFile(path, status.st_size, status.st_mtime_ns)
                if entry.is_symlink():
                    links.append(path)
    seen = {os.path.realpath(root / path) for path in found.keys() - set(links)} if links else set()
    for path in sorted(links):
        target = os.path.realpath(root / path)
        if target in seen:
            del found[path]
        seen.add(target)
    return sorted(found.values(), key=lambda file: file.path.split("/")), notes


def _same(file: FoundFile, entry: FileEntry | None) -> bool:
    return entry is not None and (file.size, file.mtime) == (entry.size, entry.mtime)


def _look(root: Path, file: FoundFile, old: FileEntry | None) -> _Change | None:
    """Read a file that may have changed; None if it is no longer there and never was in the index."""
    form = os.path.splitext(file.path)[1].lower()[1:]  # noqa: PTH122
    try:
        with open_bytes(root / file.path) as stream:
            status = os.fstat(stream.fileno())
            data = read_bounded(stream, file.path)
    except FileNotFoundError:
        return _Change(old, None) if old else None
    except (OSError, QuothError) as error:  # told each time: permissions have no influence on size and time
        why = f"cannot be read ({error.strerror})" if isinstance(error, OSError) else str(error)
        note = why if why.startswith(file.path) else f"{file.path}: {why}"
        new = FileEntry(file.path, -1, -1, b"", form, (note,))
        return None if old and old.notes == new.notes else _Change(old, new)
    mtime = -1 if status.st_mtime_ns > time.time_ns() - FRESH else status.st_mtime_ns
    kept = hashlib.sha256(data).digest()
    new = FileEntry(file.path, status.st_size, mtime, kept, form)
    if old and old.hash == kept:
        return _Change(old, new) if (new.size, new.mtime) != (old.size, old.mtime) else None
    try:
        document = read_document(data, file.path)
    except QuothError as error:
        return _Change(old, FileEntry(file.path, new.size, mtime, kept, form, (str(error),)))
    new = FileEntry(file.path, new.size, mtime, kept, form, document.notes)
    return _Change(old, new, document, cut_passages(document))


def _write(index: Index, batch: Sequence[_Change], done: Refresh) -> None:
    """Write some changes in one transaction, and count them."""
    if not batch:
        return
    if not index.writable:
        if not all(change.same_content for change in batch):
            raise UnwritableError("its folder is read-only")
        return
    with index.change():
        for change in batch:
            if change.same_content and change.old and change.new:
                index.touch(change.old, change.new.size, change.new.mtime)
                continue
            if change.old:
                index.remove(change.old)
            if change.new:
                index.add(change.new, change.document, change.passages)
    for change in batch:
        if not change.same_content:
            done.added += change.old is None
            done.changed += change.old is not None and change.new is not None
            done.removed += change.new is None


def _opened(place: Path, root: Path, writable: bool) -> Index:
    """Open the file, or make it, with permissions for its owner alone."""
    if writable:
        try:
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise UnwritableError(error.strerror) from None
    return Index(place, str(root), writable)


@contextmanager
def _alone(place: Path) -> Iterator[bool]:
    """Wait until no other process writes the index. False if it cannot be written at all."""
    try:
        if not place.parent.exists():
            make_parent(place.parent / "quoth")
            place.parent.chmod(0o700)
        lock = os.open(f"{place}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        if not place.exists():
            raise UnwritableError(f"{place}: cannot be written ({error.strerror})") from None
        yield False
        return
    try:
        with suppress(ImportError, OSError):  # Windows; a file system without locks: SQLite has its own
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield True
    finally:
        os.close(lock)


def _check_ours(place: Path) -> None:
    """That a file is not there, or empty, or begins as an index of Quoth does."""
    if place.is_dir():
        raise ForeignError(f"{place}: is a folder; name a file for the index")
    with suppress(FileNotFoundError, NotADirectoryError), place.open("rb") as file:
        start = file.read(100)
        if start and (start[:15] != b"SQLite format 3" or start[68:72] != KIND.to_bytes(4, "big")):
            raise ForeignError(f"{place}: is not an index of Quoth; choose another --index")


def _discard(place: Path, ours: bool) -> None:
    """Remove an index. ours: it has a name that we gave it; else its content must say so."""
    if not ours:
        _check_ours(place)
    with suppress(FileNotFoundError):
        place.unlink()
    with suppress(FileNotFoundError):
        Path(f"{place}-journal").unlink()

r"""A user's own documents: files, folders, standard input.

A byte order mark at the beginning of a text is not a part of it; all other characters are, line ends as they stand
("\r\n" is two of them), so that an offset counts the characters of the file itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from quoth.errors import QuothError
from quoth.limits import open_bytes, read_bounded
from quoth.search.document import Document
from quoth.search.failure import NoTextError
from quoth.search.formats import known_extensions, read_document


def read_documents(paths: Sequence[str]) -> tuple[list[Document], list[str]]:
    """Read documents from files, from folders (every file of a known format below them) and standard input (`-`).

    Returns the documents and, for each file that holds no text (it is empty, damaged, encrypted, or not UTF-8), a line
    that says why it was left out. It is an error if nothing is left, or if a path does not exist. A file that is named
    twice is read once.
    """
    documents: list[Document] = []
    notes: list[str] = []
    for name in find_files(paths):
        try:
            documents.append(read_file(name))
            notes += documents[-1].notes
        except NoTextError as error:
            notes.append(str(error))
    if not documents:
        more = f" (and {len(notes) - 1:,} more like it)" if len(notes) > 1 else ""
        raise QuothError(f"{notes[0]}{more}: there is no text to answer from")
    return documents, notes


def find_files(paths: Sequence[str]) -> list[str]:
    """The files of all arguments, in their order, each once."""
    found: dict[Path, str] = {}
    for path in paths:
        for name in [path] if path == "-" or not Path(path).is_dir() else _below(Path(path)):
            found.setdefault(Path(name).resolve(), name)
    return list(found.values())


def read_file(name: str) -> Document:
    """The document of one file or of standard input (`-`), or a `NoTextError` that says why there is none."""
    label = "standard input" if name == "-" else name
    document = read_document(_bytes(name, label), label)
    return Document("-", document.text, runs=document.runs, lines=document.lines) if name == "-" else document


def _below(folder: Path) -> list[str]:
    """The files of known formats in a folder and its folders, but for hidden ones."""
    known = known_extensions()
    found = sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in known
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
    if not found:
        raise QuothError(f"{folder}: the folder has no {', '.join(known)} file")
    return [str(file) for file in found]


def _bytes(name: str, label: str) -> bytes:
    try:
        if name != "-":
            with open_bytes(name) as file:
                return read_bounded(file, label)
        if sys.stdin is None:
            raise QuothError("standard input: is closed")
        return read_bounded(sys.stdin.buffer, label)
    except FileNotFoundError:
        raise QuothError(f"{label}: no such file or folder") from None
    except OSError as error:
        raise NoTextError(f"{label}: cannot be read ({error.strerror})") from None

"""A user's own texts: files, folders, standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from laconic.errors import LaconicError

TEXT_FILES = (".txt", ".md", ".rst", ".text")


@dataclass(frozen=True)
class Document:
    """A text and where it came from."""

    name: str
    text: str

    def line(self, offset: int) -> int:
        """The line that a character stands in, counted from 1."""
        return self.text.count("\n", 0, offset) + 1

    def sentence(self, start: int, end: int) -> tuple[int, int]:
        """The characters [first, past) of the sentence around [start, end): up to a full stop or a line's end."""
        first, past = self._last_break(start), end
        while past < len(self.text) and self.text[past] not in "\r\n" and not self._ends(past - 1):
            past += 1
        while first < start and self.text[first].isspace():
            first += 1
        return first, past

    def _last_break(self, start: int) -> int:
        for place in range(start - 1, -1, -1):
            if self.text[place] == "\n" or (self._ends(place) and place + 1 < start):
                return place + 1
        return 0

    def _ends(self, place: int) -> bool:
        """Whether a sentence ends with this character: . ! ? with white space or the text's end after it."""
        return self.text[place] in ".!?。！？" and (place + 1 >= len(self.text) or self.text[place + 1].isspace())


def read_documents(paths: Sequence[str]) -> tuple[list[Document], list[str]]:
    """Read texts from files, from folders (every .txt, .md, .rst below them) and from standard input (`-`).

    Returns the documents and, for each file that a folder held and that could not be read, a line that says why. A file
    named by the user that cannot be read is an error; one without a word in it is left out, and told.
    """
    documents, notes = [], []
    for path in paths:
        for name, named in _files(path):
            try:
                document = Document(name, _read(name))
            except LaconicError as error:
                if named:
                    raise
                notes.append(str(error))
                continue
            if document.text.strip():
                documents.append(document)
            else:
                notes.append(f"{name}: is empty")
    if not documents:
        raise LaconicError(f"{notes[0] if notes else ', '.join(paths)}: there is no text to answer from")
    return documents, notes


def _files(path: str) -> Iterator[tuple[str, bool]]:
    """The files of an argument, and whether the user named each."""
    if path == "-" or not Path(path).is_dir():
        yield path, True
        return
    found = sorted(
        file
        for file in Path(path).rglob("*")
        if file.suffix.lower() in TEXT_FILES and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    if not found:
        raise LaconicError(f"{path}: the folder has no {', '.join(TEXT_FILES)} file")
    for file in found:
        yield str(file), False


def _read(name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except FileNotFoundError:
        raise LaconicError(f"{name}: no such file or folder") from None
    except OSError as error:
        raise LaconicError(f"{name}: cannot be read ({error.strerror})") from None
    label = "standard input" if name == "-" else name
    if b"\0" in data[:65536]:
        raise LaconicError(f"{label}: is not a text file; Laconic reads plain text in UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LaconicError(f"{label}: is not UTF-8 text (byte {error.start}); convert it first") from None

r"""A user's own texts: files, folders, standard input.

A text is UTF-8. A byte order mark at its beginning is not a part of it; all other characters are, line ends as they
stand ("\r\n" is two of them), so that an offset counts the characters of the file itself.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quoth.errors import QuothError
from quoth.limits import open_bytes, read_bounded

TEXT_FILES = (".txt", ".md", ".rst", ".text")
SENTENCE = 500  # characters on either side of an answer that its sentence may have: some texts have no full stop


@dataclass(frozen=True)
class Document:
    """A text and where it came from."""

    name: str
    text: str

    def line(self, offset: int) -> int:
        r"""The line that a character stands in, counted from 1; lines end with \n, \r\n or \r."""
        ends = self.text.count("\n", 0, offset) + self.text.count("\r", 0, offset)
        # "\r\n" is one end of a line, and amid it the line has not ended yet
        return ends - self.text.count("\r\n", 0, offset) - (self.text[offset - 1 : offset + 1] == "\r\n") + 1

    def sentence(self, start: int, end: int) -> tuple[int, int]:
        """The characters [first, past) of the sentence around [start, end): up to a full stop or a line's end.

        A sentence of a text that has neither is cut off, `SENTENCE` characters before and after.
        """
        first, past = self._last_break(start), end
        limit = min(len(self.text), end + SENTENCE)
        while past < limit and self.text[past] not in "\r\n" and not self._ends(past - 1):
            past += 1
        while first < start and self.text[first].isspace():
            first += 1
        return first, past

    def _last_break(self, start: int) -> int:
        limit = max(0, start - SENTENCE)
        for place in range(start - 1, limit - 1, -1):
            if self.text[place] in "\r\n" or (self._ends(place) and place + 1 < start):
                return place + 1
        return limit

    def _ends(self, place: int) -> bool:
        """Whether a sentence ends with this character: . ! ? with white space or the text's end after it."""
        return self.text[place] in ".!?。！？" and (place + 1 >= len(self.text) or self.text[place + 1].isspace())


def read_documents(paths: Sequence[str]) -> tuple[list[Document], list[str]]:
    """Read texts from files, from folders (every .txt, .md, .rst below them) and from standard input (`-`).

    Returns the documents and, for each file that holds no text (it is empty, or binary, or not UTF-8), a line that says
    why it was left out. It is an error if nothing is left, or if a path does not exist. A file that is named twice
    is read once.
    """
    documents, notes = [], []
    for name in _files(paths):
        try:
            documents.append(Document(name, _text(name)))
        except _NoTextError as error:
            notes.append(str(error))
    if not documents:
        more = f" (and {len(notes) - 1:,} more like it)" if len(notes) > 1 else ""
        raise QuothError(f"{notes[0]}{more}: there is no text to answer from")
    return documents, notes


class _NoTextError(QuothError):
    """What a file holds is no text."""


def _files(paths: Sequence[str]) -> list[str]:
    """The files of all arguments, in their order, each once."""
    found: dict[Path, str] = {}
    for path in paths:
        for name in [path] if path == "-" or not Path(path).is_dir() else _below(Path(path)):
            found.setdefault(Path(name).resolve(), name)
    return list(found.values())


def _below(folder: Path) -> list[str]:
    """The text files in a folder and its folders, but for hidden ones."""
    found = sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in TEXT_FILES
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
    if not found:
        raise QuothError(f"{folder}: the folder has no {', '.join(TEXT_FILES)} file")
    return [str(file) for file in found]


def _text(name: str) -> str:
    """The text of a file, or why it has none."""
    label = "standard input" if name == "-" else name
    data = _bytes(name, label)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise _NoTextError(f"{label}: is UTF-16; Quoth reads UTF-8, convert it first")
    zero = data.find(b"\0")
    if zero >= 0:
        raise _NoTextError(f"{label}: is not a text file (byte {zero} is zero); Quoth reads plain text in UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _NoTextError(f"{label}: is not UTF-8 text (byte {error.start}); convert it first") from None
    if not text.strip():
        raise _NoTextError(f"{label}: is empty")
    return text


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
        raise _NoTextError(f"{label}: cannot be read ({error.strerror})") from None

"""Formats of documents: which function reads a file, by its content and its name.

A function takes the bytes and the name of a file, and gives a `Document`, or the text alone. It raises `NoTextError`
with a line that names the file where there is nothing to read. Each file has `SECONDS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import PurePath

from quoth.errors import QuothError
from quoth.limits import within
from quoth.search.document import Document
from quoth.search.docx import read_docx
from quoth.search.failure import NoTextError
from quoth.search.markdown import read_markdown
from quoth.search.rst import read_rst
from quoth.search.text import read_text

Format = Callable[[bytes, str], Document | str]


def _later(kind: str) -> Format:
    """The function of a module that is imported when it is first needed: who trains needs no parser of PDF or HTML."""

    def read(data: bytes, name: str) -> Document | str:
        function: Format = getattr(import_module(f"quoth.search.{kind}"), f"read_{kind}")
        return function(data, name)

    return read


read_eml, read_epub, read_html, read_pdf = map(_later, ("eml", "epub", "html", "pdf"))
SECONDS = 60.0  # for one file
_FORMATS: dict[str, Format] = {
    ".txt": read_text,
    ".md": read_markdown,
    ".rst": read_rst,
    ".text": read_text,
    ".markdown": read_markdown,
    ".html": read_html,
    ".htm": read_html,
    ".xhtml": read_html,
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".epub": read_epub,
    ".eml": read_eml,
}
HTML = re.compile(
    rb"\s*(?:<\?xml[^>]{0,200}\?>\s*)?(?:<!--[^>]{0,500}-->\s*)?(?:<!doctype\s+html|<html[\s>])", re.IGNORECASE
)
OTHERS = {
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "is an old or encrypted Office file; save it as .docx without a password",
    b"{\\rtf": "is a rich text file; save it as .docx",
    b"\x1f\x8b": "is compressed (gzip); unpack it first",
    b"7z\xbc\xaf\x27\x1c": "is an archive (7z); unpack it first",
    b"Rar!": "is an archive (rar); unpack it first",
}


def register_format(extension: str, function: Format) -> None:
    """Read files whose names end with `extension` by `function(data, name)`: it gives their text, or a `Document`.

    A format that is known already is replaced.
    """
    if not re.fullmatch(r"\.[^./\\\s]+", extension):
        raise QuothError(f"{extension!r}: an extension begins with a dot, such as '.org'")
    _FORMATS[extension.lower()] = function


def known_extensions() -> tuple[str, ...]:
    """The extensions of files that are read from a folder."""
    return tuple(_FORMATS)


def read_document(data: bytes, name: str, seconds: float = SECONDS) -> Document:
    """The document that a file holds, or a `NoTextError` that says why there is none."""
    read = _choose(data, name)
    late = f"{name}: takes longer than {seconds:.0f} seconds to read"
    try:
        found = within(seconds, lambda: read(data, name), late)
    except NoTextError:
        raise
    except QuothError as error:
        raise NoTextError(str(error)) from None
    except (MemoryError, RecursionError):
        raise NoTextError(f"{name}: is too large or too deeply nested to read") from None
    document = Document(name, found) if isinstance(found, str) else found
    if not document.text.strip():
        raise NoTextError(f"{name}: is empty")
    return document if document.name == name else replace(document, name=name)


def _choose(data: bytes, name: str) -> Format:
    """By the content where it is plain, else by the name; what is unknown is taken for text."""
    extension = PurePath(name).suffix.lower()
    given = _FORMATS.get(extension)
    built_in = given is None or given.__module__.startswith("quoth.search.")
    if not built_in:
        return given  # type: ignore[return-value]  # whoever registered it knows better
    for start, why in OTHERS.items():
        if data.startswith(start):
            raise NoTextError(f"{name}: {why}")
    if b"%PDF-" in data[:1024] and (given is read_pdf or data.startswith(b"%PDF-")):
        return read_pdf
    if data.startswith(b"PK\x03\x04"):
        return _archive(data, name)
    if given in (read_pdf, read_docx, read_epub):
        if HTML.match(data):
            return read_html
        raise NoTextError(f"{name}: is not a {extension[1:].upper()} file, or is damaged")
    if given in (None, read_text) and HTML.match(data):
        return read_html
    return given or read_text


def _archive(data: bytes, name: str) -> Format:
    """What kind of document a zip archive is. Both kinds name themselves at the beginning or in their directory."""
    if b"application/epub+zip" in data[:200] or b"META-INF/container.xml" in data:
        return read_epub
    if b"word/document.xml" in data:
        return read_docx
    raise NoTextError(f"{name}: is an archive (zip); unpack it first")

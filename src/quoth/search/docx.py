"""Word (.docx): the paragraphs, headings by their styles, tables row by row, lists, footnotes and endnotes.

A place counts the characters of the XML inside the file (`part`). Headers and footers, comments, deleted and hidden
text are left out. The XML is read by expat without entities (`archive.py`).
"""

from __future__ import annotations

import codecs
import re

import numpy as np

from quoth.search.archive import Archive, parse_xml
from quoth.search.builder import Builder
from quoth.search.document import Document, line_starts
from quoth.search.failure import NoTextError
from quoth.search.word_sets import word_set

TEXT_PARTS = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
HEADING = re.compile(r"(?:heading|überschrift|titre|título|titolo)\s*(\d)", re.IGNORECASE)
SKIPPED = word_set("Fallback moveFrom del instrText separator continuationSeparator")


def read_docx(data: bytes, name: str) -> Document:
    """A file of Word 2007 or later."""
    archive = Archive(data, name)
    levels = _style_levels(archive, name)
    found = Builder()
    parts, lines = [], []
    for part in TEXT_PARTS:
        content = archive.read(part)
        if content is None:
            if part == TEXT_PARTS[0]:
                raise NoTextError(f"{name}: has no {part}; it is no Word file, or damaged")
            continue
        source = _decoded(content, f"{name}: {part}")
        parts.append((part, found.begin))
        lines.append(line_starts(source) + found.begin)
        _Part(source, found, levels).read(f"{name}: {part}")
        found.begin += len(source)
        found.gap("\n\n")
    title = next((one.title for one in found.headings), "")
    return Document(
        name,
        found.text,
        _title(archive, name) or title,
        tuple(found.headings),
        found.runs.made(),
        np.concatenate(lines).astype(np.int32),
        tuple(parts),
    )


def _decoded(data: bytes, label: str) -> str:
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise NoTextError(f"{label}: is damaged (byte {error.start} is not {encoding})") from None


class _Part:
    """Reads the XML of one part, and puts its text after what was found before."""

    def __init__(self, source: str, found: Builder, levels: dict[str, int]) -> None:
        self.source, self.found, self.levels = source, found, levels
        self.data = source.encode()
        self.byte = self.character = 0  # how many characters are in so many bytes
        self.skipped = 0  # elements that are left out and lie around this place
        self.open: list[str] = []
        self.hidden = False
        self.heading: list[tuple[int, int]] = []  # paragraphs inside each other (text boxes): pieces and level

    def read(self, label: str) -> None:
        """Read all of it."""
        parse_xml(self.data, label, self.start, self.end, self.text)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """The beginning of an element."""
        if self.skipped or name in SKIPPED:
            self.skipped += 1
            return
        found, value = self.found, attributes.get("val", "")
        self.open.append(name)
        if name == "p":
            found.gap("\n\n")
            self.heading.append((len(found.pieces), 0))
        elif name == "pStyle" and self.heading:
            self.heading[-1] = (self.heading[-1][0], self.levels.get(value, 0))
        elif name == "outlineLvl" and self.heading and value in "012345678":
            self.heading[-1] = (self.heading[-1][0], int(value or 0) + 1)
        elif name == "numPr" and self.heading and found.pending == "\n\n":
            found.pending = "\n"
        elif name == "r":
            self.hidden = False
        elif name == "vanish":
            self.hidden = value not in ("0", "false")
        elif name in ("br", "cr"):
            found.gap("\n")
        elif name == "tab":
            found.gap(" ")
        elif name == "noBreakHyphen":
            found.put("-", self.character, self.character, exact=False)
        elif name == "tr":
            found.start_row()
        elif name == "tc":
            found.next_cell()

    def end(self, name: str) -> None:
        """The end of an element."""
        if self.skipped:
            self.skipped -= 1
            return
        self.open.pop()
        if name == "p":
            pieces, level = self.heading.pop()
            if level:
                self.found.end_heading(pieces, level)
            self.found.gap("\n\n")
        elif name == "tr":
            self.found.end_row()
        elif name == "tbl":
            self.found.gap("\n\n")

    def text(self, characters: str, byte: int) -> None:
        """Characters: they count only inside <w:t>."""
        if self.skipped or self.hidden or not self.open or self.open[-1] != "t":
            return
        self.character += len(self.data[self.byte : byte].decode("utf-8", "replace"))
        self.byte = byte
        start = self.character
        exact = self.source.startswith(characters, start)
        end = start + len(characters) if exact else self.source.find(";", start) + 1 or start
        if characters == "\n" or characters.isspace():
            self.found.gap(" ")
        else:
            lead, tail = characters[0].isspace(), characters[-1].isspace()
            bare = characters.strip()
            if lead:
                self.found.gap(" ")
            first = start + (characters.index(bare) if exact else 0)
            self.found.put(bare, first, first + len(bare) if exact else end, exact)
            if tail:
                self.found.gap(" ")


def _style_levels(archive: Archive, name: str) -> dict[str, int]:
    """The level of each style that is one of headings, by its own outline level or its name."""
    data = archive.read("word/styles.xml")
    levels: dict[str, int] = {}
    current = [""]

    def start(tag: str, attributes: dict[str, str]) -> None:
        value = attributes.get("val", "")
        if tag == "style":
            current[0] = attributes.get("styleId", "")
        elif tag == "name" and (named := HEADING.fullmatch(value.strip())):
            levels[current[0]] = int(named[1])
        elif tag == "name" and value.lower() == "title":
            levels[current[0]] = 1
        elif tag == "outlineLvl" and value in "012345678" and value:
            levels.setdefault(current[0], int(value) + 1)

    if data is not None:
        parse_xml(
            _decoded(data, f"{name}: word/styles.xml").encode(), f"{name}: word/styles.xml", start, lambda _: None
        )
    return levels


def _title(archive: Archive, name: str) -> str:
    """The title in the properties of the file."""
    return core_title(archive.read("docProps/core.xml"), f"{name}: docProps/core.xml")


def core_title(data: bytes | None, label: str) -> str:
    """The first <dc:title>."""
    pieces: list[str] = []
    state = {"in": False, "done": False}

    def start(tag: str, _: dict[str, str]) -> None:
        state["in"] = tag == "title" and not state["done"]

    def end(tag: str) -> None:
        state["done"] |= tag == "title"
        state["in"] = False

    def text(characters: str, _: int) -> None:
        if state["in"]:
            pieces.append(characters)

    if data is not None:
        parse_xml(data, label, start, end, text)
    return " ".join("".join(pieces).split())

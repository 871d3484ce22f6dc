"""Plain text: UTF-8, as it stands, but for the line ends of wrapped paragraphs."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Set
from itertools import pairwise

from quoth.search.document import Document, Edit, edited, line_starts
from quoth.search.failure import NoTextError
from quoth.search.joining import SHORT, drops_hyphen, joins, splits_word, words_of

LINE = re.compile(r"[^\r\n]+")


def read_text(data: bytes, name: str) -> Document:
    """A file of plain text."""
    source = decode_utf8(data, name)
    text, runs = edited(source, join_edits(source, 0, len(source)))
    return Document(name, text, runs=runs, lines=line_starts(source))


def decode_utf8(data: bytes, name: str) -> str:
    """The characters of a file, or why it has none. A byte order mark is not a part of the text."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise NoTextError(f"{name}: is UTF-16; Quoth reads UTF-8, convert it first")
    zero = data.find(b"\0")
    if zero >= 0:
        raise NoTextError(f"{name}: is not a text file (byte {zero} is zero); Quoth reads plain text in UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NoTextError(f"{name}: is not UTF-8 text (byte {error.start}); convert it first") from None


def join_edits(source: str, begin: int, past: int) -> Iterator[Edit]:
    """What joins the wrapped lines of the paragraphs in [begin, past): a line end and indentation become a space."""
    words: Set[str] | None = None
    for lines in _paragraphs(source, begin, past):
        width = max(end - start for start, end in lines)
        for (start, end), (after, last) in pairwise(lines):
            if end - start < SHORT:
                continue
            line, following = source[start:end], source[after:last]
            if not joins(line, following, width):
                continue
            halves = splits_word(line, following)
            if halves:
                words = words_of(source) if words is None else words
                drops = drops_hyphen(*halves, words, by_default=False)
                yield (end - 1, after, "") if drops else (end, after, "")
            else:
                yield end, after, " "


def _paragraphs(source: str, begin: int, past: int) -> Iterator[list[tuple[int, int]]]:
    """The lines [start, end) of each paragraph, without white space around them."""
    lines: list[tuple[int, int]] = []
    for match in LINE.finditer(source, begin, past):
        start, end = _stripped(source, match.start(), match.end())
        if lines and (start == end or _apart(source, lines[-1][1], match.start())):
            yield lines
            lines = []
        if start < end:
            lines.append((start, end))
    if lines:
        yield lines


def _apart(source: str, end: int, start: int) -> bool:
    """Whether there is an empty line between two."""
    between = source[end:start]
    return between.count("\n") > 1 or between.count("\r") > 1


def _stripped(source: str, start: int, end: int) -> tuple[int, int]:
    while end > start and source[end - 1].isspace():
        end -= 1
    while start < end and source[start].isspace():
        start += 1
    return start, end

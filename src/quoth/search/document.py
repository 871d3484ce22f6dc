r"""A document: what is read of a file, and where in the file every character of it came from.

The text of a document is for a reader, a person or a model: paragraphs are apart by an empty line, the lines of a
wrapped paragraph are joined, marks of the format are left out. A line end in it is a real one: that of a list item, a
table row, a line of code. A sentence therefore never goes past a line end.

`Document.place` leads back to the source:

- `start`, `end`, `line`: where the source is text. They count the characters of the file, or of a part of it (a member
  of a .docx or .epub, the decoded body of a message). The source at the place is the answer, but for what the reader
  does not see: white space of a line end, a hyphen there, marks such as ** and <b>, entities.
- `page`, `boxes`: a PDF.
- `headings`: the headings above it, the outermost first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quoth.search.sentences import sentence_around, split_sentences

LINE_END = re.compile(r"\r\n|\r|\n")
Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Heading:
    """A heading: where it begins in the text, its level from 1, and its words."""

    at: int
    level: int
    title: str


@dataclass(frozen=True)
class Box:
    """A rectangle on a page of a PDF, in points from the lower left corner: 72 points are an inch."""

    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True)
class Place:
    """Where some characters of a document stand in its source. What a format does not have is None or empty.

    - line, start, end: in the file, or in `part` of it; lines are counted from 1, `end` is past the last character
    - page: counted from 1; label: what is printed on it, such as "iv", where the PDF says so
    - boxes: one for each line of the page that the characters go over, from the first to the last
    """

    line: int | None = None
    start: int | None = None
    end: int | None = None
    part: str | None = None
    page: int | None = None
    label: str | None = None
    boxes: tuple[Box, ...] = ()
    headings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Runs:
    """A text in N runs of characters, each from one place of the source.

    - at: (N,) where the run begins in the text; it ends where the next one begins
    - start, end: (N,) the characters of the source. As many as in the text: one for one. Else all of the run is made
      of all of them ("&" of "&amp;"). None at all: the run was put in (the space between two cells)
    """

    at: Ints
    start: Ints
    end: Ints

    def source(self, start: int, end: int, length: int) -> tuple[int, int]:
        """The characters of the source that [start, end) of a text of `length` characters comes from."""
        first = self._one(start, length)
        return first[0], max(first[0], self._one(end - 1, length)[1]) if end > start else first[0]

    def _one(self, place: int, length: int) -> tuple[int, int]:
        i = int(np.searchsorted(self.at, place, side="right")) - 1
        begin, start, end = int(self.at[i]), int(self.start[i]), int(self.end[i])
        past = int(self.at[i + 1]) if i + 1 < len(self.at) else length
        if past - begin != end - start:
            return start, end
        return start + place - begin, start + place - begin + 1


@dataclass(frozen=True, eq=False)
class Boxes:
    """The words of a PDF. at: (N,) where they begin in the text; page: (N,) from 1; box: (N, 4) as in `Box`.

    A page of 0 stands for what was put in (the space between two words).
    """

    at: Ints
    page: Ints
    box: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Document:
    """A text and where it came from: see the top of this file. Without `runs` the source has the same characters.

    - lines: where each line of the source begins, from the second on; left out, they are those of the text
    - parts: the name of each part of the source, and where it begins in all of them one after another
    - labels: of the pages of a PDF
    - notes: what of the file was not read, a line each
    """

    name: str
    text: str
    title: str = ""
    headings: tuple[Heading, ...] = ()
    runs: Runs | None = None
    lines: Ints | None = None
    parts: tuple[tuple[str, int], ...] = ()
    boxes: Boxes | None = None
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)

    def place(self, start: int, end: int) -> Place:
        """Where the characters [start, end) of the text stand in the source."""
        headings = self.path(start)
        if self.boxes is not None:
            return self._place_on_page(start, end, headings)
        begin, past = self.runs.source(start, end, len(self.text)) if self.runs is not None else (start, end)
        part, offset = None, 0
        if self.parts:
            number = max(0, int(np.searchsorted([at for _, at in self.parts], begin, side="right")) - 1)
            part, offset = self.parts[number]
        line = int(np.searchsorted(self._lines, begin, side="right") - np.searchsorted(self._lines, offset, "right"))
        return Place(line + 1, begin - offset, past - offset, part, headings=headings)

    def path(self, place: int) -> tuple[str, ...]:
        """The headings above a character of the text, the outermost first. A heading is above its own characters."""
        found: list[str] = []
        level = 1 << 30
        for i in range(int(np.searchsorted(self._headings_at, place, side="right")) - 1, -1, -1):
            heading = self.headings[i]
            if heading.level < level:
                found.append(heading.title)
                level = heading.level
            if level <= 1:
                break
        return tuple(reversed(found))

    def sentence(self, start: int, end: int) -> tuple[int, int]:
        """The characters [first, past) of the sentence or sentences that [start, end) lies in."""
        return sentence_around(self.text, start, end)

    def sentences(self) -> list[tuple[int, int]]:
        """All sentences of the text, [first, past) each, without the white space between them."""
        return split_sentences(self.text)

    def _place_on_page(self, start: int, end: int, headings: tuple[str, ...]) -> Place:
        assert self.boxes is not None
        first = max(0, int(np.searchsorted(self.boxes.at, start, side="right")) - 1)
        past = max(first + 1, int(np.searchsorted(self.boxes.at, end, side="left")))
        pages, found = self.boxes.page[first:past], self.boxes.box[first:past]
        real = pages > 0
        if not real.any():
            return Place(headings=headings)
        pages, found = pages[real], found[real]
        page = int(pages[0])
        label = self.labels[page - 1] if page <= len(self.labels) else ""
        return Place(page=page, label=label or None, boxes=_rows(found[pages == page]), headings=headings)

    @cached_property
    def _lines(self) -> Ints:
        return self.lines if self.lines is not None else line_starts(self.text)

    @cached_property
    def _headings_at(self) -> Ints:
        return np.array([heading.at for heading in self.headings], np.int32)


def line_starts(source: str) -> Ints:
    r"""Where each line begins, but for the first; lines end with \n, \r\n or \r."""
    return np.fromiter((match.end() for match in LINE_END.finditer(source)), np.int32)


def _rows(words: NDArray[np.float32]) -> tuple[Box, ...]:
    """One box around the words of each line. A word to the left of the one before it, or not beside it, is in another.

    words: (N, 4) boxes in reading order
    """
    rows: list[list[float]] = []
    for x0, y0, x1, y1 in words.tolist():
        if rows and x0 >= rows[-1][0] and min(y1, rows[-1][3]) > max(y0, rows[-1][1]):
            last = rows[-1]
            rows[-1] = [last[0], min(last[1], y0), max(last[2], x1), max(last[3], y1)]
        else:
            rows.append([x0, y0, x1, y1])
    return tuple(Box(*(round(value, 2) for value in row)) for row in rows)


Edit = tuple[int, int, str]  # these characters [start, end) of the source become this


def edited(source: str, edits: Iterable[Edit]) -> tuple[str, Runs | None]:
    """The source with its edits, in order and without overlap, and the runs; None if every character has its place."""
    pieces: list[str] = []
    runs = RunList()
    done = length = 0
    for start, end, new in edits:
        if end - start == len(new) == 1:  # one for one: the run goes on
            pieces += (source[done:start], new)
            length += start - done + 1
            runs.add(length - (start - done + 1), done, end)
        else:
            pieces.append(source[done:start])
            runs.add(length, done, start)
            length += start - done
            if new:
                pieces.append(new)
                runs.add_whole(length, start, end)
                length += len(new)
        done = end
    pieces.append(source[done:])
    runs.add(length, done, len(source))
    text = "".join(pieces)
    return text, None if runs.trivial(len(source), len(text)) else runs.made()


class RunList:
    """Runs as they are found, in the order of the text. Those that go on from each other are one."""

    def __init__(self) -> None:
        self._at: list[int] = []
        self._start: list[int] = []
        self._end: list[int] = []
        self._open = False  # whether the last run is one for one, so that it may grow

    def add(self, at: int, start: int, end: int) -> None:
        """The characters [start, end) of the source stand at `at` in the text as they are."""
        if end == start:
            return
        if self._open and self._end[-1] == start and self._at[-1] + start - self._start[-1] == at:
            self._end[-1] = end
            return
        self._append(at, start, end)
        self._open = True

    def add_whole(self, at: int, start: int, end: int) -> None:
        """What stands at `at` is made of all the characters [start, end)."""
        self._append(at, start, end)
        self._open = False

    def trivial(self, source: int, text: int) -> bool:
        """Whether the text is the source, one for one."""
        return source == text and (not self._at or (len(self._at) == 1 and (self._start[0], self._end[0]) == (0, text)))

    def made(self) -> Runs:
        """The runs as arrays. There is at least one."""
        if not self._at:
            self._append(0, 0, 0)
        return Runs(*(np.array(values, np.int32) for values in (self._at, self._start, self._end)))

    def _append(self, at: int, start: int, end: int) -> None:
        self._at.append(at)
        self._start.append(start)
        self._end.append(end)


def shifted(headings: Sequence[Heading], by: int) -> list[Heading]:
    """The headings of a text that has `by` more characters before it."""
    return [Heading(heading.at + by, heading.level, heading.title) for heading in headings]

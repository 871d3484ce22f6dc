"""A text as it is put together from the pieces of a source with structure: HTML, the XML of a .docx."""

from __future__ import annotations

from dataclasses import dataclass, field

from quoth.search.document import Heading, RunList


@dataclass
class Builder:
    """A text as it is made of pieces of the source, with runs and headings.

    begin: what is added to offsets: where this part begins in the source of all parts
    """

    begin: int = 0
    pieces: list[str] = field(default_factory=list)
    length: int = 0
    runs: RunList = field(default_factory=RunList)
    headings: list[Heading] = field(default_factory=list)
    title: str = ""
    row: int = 0  # the number of pieces where the row of a table begins
    in_cell: bool = False  # at the beginning of a cell, whose blocks do not move it to a new line
    pending: str = ""  # white space that comes before the next text, if there is one
    last: int = 0  # where the latest text ends in the source

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.pieces)

    def gap(self, space: str) -> None:
        """White space before the next text: two line ends are more than one, one is more than a space."""
        if (
            self.length
            and not self.in_cell
            and (space.count("\n"), len(space)) > (self.pending.count("\n"), len(self.pending))
        ):
            self.pending = space

    def start_row(self) -> None:
        """A row of a table begins."""
        self.row, self.in_cell = len(self.pieces), False
        self.gap("\n")

    def next_cell(self) -> None:
        """A cell begins: a bar before it, unless it is the first, or cells of this row have paragraphs of their own."""
        if len(self.pieces) == self.row:
            self.in_cell = bool(self.pending)
        elif self._is_plain_row():
            self.pending, self.in_cell = " | ", True

    def end_row(self) -> None:
        """A row ends: the next one is on the next line."""
        self.in_cell = False
        if self._is_plain_row():
            self.pending = "\n"

    def _is_plain_row(self) -> bool:
        return len(self.pieces) > self.row and not any("\n" in piece for piece in self.pieces[self.row + 1 :])

    def put(self, text: str, start: int, end: int, exact: bool) -> None:
        """Characters of the source, one for one if `exact`."""
        if not text:
            return
        start, end = start + self.begin, end + self.begin
        if self.pending:
            self.runs.add_whole(self.length, self.last, self.last)
            self.pieces.append(self.pending)
            self.length += len(self.pending)
            self.pending = ""
        self.in_cell = False
        (self.runs.add if exact else self.runs.add_whole)(self.length, start, end)
        self.pieces.append(text)
        self.length += len(text)
        self.last = end

    def end_heading(self, pieces: int, level: int) -> None:
        """What was put since there were so many pieces is a heading."""
        written = "".join(self.pieces[pieces:])
        title = " ".join(written.split()).rstrip("¶# ")
        if title:
            self.headings.append(Heading(self.length - len(written.lstrip()), level, title))

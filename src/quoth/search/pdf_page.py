"""The lines of a page of a PDF, as pdfium finds them: words with their boxes, in the order of the file.

Boxes of lines are in points, in a frame that is turned so that most of the text is upright. `Frame.shown` makes
of them those of the page as it is shown: from the lower left corner of its crop box, turned as the page says.
"""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as raw
from numpy.typing import NDArray

GAP = 2.0  # heights of a line: a wider gap is between two columns, or the cells of a table
HYPHENS = "\x02\ufffe\xad"  # how pdfium gives a hyphen at the end of a line
LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "ft", "ﬆ": "st", "\xa0": " "})
SPACES = frozenset(" \r\n\t\0\xa0\u2002\u2003\u2009\u200a\u200b\u3000")
Rectangle = tuple[float, float, float, float]


@dataclass
class Line:
    """A line of text, or the piece of it that lies in one column.

    - words: the text and the box of each
    - size: the height of its font; upright: whether it goes from left to right
    - number: which line of the page it is, in the order of the file
    - right: where the lines of its column usually end
    - hyphen: whether it ends with a hyphen that pdfium takes for one of a split word
    """

    words: list[tuple[str, Rectangle]] = field(default_factory=list)
    size: float = 0.0
    upright: bool = True
    hyphen: bool = False
    number: int = 0
    right: float = 0.0
    x0: float = math.inf
    y0: float = math.inf
    x1: float = -math.inf
    y1: float = -math.inf

    def include(self, box: Rectangle) -> None:
        """Grow to hold a box."""
        self.x0, self.y0 = min(self.x0, box[0]), min(self.y0, box[1])
        self.x1, self.y1 = max(self.x1, box[2]), max(self.y1, box[3])

    @property
    def text(self) -> str:
        """The words with spaces between them."""
        return " ".join(word for word, _ in self.words)


def page_lines(page: pdfium.PdfPage) -> tuple[list[Line], Frame]:
    """All lines of a page, and the frame of their boxes."""
    text_page = page.get_textpage()
    try:
        characters = _characters(text_page)
        frame = Frame(page, _direction(text_page.raw, characters))
        if not characters.strip("\0\r\n "):
            return [], frame
        return _gather(text_page.raw, characters, frame), frame
    finally:
        text_page.close()


def _direction(handle: Any, characters: str) -> int:
    """How many quarters most of the text is turned, counter-clockwise: a sample of the characters tells."""
    places = [i for i, character in enumerate(characters) if character not in SPACES]
    sample = places[:: max(1, len(places) // 20)]
    quarters = Counter(round(raw.FPDFText_GetCharAngle(handle, i) / (math.pi / 2)) % 4 for i in sample)
    return quarters.most_common(1)[0][0] if quarters else 0


def _gather(handle: Any, characters: str, frame: Frame) -> list[Line]:
    """The words of a page, put into lines."""
    lines: list[Line] = []
    line: Line | None = None
    boxes = turned(_boxes(handle, characters), frame.quarters)
    for first, past, ended, box in _words(handle, characters, boxes, frame.quarters):
        text = _clean(characters[first:past])
        if not text:
            continue
        if line is None or ended or not _same_line(line, box):
            line = _new_line(handle, first, box, frame.quarters)
            line.number = len(lines)
            lines.append(line)
        line.words.append((text, box))
        line.include(box)
        if characters[past - 1] in HYPHENS:
            line.hyphen, line = True, None
    return lines


def _boxes(handle: Any, characters: str) -> NDArray[np.float64]:
    """The box of each character, (N, 4) as left, bottom, right, top; nan for white space."""
    values = [ctypes.c_double() for _ in range(4)]
    left, right, bottom, top = values
    pointers = [ctypes.byref(value) for value in values]
    get_box, none = raw.FPDFText_GetCharBox, (math.nan,) * 4
    found = [
        (left.value, bottom.value, right.value, top.value)
        if character not in SPACES and get_box(handle, i, *pointers)
        else none
        for i, character in enumerate(characters)
    ]
    return np.array(found, np.float64).reshape(-1, 4)


def _words(
    handle: Any, characters: str, boxes: NDArray[np.float64], quarters: int
) -> Iterator[tuple[int, int, bool, Rectangle]]:
    """Each word: its characters [first, past), whether a line ended before it, its box.

    A word ends at white space, after a hyphen at a line end, and where the next character is somewhere else.
    """
    inside = ~np.isnan(boxes[:, 0])
    begins = inside.copy()
    begins[1:] &= ~inside[:-1] | _jumps(handle, boxes, inside, quarters)
    begins[1:] |= inside[1:] & np.array([character in HYPHENS for character in characters[:-1]], bool)
    firsts = np.flatnonzero(begins)
    if not len(firsts):
        return
    ends = np.flatnonzero(inside & ~np.append(inside[1:] & ~begins[1:], False)) + 1
    filled = np.where(inside[:, None], boxes, [np.inf, np.inf, -np.inf, -np.inf])
    low = np.minimum.reduceat(filled[:, :2], firsts)
    high = np.maximum.reduceat(np.where(inside[:, None], boxes, -np.inf)[:, 2:], firsts)
    before = 0
    for first, past, box in zip(firsts.tolist(), ends.tolist(), np.hstack([low, high]).tolist()):
        between = characters[before:first]
        yield first, past, "\n" in between or "\r" in between, tuple(box)
        before = past


def _jumps(handle: Any, boxes: NDArray[np.float64], inside: NDArray[np.bool_], quarters: int) -> NDArray[np.bool_]:
    """Whether each character but the first, (N - 1,), is not beside the one before it."""
    a, b = boxes[:-1], boxes[1:]
    with np.errstate(invalid="ignore"):
        high = np.maximum(a[:, 3] - a[:, 1], b[:, 3] - b[:, 1])
        gap = b[:, 0] - a[:, 2]
        overlap = np.minimum(a[:, 3], b[:, 3]) - np.maximum(a[:, 1], b[:, 1])
        jumps = (overlap < -0.3 * high) | (gap > 2 * high) | (gap < -3 * high)
    jumps &= inside[:-1] & inside[1:]
    for i in np.flatnonzero(jumps).tolist():  # not where text goes upwards
        if _is_turned(handle, i, quarters) and _is_turned(handle, i + 1, quarters):
            jumps[i] = min(a[i, 2], b[i, 2]) <= max(a[i, 0], b[i, 0])
    return jumps


def _is_turned(handle: Any, i: int, quarters: int) -> bool:
    """Whether a character does not stand as most of the page do."""
    return math.cos(raw.FPDFText_GetCharAngle(handle, i) - quarters * math.pi / 2) < 0.5


def _new_line(handle: Any, first: int, box: Rectangle, quarters: int) -> Line:
    loose = raw.FS_RECTF()
    raw.FPDFText_GetLooseCharBox(handle, first, ctypes.byref(loose))
    line = Line(upright=not _is_turned(handle, first, quarters))
    wide, high = abs(loose.right - loose.left), abs(loose.top - loose.bottom)
    font = high if line.upright == (quarters % 2 == 0) else wide
    own = box[3] - box[1] if line.upright else box[2] - box[0]
    line.size = max(font if font < 5 * own + 20 else own, own, 0.1)
    return line


def _same_line(line: Line, box: Rectangle) -> bool:
    """Whether a word goes on with a line: it stands at the same height, and not far to the right of its last word."""
    last = line.words[-1][1]
    if line.upright:
        overlap = min(box[3], line.y1) - max(box[1], line.y0)
        small = min(box[3] - box[1], line.y1 - line.y0)
        gap = box[0] - last[2]
    else:
        overlap = min(box[2], line.x1) - max(box[0], line.x0)
        small = min(box[2] - box[0], line.x1 - line.x0)
        gap = max(box[1] - last[3], last[1] - box[3])
    if overlap < -0.3 * line.size or (overlap < 0.2 * small and small > 0.25 * line.size):
        return False
    return gap <= GAP * line.size and (not line.upright or gap > -3 * line.size)


def _clean(word: str) -> str:
    """A word without control characters, its ligatures as letters."""
    if word.isascii() and word.isprintable():
        return word
    if word[-1] in HYPHENS:
        word = word[:-1] + "-"
    if any("\ud800" <= character <= "\udfff" for character in word):
        word = word.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return "".join(character for character in word.translate(LIGATURES) if character >= " ").strip()


def _characters(text_page: pdfium.PdfTextPage) -> str:
    """The characters of a page by their numbers in pdfium. Its text at once is faster, but may lack some of them."""
    count = text_page.count_chars()
    text: str = text_page.get_text_range() if count > 0 else ""
    if len(text) == count:
        return text
    codes = (raw.FPDFText_GetUnicode(text_page.raw, i) for i in range(count))
    return "".join(chr(code) if code <= 0x10FFFF else "\ufffd" for code in codes)


def turned(boxes: NDArray[np.float64], quarters: int) -> NDArray[np.float64]:
    """Boxes (N, 4) after so many quarters of a turn, clockwise around the origin."""
    for _ in range(quarters % 4):
        left, bottom, right, top = boxes.T
        boxes = np.stack([bottom, -right, top, -left], axis=1)
    return boxes


class Frame:
    """The frame of the boxes of a page: `quarters` clockwise from that of the PDF."""

    def __init__(self, page: pdfium.PdfPage, quarters: int) -> None:
        media = page.get_mediabox() or page.get_bbox()
        crop = page.get_cropbox() or media
        corner = [max(media[0], crop[0]), max(media[1], crop[1]), min(media[2], crop[2]), min(media[3], crop[3])]
        if corner[2] <= corner[0] or corner[3] <= corner[1]:
            corner = list(media)
        self.quarters = quarters
        self.rotation = page.get_rotation() // 90
        self.corner = turned(np.array([corner], np.float64), self.rotation)[0]

    def shown(self, boxes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Boxes (N, 4) on the page as it is shown."""
        corner = np.tile(self.corner[:2], 2)
        return np.asarray(turned(boxes, self.rotation - self.quarters) - corner, np.float64)

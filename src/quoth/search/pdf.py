"""PDF: paragraphs in reading order, each word with its page and its box.

pdfium (pypdfium2) finds the characters. It is not thread safe: a lock lets one thread in at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as raw

from quoth.search.document import Boxes, Document, Heading
from quoth.search.failure import NoTextError
from quoth.search.joining import drops_hyphen, is_item, splits_word, words_of
from quoth.search.pdf_order import Row, in_order, line_pitch, without_running_heads
from quoth.search.pdf_page import Frame, Line, Rectangle, page_lines

PAGES = 20_000
SECONDS = 50.0  # for all pages of a file: less than a file has, so that the lock is given back
LOCK = threading.Lock()
ENDS = tuple(".!?:;。！？”\"'’)")
_WHY = {
    raw.FPDF_ERR_PASSWORD: "is encrypted; remove its password first",
    raw.FPDF_ERR_SECURITY: "is encrypted in a way that pdfium does not know",
}


def read_pdf(data: bytes, name: str) -> Document:
    """A PDF file."""
    if not LOCK.acquire(timeout=SECONDS):
        raise NoTextError(f"{name}: another PDF is still being read; try again without that one")
    try:
        pages, frames, labels, outline = _read_pages(data, name)
    finally:
        LOCK.release()
    made = _Text(pages, frames)
    if not made.text.strip():
        raise NoTextError(f"{name}: its {len(pages):,} pages hold no text; it seems to be scanned and needs OCR first")
    headings = made.headings(outline)
    title = headings[0].title if headings else ""
    return Document(name, made.text, title, headings, boxes=made.boxes(), labels=labels)


Bookmark = tuple[int, int, float | None, str]  # level, page, height on it, title


def _read_pages(data: bytes, name: str) -> tuple[list[list[Line]], list[Frame | None], tuple[str, ...], list[Bookmark]]:
    """The lines of all pages and their frames, the labels of the pages, and the bookmarks."""
    try:
        pdf = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        why = _WHY.get(getattr(error, "err_code", None), "is damaged, or not a PDF file")
        raise NoTextError(f"{name}: {why}") from None
    try:
        if len(pdf) > PAGES:
            raise NoTextError(f"{name}: has {len(pdf):,} pages; Quoth reads at most {PAGES:,}")
        pages, frames, labels = [], [], []
        end = time.monotonic() + SECONDS
        for number in range(len(pdf)):
            lines, frame = _page(pdf, number)
            pages.append(lines)
            frames.append(frame)
            labels.append(pdf.get_page_label(number) or "")
            if time.monotonic() > end:
                raise NoTextError(f"{name}: takes longer than {SECONDS:.0f} seconds to read")
        plain = all(label in ("", str(number)) for number, label in enumerate(labels, 1))
        return pages, frames, () if plain else tuple(labels), _outline(pdf)
    finally:
        pdf.close()


def _page(pdf: pdfium.PdfDocument, number: int) -> tuple[list[Line], Frame | None]:
    """The lines of a page and their frame; none if it is damaged."""
    try:
        page = pdf[number]
    except pdfium.PdfiumError:
        return [], None
    try:
        return page_lines(page)
    except pdfium.PdfiumError:
        return [], None
    finally:
        page.close()


def _outline(pdf: pdfium.PdfDocument) -> list[Bookmark]:
    found: list[Bookmark] = []
    try:
        for mark in pdf.get_toc(max_depth=8):
            target: Any = mark.get_dest()
            page = target.get_index() if target else None
            title = " ".join((mark.get_title() or "").split())
            if page is not None and title:
                mode, view = target.get_view()
                height = view[1] if mode == raw.PDFDEST_VIEW_XYZ and len(view) > 1 else None
                found.append((mark.level + 1, page, height, title))
            if len(found) >= 10_000:
                break
    except pdfium.PdfiumError:
        return []
    return found


class _Text:
    """The text of all pages: words with spaces, lines joined to paragraphs, paragraphs apart."""

    def __init__(self, pages: Sequence[list[Line]], frames: Sequence[Frame | None]) -> None:
        self.pieces: list[str] = []
        self.length = 0
        self.at: list[int] = []
        self.page: list[int] = []
        self.box: list[Rectangle] = []
        self.page_at: list[int] = []
        self.word_pages: list[int] = []  # as `page`, with the page also of what was put in
        self.words = words_of("\n".join(line.text for lines in pages for line in lines))
        before: Row | None = None
        pitch = 0.0
        for number, lines in enumerate(without_running_heads(pages), 1):
            upright, turned = [line for line in lines if line.upright], [line for line in lines if not line.upright]
            rows = in_order(upright)
            first = True
            for row, pitch in _with_pitch(rows):
                join = before is not None and (_goes_on(before, row) if first else _same_paragraph(before, row, pitch))
                if first:
                    self.page_at.append(self.length)
                self._add_row(before, row, number, join)
                before, first = row, False
            for line in turned:
                self._add_row([line], [line], number, False)
                before = [line]
            if first:
                self.page_at.append(self.length)
        self.text = "".join(self.pieces)
        self.shown = np.array(self.box, np.float64).reshape(-1, 4)
        on = np.array(self.page)
        for number, frame in enumerate(frames, 1):
            if frame is not None:
                first, past = np.searchsorted(self.word_pages, [number, number + 1]).tolist()
                self.shown[first:past] = frame.shown(self.shown[first:past])
        self.shown[on == 0] = 0

    def boxes(self) -> Boxes:
        """Where all words stand."""
        return Boxes(np.array(self.at, np.int32), np.array(self.page, np.int32), self.shown.astype(np.float32))

    def headings(self, outline: Sequence[Bookmark]) -> tuple[Heading, ...]:
        """The bookmarks by their place in the text: the word nearest below the height that they lead to."""
        found = []
        pages, boxes = np.array(self.page), self.shown
        for level, page, height, title in outline:
            if not 0 <= page < len(self.page_at):
                continue
            at = self.page_at[page]
            here = np.flatnonzero(pages == page + 1)
            if height is not None and len(here):
                below = here[boxes[here, 3] <= height + 6]
                at = self.at[int(below[0])] if len(below) else at
            found.append(Heading(at, level, title))
        return tuple(sorted(found, key=lambda one: one.at))

    def _add_row(self, before: Row | None, row: Row, page: int, join: bool) -> None:
        if join and before:
            self._join(before[-1], row[0])
        elif self.length:
            self._put_in("\n" if before and _same_table(before, row) else "\n\n")
        for i, line in enumerate(row):
            if i:
                self._put_in(" | " if line.x0 - row[i - 1].x1 > line.size else " ")
            for j, (word, box) in enumerate(line.words):
                if j:
                    self._put_in(" ")
                self._put(word, page, box)

    def _join(self, before: Line, line: Line) -> None:
        """The end of a line within a paragraph: a space, or nothing where a hyphen split a word."""
        halves = splits_word(before.words[-1][0], line.words[0][0])
        if halves is None:
            self._put_in("" if before.hyphen else " ")
        elif drops_hyphen(*halves, self.words, by_default=True):
            self.pieces[-1] = self.pieces[-1][:-1]
            self.length -= 1

    def _put(self, word: str, page: int, box: Rectangle) -> None:
        self.at.append(self.length)
        self.page.append(page)
        self.word_pages.append(page or (self.word_pages[-1] if self.word_pages else 1))
        self.box.append(box)
        self.pieces.append(word)
        self.length += len(word)

    def _put_in(self, space: str) -> None:
        if space:
            self._put(space, 0, (0.0, 0.0, 0.0, 0.0))


def _with_pitch(rows: Sequence[Row]) -> Iterator[tuple[Row, float]]:
    pitch = line_pitch(rows)
    for row in rows:
        yield row, pitch


def _same_paragraph(before: Row, row: Row, pitch: float) -> bool:
    """Whether a row goes on with the paragraph of the row before it."""
    if len(before) > 1 or len(row) > 1:
        return False
    a, b = before[0], row[0]
    down = a.y0 - b.y0
    if down <= 0 or a.x1 < b.x0 or b.x1 < a.x0:  # the next column
        return _goes_on(before, row)
    if down > 1.35 * max(pitch, 1.0) and down > 1.35 * a.size:
        return False
    if not 0.87 < a.size / b.size < 1.15 or is_item(b.text + " ", a.text):
        return False
    em = b.size
    if b.x0 > a.x0 + 0.8 * em and not is_item(a.text + " "):
        return a.hyphen
    left, right = min(a.x0, b.x0), max(a.right, b.x1)
    if b.text[:1].islower() and not a.text.endswith(ENDS) and a.x1 - left > 0.6 * (right - left):
        return True
    first = b.words[0][1]
    return a.x1 + 0.25 * em + first[2] - first[0] > right - em  # the word would not have fitted


def _goes_on(before: Row, row: Row) -> bool:
    """Whether a sentence goes on at the top of the next column or page."""
    if len(before) > 1 or len(row) > 1:
        return False
    a, b = before[0].text, row[0].text
    if not 0.87 < before[0].size / row[0].size < 1.15:
        return False
    return before[0].hyphen or (b[:1].islower() and not a.endswith((".", "!", "?", ":")) and not is_item(b + " "))


def _same_table(before: Row, row: Row) -> bool:
    """Whether two rows belong to one table or list: they follow each other closely."""
    a, b = before[0], row[0]
    close = 0 < a.y0 - b.y0 < 1.8 * max(a.size, b.size)
    return close and (len(before) > 1 or len(row) > 1 or is_item(b.text + " ") or 0.87 < a.size / b.size < 1.15)

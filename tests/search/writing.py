"""Documents with known sentences at known places, written by other programs than those that read them."""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import dataclass, field

from hypothesis import strategies as st

TEXT = """the old harbour master kept his ledger dry in every winter storm while boats came home with silver fish and
tired crews who sang about distant lighthouse keepers waiting for letters from northern towns"""
WORDS = TEXT.split()
NAMES = ("Ada", "Zürich", "Norway", "Kendall", "Smith")


@st.composite
def sentences(draw, least=1, most=6):
    """Sentences that occur once each, since each has a number of its own.

    It is no word of its own: a line that began with "136." would be taken for an item of a list, as it should.
    """
    found = []
    for number in range(draw(st.integers(least, most))):
        words = [draw(st.sampled_from(NAMES)), *draw(st.lists(st.sampled_from(WORDS), min_size=4, max_size=30))]
        found.append(f"{' '.join(words)} number{number + 100}.")
    return found


def wrap(words, width):
    """Words in lines of at most `width` characters, as an editor wraps them."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return lines


@dataclass
class PdfPages:
    """Pages of text at known places. Coordinates of fpdf2 are points from the upper left corner.

    black: the number of a sentence; all others are red. A word that ends with a full stop ends one
    """

    title: str = ""
    numbers: bool = False
    columns: int = 1
    size: float = 10.0
    black: int | None = None
    ended: int = 0  # sentences so far
    lines: list[list[tuple[float, float, str]]] = field(default_factory=list)

    def write(self, paragraphs, hyphens=False):
        """A PDF file with these paragraphs, in lines that flow over columns and pages."""
        from fpdf import FPDF

        pdf = FPDF(unit="pt", format=(612, 792))
        pdf.set_auto_page_break(False)
        pdf.set_font("Helvetica", size=self.size)
        width = (612 - 100 - 24 * (self.columns - 1)) / self.columns
        column, y = self.columns, 0.0
        for paragraph in paragraphs:
            for line in _fitted(pdf, paragraph, width, hyphens):
                if column == self.columns or y > 700:
                    column += 1
                    if column >= self.columns:
                        self._page(pdf)
                        column = 0
                    y = 80.0
                self._line(pdf, 50 + column * (width + 24), y, line)
                y += 1.2 * self.size
            y += 0.8 * self.size
        return bytes(pdf.output())

    def _line(self, pdf, x, y, line):
        """A line, the part of each sentence in its colour."""
        if self.black is None:
            pdf.text(x, y, line)
            return
        for part in re.findall(r"[^.]+(?:\. ?)?", line):
            pdf.set_text_color(0 if self.ended == self.black else 255, 0, 0)
            pdf.text(x, y, part)
            x += pdf.get_string_width(part)
            self.ended += part.rstrip().endswith(".")

    def _page(self, pdf):
        pdf.add_page()
        if self.title:
            pdf.text(50, 40, f"{self.title} {pdf.page}" if pdf.page % 2 else self.title)
        if self.numbers:
            pdf.text(300, 760, str(pdf.page))


def _fitted(pdf, paragraph, width, hyphens):
    """Lines that fit; with hyphens, long words are split after their fourth letter where that fills a line."""
    lines, line = [], ""
    for word in paragraph.split():
        longer = f"{line} {word}" if line else word
        if pdf.get_string_width(longer) <= width:
            line = longer
            continue
        fits = pdf.get_string_width(f"{line} {word[:4]}-") <= width
        if hyphens and fits and len(word) > 7 and word.isalpha() and word.islower():
            lines.append(f"{line} {word[:4]}-")
            line = word[4:]
            continue
        lines.append(line)
        line = word
    return [*lines, line]


def epub(pages, title="A book"):
    """A book of XHTML pages by their names."""
    file = io.BytesIO()
    items = "".join(
        f'<item id="p{i}" href="text/{name}" media-type="application/xhtml+xml"/>' for i, name in enumerate(pages)
    )
    order = "".join(f'<itemref idref="p{i}"/>' for i in range(len(pages)))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        archive.writestr(
            "META-INF/container.xml",
            '<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
        )
        archive.writestr(
            "OEBPS/book.opf",
            '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" '
            f'xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>{title}</dc:title></metadata>'
            f"<manifest>{items}</manifest><spine>{order}</spine></package>",
        )
        for name, content in pages.items():
            archive.writestr(f"OEBPS/text/{name}", content)
    return file.getvalue()

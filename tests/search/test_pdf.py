"""PDF: the text in reading order, joined, without running heads; each word on its page and in its box."""

import io

import numpy as np
import pypdfium2 as pdfium
import pytest
from fpdf import FPDF
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.search import from_bytes, read_document, to_bytes
from search.writing import PdfPages, sentences

few = settings(max_examples=15, deadline=None)


def check_places(data, document, wanted):
    """Each sentence is there once, and its boxes hold its words: pdfium's own text in them, and ink on the page."""
    pdf = pdfium.PdfDocument(data)
    again = from_bytes(to_bytes(document))
    for sentence in wanted:
        assert document.text.count(sentence) == 1, (sentence, document.text)
        start = document.text.index(sentence)
        place = document.place(start, start + len(sentence))
        assert place == again.place(start, start + len(sentence))
        first, past = document.sentence(start + 2, start + 5)
        assert document.text[first:past] == sentence
        assert place.boxes
        page = pdf[place.page - 1]
        text = page.get_textpage()
        inside = " ".join(text.get_text_bounded(b.x0 - 0.5, b.y0 - 0.5, b.x1 + 0.5, b.y1 + 0.5) for b in place.boxes)
        letters = "".join(inside.replace("\ufffe", "").replace("\x02", "").replace("-", "").split())
        assert sentence.replace(" ", "").startswith(letters), (sentence, inside)  # the rest may be on the next page
        assert len(letters) > 3
        bitmap = page.render(scale=2).to_numpy()
        height = bitmap.shape[0]
        for box in place.boxes:
            crop = bitmap[
                int(height - 2 * box.y1) : int(height - 2 * box.y0) + 1, int(2 * box.x0) : int(2 * box.x1) + 1
            ]
            assert (crop < 128).any(), "no ink in the box"


@few
@given(sentences(3, 40), st.booleans(), st.integers(1, 2), st.booleans())
def test_columns_hyphens_and_running_heads(found, headed, columns, hyphens):
    pages = PdfPages("A history of harbours" if headed else "", numbers=headed, columns=columns)
    paragraphs = [" ".join(found[i : i + 5]) for i in range(0, len(found), 5)]
    filler = [
        f"Filler paragraph {i} of some words that nobody asked for, as long as it needs." for i in range(60 * columns)
    ]
    data = pages.write([*paragraphs, *filler], hyphens)
    document = read_document(data, "a.pdf")
    if headed:
        assert "A history" not in document.text
    check_places(data, document, found)


def test_two_columns_below_a_title_and_footnotes():
    pdf = FPDF(unit="pt", format=(612, 792))
    pdf.add_page()
    pdf.set_font("Helvetica", size=18)
    pdf.text(120, 60, "A title over both of the columns of this page")
    pdf.set_font("Helvetica", size=9)
    for i in range(30):  # the lines of both columns take turns in the file
        pdf.text(50, 100 + 11 * i, f"left column line number {i} goes on and on to the end")
        pdf.text(320, 100 + 11 * i, f"right column line number {i} goes on and on to the end")
    text = read_document(bytes(pdf.output()), "a.pdf").text
    parts = ("A title", "left column line number 0", "left column line number 29", "right column line number 0")
    order = [text.index(part) for part in (*parts, "right column line number 29")]
    assert order == sorted(order)
    assert "to the end left column line number 7 goes on" in text


def test_rows_of_a_table():
    pdf = FPDF(unit="pt", format=(612, 792))
    pdf.add_page()
    pdf.set_font("Helvetica", size=10)
    for i, row in enumerate([("Name", "Price", "Amount"), ("Apple", "3", "10"), ("Pear", "4", "20")]):
        for j, cell in enumerate(row):
            pdf.text(50 + 150 * j, 100 + 14 * i, cell)
    text = read_document(bytes(pdf.output()), "a.pdf").text
    assert text == "Name | Price | Amount\nApple | 3 | 10\nPear | 4 | 20"


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_turned_and_cropped_pages(rotation):
    pdf = FPDF(unit="pt", format=(612, 792))
    pdf.add_page()
    pdf.set_font("Helvetica", size=12)
    pdf.text(100, 200, "The heron stands here.")
    with_page = pdfium.PdfDocument(bytes(pdf.output()))
    with_page[0].set_cropbox(50, 100, 500, 700)
    with_page[0].set_rotation(rotation)
    file = io.BytesIO()
    with_page.save(file)
    document = read_document(file.getvalue(), "a.pdf")
    page = pdfium.PdfDocument(file.getvalue())[0]
    bitmap = page.render(scale=2).to_numpy()
    assert document.text == "The heron stands here."
    boxes = document.place(0, len(document.text)).boxes  # one, or one a word where the text is shown sideways
    low, right_end = np.min([[b.x0, b.y0] for b in boxes], axis=0), np.max([[b.x1, b.y1] for b in boxes], axis=0)
    dark = np.argwhere((bitmap < 128).any(axis=2)) / 2
    high = bitmap.shape[0] / 2
    top, left = dark.min(axis=0)
    bottom, right = dark.max(axis=0)
    assert np.allclose([*low, *right_end], [left, high - bottom, right, high - top], atol=2.5)


def test_page_labels_and_bookmarks():
    pdf = FPDF(unit="pt", format=(612, 792))
    pdf.set_font("Helvetica", size=12)
    for i in range(3):
        pdf.add_page()
        pdf.start_section(f"Chapter {i}")
        pdf.text(50, 100, f"Sentence of chapter {i}.")
        pdf.start_section("Part", level=1)
        pdf.text(50, 300, f"Another sentence of {i}.")
    document = read_document(bytes(pdf.output()), "a.pdf")
    start = document.text.index("Sentence of chapter 2")
    place = document.place(start, start + 8)
    assert (place.page, place.headings[0]) == (3, "Chapter 2")

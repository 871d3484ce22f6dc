"""PDF: the text in reading order, joined, without running heads; each word on its page and in its box."""

import io

import numpy as np
import pypdfium2 as pdfium
import pytest
from fpdf import FPDF
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.search import read_document
from search.places import places
from search.writing import PdfPages, sentences

few = settings(max_examples=15, deadline=None)
SCALE = 2  # pixels of a point


def check_places(data, document, wanted):
    """Each sentence is there once, and its boxes hold its words: pdfium's own text in them."""
    pdf = pdfium.PdfDocument(data)
    for sentence, place in places(document, wanted):
        assert place.boxes
        text = pdf[place.page - 1].get_textpage()
        inside = " ".join(text.get_text_bounded(b.x0 - 0.5, b.y0 - 0.5, b.x1 + 0.5, b.y1 + 0.5) for b in place.boxes)
        letters = "".join(inside.replace("\ufffe", "").replace("\x02", "").replace("-", "").split())
        assert sentence.replace(" ", "").startswith(letters), (sentence, inside)  # the rest may be on the next page
        assert len(letters) > 3


@few
@given(sentences(3, 20), st.integers(1, 2), st.booleans(), st.data())
def test_the_ink_of_an_answer_is_in_its_boxes_and_no_other(found, columns, hyphens, data):
    """One sentence is black and all else is red: on the rendered page no black is outside, and no red inside."""
    asked = data.draw(st.integers(0, len(found) - 1))
    paragraphs = [" ".join(found[i : i + 5]) for i in range(0, len(found), 5)]
    written = PdfPages(columns=columns, black=asked).write(paragraphs, hyphens)
    document = read_document(written, "a.pdf")
    ((_, place),) = places(document, found[asked : asked + 1])
    bitmap = pdfium.PdfDocument(written)[place.page - 1].render(scale=SCALE, rev_byteorder=True).to_numpy()
    red, green = bitmap[:, :, 0] < 128, bitmap[:, :, 1] < 128
    black, other = red, green & ~red
    assert black.sum() > 100
    assert not (black & ~_inside(place.boxes, bitmap.shape, 1.0)).any(), "ink of the answer outside its boxes"
    assert not (other & _inside(place.boxes, bitmap.shape, -1.0)).any(), "other ink inside them"


def _inside(boxes, shape, more):
    """Which pixels lie in one of the boxes, all of them made larger by so many points on each side."""
    found = np.zeros(shape[:2], bool)
    for box in boxes:
        high, low = shape[0] - SCALE * (box.y1 + more), shape[0] - SCALE * (box.y0 - more)
        left, right = SCALE * (box.x0 - more), SCALE * (box.x1 + more)
        found[max(0, round(high)) : round(low) + 1, max(0, round(left)) : round(right) + 1] = True
    return found


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


def test_bookmarks_are_headings():
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


def test_page_labels():
    """Two pages of a preface in Roman numbers, then A-1, A-2 and so on: PDF 32000-1:2008, 12.4.2."""
    pdf = FPDF(unit="pt", format=(612, 792))
    pdf.set_font("Helvetica", size=12)
    for i in range(5):
        pdf.add_page(label_style="r" if i < 2 else "D", label_prefix="" if i < 2 else "A-")
        pdf.text(50, 100, f"The heron of page {i} stands here.")
    document = read_document(bytes(pdf.output()), "a.pdf")
    found = []
    for i in range(5):
        start = document.text.index(f"The heron of page {i}")
        place = document.place(start, start + 9)
        found.append((place.page, place.label))
    assert found == [(1, "i"), (2, "ii"), (3, "A-1"), (4, "A-2"), (5, "A-3")]

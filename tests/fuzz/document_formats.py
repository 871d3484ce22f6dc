"""Targets: documents of all formats, and stored documents."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from fpdf import FPDF
from hypothesis import strategies as st

from fuzz.case import Case, Target
from fuzz.hostile import Draw, damage, encode, texts
from fuzz.material import CONTEXT
from quoth.errors import QuothError
from quoth.search import Document, from_bytes, read_document, read_documents, to_bytes

MARKDOWN = (
    "# Title\n\n", "Under\n---\n", "- item\n", "1. one\n", "> quote\n", "```\ncode\n", "| a | b |\n|---|---|\n",
    "**bold** ", "[link](x) ", "`code` ", "<b>", "&amp;", "\\*", "![i](u)", "[x]: y\n", "    indented\n", "---\n",
    "\t",
)  # fmt: skip
RST = (
    "Title\n=====\n\n", "====\nOver\n====\n", "* item\n", ".. note:: a\n   b\n\n", ".. code:: x\n\n   y\n",
    ".. _t:\n", "::\n\n  lit\n", "``code`` ", ":ref:`a <b>` ", "`a <b>`_ ", "**b** ", "+--+\n|a |\n+--+\n",
    ":field: x\n", ".. |s| image:: x\n", "   indented\n",
)  # fmt: skip
HTML = (
    "<!DOCTYPE html>", "<html>", "<head><title>T</title>", "<p>", "</p>", "<h1>H", "</h1>", "<table><tr><td>",
    "</table>", "<pre>", "</pre>", "<script>x<y</script>", "<style>", "<nav>", "<div hidden>", "</div>", "<a href='",
    "'>", "<!--", "-->", "&amp;", "&#x110000;", "&#0;", "<svg><title>", "<ul><li>", "<br/>", "<?xml version='1.0'?>",
    "<![CDATA[x]]>", "<textarea>", "<select><option>", "<template>", "<b><i></b>", "<math><mi>", "<frameset>",
    "<body", "<div>" * 3000, "<p " + "a " * 5000 + ">", "<title/>",
)  # fmt: skip
EML = (
    "Subject: =?utf-8?q?Z=C3=BCrich?=\n", "From: a@b\n", "Date: x\n", "Content-Type: text/html\n",
    "Content-Type: text/plain; charset=none\n", "Content-Type: multipart/mixed; boundary=b\n",
    "Content-Transfer-Encoding: base64\n", "Content-Transfer-Encoding: quoted-printable\n",
    "Content-Disposition: attachment; filename*=x''%ff\n", "\n", "--b\n", "--b--\n", "QSBoZXJvbi4=\n", "=C3=\n",
    "<p>A heron.\n", "Subject: \x00=?x?b?!?=\n",
)  # fmt: skip
WORD = (
    "<w:p>", "</w:p>", "<w:r>", "</w:r>", "<w:t>A heron.</w:t>", "<w:tbl><w:tr><w:tc>", "</w:tc></w:tr></w:tbl>",
    '<w:pStyle w:val="H"/>', "<w:br/>", "<w:vanish/>", '<w:outlineLvl w:val="9"/>', "<w:t>&amp;&#x9;ü</w:t>",
    "<w:del>", "<w:numPr/>", "<w:tc>", "<w:noBreakHyphen/>",
)  # fmt: skip
BODY = '<w:document xmlns:w="w"><w:body>{}</w:body></w:document>'
OPF = '<package><title>T</title><manifest>{}</manifest><spine><itemref idref="a"/></spine></package>'
ITEM = '<item id="a" href="{}" media-type="application/xhtml+xml"/>'


def _mixed(name: str, marks: tuple[str, ...]) -> Any:
    """A text of marks in any order, with some sentences."""

    @st.composite
    def one(draw: Draw) -> Case:
        pieces = draw(st.lists(st.sampled_from((*marks, CONTEXT, "word ", "\n", "\r\n", "\n\n")) | texts, max_size=12))
        return Case({name: encode(draw, "".join(pieces))})

    return one()


def _zip(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


@st.composite
def word_files(draw: Draw) -> Case:
    """A Word file with elements in any order, or damaged bytes."""
    body = BODY.format("".join(draw(st.lists(st.sampled_from(WORD), max_size=10))))
    members = {
        "word/document.xml": encode(draw, body),
        "word/styles.xml": b'<s><style styleId="H"><name val="heading 1"/></style></s>',
    }
    made = _zip(members)
    return Case({"a.docx": damage(draw, made) if draw(st.booleans()) else made})


@st.composite
def books(draw: Draw) -> Case:
    """An EPUB with one page."""
    page = draw(_mixed("p", HTML)).files["p"]
    href = draw(st.sampled_from(["p.html", "../p.html", "%00", "/etc/passwd", "p.html"]))
    members = {
        "META-INF/container.xml": b'<c><rootfile full-path="o.opf"/></c>',
        "o.opf": encode(draw, OPF.format(ITEM.format(href))),
        "p.html": page,
    }
    made = _zip(members)
    return Case({"a.epub": damage(draw, made) if draw(st.booleans()) else made})


@cache
def pdf_files() -> tuple[bytes, ...]:
    """Small PDF files: two columns, a table, an outline, compressed and not."""
    found = []
    for compress in (True, False):
        pdf = FPDF(unit="pt", format=(300, 300))
        pdf.set_compression(compress)
        pdf.set_font("Helvetica", size=8)
        for page in range(2):
            pdf.add_page()
            pdf.start_section(f"Part {page}")
            for line in range(12):
                pdf.text(10, 20 + 10 * line, "the left column of the page goes on")
                pdf.text(160, 20 + 10 * line, "the right column is hyphen-")
        found.append(bytes(pdf.output()))
    return tuple(found)


@st.composite
def damaged_pdfs(draw: Draw) -> Case:
    """PDF files with some bytes changed."""
    return Case({"a.pdf": damage(draw, draw(st.sampled_from(pdf_files())), most=6)})


@st.composite
def documents(draw: Draw) -> Case:
    """Texts, in files and folders of any names."""
    parts = draw(
        st.lists(st.sampled_from([CONTEXT, "\r\n", "\r", "\n", ". ", "!" * 50, "a" * 3000]) | texts, max_size=6)
    )
    names = draw(
        st.lists(
            st.sampled_from(["a.txt", "b/c.md", "b/.d.txt", "e.bin", "f\x1b.txt"]), min_size=1, max_size=3, unique=True
        )
    )
    return Case({name: encode(draw, "".join(parts)) for name in names})


def run_documents(folder: Path, case: Case) -> None:
    """Read them, alone and by their folder."""
    found, _ = read_documents([str(folder), *(str(folder / name) for name in case.files)])
    for document in found:
        check(document)


def check(document: Document) -> None:
    """Every character has a sentence and a place; stored and read again the document is the same."""
    for start in range(0, len(document.text), max(1, len(document.text) // 20)):
        end = min(len(document.text), start + 3)
        first, past = document.sentence(start, end)
        place = document.place(start, end)
        if not 0 <= first <= start <= end <= past <= len(document.text) or (place.line or 1) < 1:
            raise AssertionError("a sentence or a line outside the text")
        if place.start is not None and not 0 <= place.start <= (place.end or 0):
            raise AssertionError("a place outside the source")
    if from_bytes(to_bytes(document)).text != document.text:
        raise AssertionError("another document after storing")


def run_stored(folder: Path, _: Case) -> None:
    try:
        check(from_bytes((folder / "d.bin").read_bytes()))
    except QuothError as error:  # it knows of no file; the index that will read it does
        raise QuothError(f"d.bin: {error}") from None


@st.composite
def stored(draw: Draw) -> Case:
    """Documents as bytes, damaged."""
    return Case({"d.bin": damage(draw, to_bytes(read_document(b"# Title\n\nA *heron*.", "a.md")), most=4)})


TARGETS = (
    Target("documents", "format", documents(), run_documents),
    Target("markdown", "format", _mixed("a.md", MARKDOWN), run_documents),
    Target("rst", "format", _mixed("a.rst", RST), run_documents),
    Target("html", "format", _mixed("a.html", HTML), run_documents),
    Target("eml", "format", _mixed("a.eml", EML), run_documents),
    Target("docx", "format", word_files(), run_documents),
    Target("epub", "format", books(), run_documents),
    Target("pdf", "format", damaged_pdfs(), run_documents),
    Target("stored-document", "format", stored(), run_stored),
)

"""Files that cannot be read, or should not be: one line each, and the rest of the folder is read."""

import io
import zipfile

import pypdfium2 as pdfium
import pytest
from fpdf import FPDF

from quoth.errors import QuothError
from quoth.search import NoTextError, archive, formats, pdf, read_document, read_documents
from search.writing import epub


def pdf_file(text="A heron.", **encryption):
    made = FPDF()
    made.add_page()
    made.set_font("Helvetica", size=12)
    if text:
        made.text(20, 20, text)
    if encryption:
        made.set_encryption(**encryption)
    return bytes(made.output())


def zip_file(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


WORD = '<w:document xmlns:w="w"><w:body><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:body></w:document>'
LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>' + WORD.format("&b;")
PLAIN = zip_file({"word/document.xml": WORD.format("x")})
ENCRYPTED = PLAIN.replace(b"PK\x03\x04\x14\0\0", b"PK\x03\x04\x14\0\1").replace(
    b"PK\x01\x02\x14\x03\x14\0\0", b"PK\x01\x02\x14\x03\x14\0\1"
)
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600

BAD = [
    ("a.pdf", b"", "is not a PDF file, or is damaged"),
    ("a.pdf", b"%PDF-1.7\nno more", "is damaged, or not a PDF file"),
    ("a.pdf", pdf_file()[:300], "is damaged, or not a PDF file"),
    ("a.pdf", pdf_file(""), "its 1 pages hold no text; it seems to be scanned and needs OCR first"),
    ("a.pdf", pdf_file(owner_password="o", user_password="u"), "is encrypted; remove its password first"),
    ("a.docx", b"PK\x03\x04 nothing", "is an archive (zip); unpack it first"),
    ("a.docx", b"plain text", "is not a DOCX file, or is damaged"),
    ("a.docx", OLE, "is an old or encrypted Office file; save it as .docx without a password"),
    ("a.docx", PLAIN[:-30], "is a damaged archive"),
    ("a.docx", zip_file({"word/document.xml": "<a><b></a>"}), "word/document.xml: is damaged (mismatched tag"),
    ("a.docx", zip_file({"word/document.xml": LAUGHS}), "declares a document type, which Quoth does not read"),
    ("a.docx", zip_file({"word/document.xml": WORD.format(" " * 5_000_000)}), "it is taken for a zip bomb"),
    ("a.docx", ENCRYPTED, "is encrypted; remove its password first"),
    ("a.epub", zip_file({"META-INF/container.xml": "<a/>"}), "names no package"),
    ("a.epub", epub({}), "has no pages to read"),
    ("a.eml", b"no header at all", "is not an e-mail message"),
    ("a.html", b"<html><script>x</script>", "is empty"),
    ("a.txt", zip_file({"inner.zip": zip_file({"a.txt": "x"})}), "is an archive (zip); unpack it first"),
    ("a.txt", b"\x1f\x8b\x08", "is compressed (gzip)"),
    ("a.txt", b"\0", "is not a text file (byte 0 is zero)"),
]


@pytest.mark.parametrize(("name", "content", "why"), BAD)
def test_is_told_in_one_line_and_the_rest_is_read(tmp_path, name, content, why):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(QuothError) as raised:
        read_documents([str(tmp_path / name)])
    assert str(raised.value).startswith(str(tmp_path / name))
    assert why in str(raised.value)
    (tmp_path / "good.md").write_text("A heron.")
    (document,), (note,) = read_documents([str(tmp_path)])
    assert document.text == "A heron."
    assert why in note
    assert "\n" not in note


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", pdf_file("A heron.")),
        ("a.html", pdf_file("A heron.")),
        ("a.pdf", b"<!DOCTYPE html><p>A heron."),
        ("a.txt", b"<html><p>A heron."),
        ("a.pdf", zip_file({"word/document.xml": WORD.format("A heron.")})),
        ("a.docx", epub({"a.xhtml": "<p>A heron.</p>"})),
        ("a", pdf_file("A heron.")),
    ],
)
def test_a_wrong_extension(name, content):
    assert read_document(content, name).text == "A heron."


def test_attributes_and_levels_by_the_million_are_read():
    attributes = " ".join(f"data-{i}='x'" for i in range(200_000))
    assert read_document(f"<p {attributes}>A heron.".encode(), "a.html").text == "A heron."
    assert read_document(("<div>" * 100_000 + "A heron.").encode(), "a.html").text == "A heron."
    assert read_document(("<p class='" + "x" * 10_000_000 + "'>A heron.").encode(), "a.html").text == "A heron."


def test_limits(monkeypatch):
    monkeypatch.setattr(archive, "MEMBER", 100)
    with pytest.raises(NoTextError, match="unpacks to more than 100 bytes"):
        read_document(zip_file({"word/document.xml": WORD.format("x" * 200)}), "a.docx")
    monkeypatch.setattr(archive, "MEMBERS", 2)
    with pytest.raises(NoTextError, match="holds more than 2 files"):
        read_document(zip_file({"word/document.xml": "", "b": "", "c": ""}), "a.docx")
    monkeypatch.setattr(pdf, "PAGES", 1)
    made = pdfium.PdfDocument.new()
    made.new_page(100, 100)
    made.new_page(100, 100)
    file = io.BytesIO()
    made.save(file)
    with pytest.raises(NoTextError, match="has 2 pages; Quoth reads at most 1"):
        read_document(file.getvalue(), "a.pdf")


def test_a_file_that_takes_too_long(monkeypatch):
    import threading

    monkeypatch.setattr(formats, "_FORMATS", dict(formats._FORMATS))
    stop = threading.Event()
    formats.register_format(".slow", lambda data, name: str(stop.wait(20)))
    with pytest.raises(NoTextError, match=r"a.slow: takes longer than 0 seconds to read"):
        read_document(b"x", "a.slow", 0.05)
    stop.set()


def test_a_hook_that_fails_is_told(monkeypatch):
    monkeypatch.setattr(formats, "_FORMATS", dict(formats._FORMATS))

    def broken(data, name):
        raise NoTextError(f"{name}: has no table")

    formats.register_format(".tab", broken)
    with pytest.raises(NoTextError, match=r"a\.tab: has no table"):
        read_document(b"x", "a.tab")

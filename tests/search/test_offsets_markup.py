"""The source at the place of a text is that text: HTML, Word, EPUB, e-mail."""

import email
import html
import io
import re
import zipfile
from email.message import EmailMessage

import docx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoth.search import NoTextError, read_document
from search.places import bare, characters, few, line_of, pages, places, untagged
from search.writing import epub, sentences, wrap

PIECES = (
    *("<p>", "</p>", "<b>", "<td>", "<table>", "<pre>", "</pre>", "&amp;", "&lt", "a", "B", "<", "'>", "<!--", "-->"),
    *("<br>", "<title>", "</title>", "<a x='", "é", "<script>", "</script>", "<li>", "<h1>", "\n", " "),
)


class TestHtml:
    @few
    @given(sentences(1, 5), st.data())
    def test_blocks_and_headings(self, found, data):
        source = data.draw(pages(found))
        document = read_document(source.encode(), "a.html")
        assert document.title == "A & B"
        for word in ("Skip", "Not this", "x()", "{}"):
            assert word not in document.text
        for i, (sentence, place) in enumerate(places(document, found)):
            assert untagged(source[place.start : place.end]) == sentence
            assert place.line == line_of(source, place.start)
            assert place.headings == ("Top", f"Part {i}")

    @given(st.lists(st.sampled_from(PIECES), max_size=30))
    def test_every_character_has_its_place(self, pieces):
        source = "".join(pieces)
        try:
            document = read_document(source.encode(), "a.html")
        except NoTextError:  # all of it was marks
            return
        for character, place in characters(document):
            assert 0 <= place.start <= place.end <= len(source)
            if character.isalnum():
                assert source[place.start : place.end] == character

    @pytest.mark.parametrize(
        "raw", ["&ltab", "a&amp;b&notit;", "&copy2026 &#65;&#x42 &unknown; & &;", "&amp", "x&shy;y&nbsp;z"]
    )
    def test_references(self, raw):
        document = read_document(f"<p>{raw}".encode(), "a.html")
        assert document.text == html.unescape(raw).replace("\xad", "").replace("\xa0", " ")
        for character, place in characters(document):
            assert html.unescape(f"<p>{raw}"[place.start : place.end]).replace("\xa0", " ") == character

    def test_encodings(self):
        page = "<html><head>{}</head><body><p>Zürich.</p></body></html>"
        for encoding, declared in (
            ("utf-8", ""),
            ("cp1252", ""),
            ("iso8859-2", '<meta charset="iso-8859-2">'),
            ("utf-16", ""),
        ):
            document = read_document(page.format(declared).encode(encoding), "a.html")
            assert document.text == "Zürich."

    def test_tables_row_by_row(self):
        source = "<table><tr><th>Name<th>Price<tr><td><p>Apple</p><td>3</table><p>End."
        assert read_document(source.encode(), "a.html").text == "Name | Price\nApple | 3\n\nEnd."

    def test_code_keeps_its_lines(self):
        source = "<p>See:<pre>\ndef f():\n    return <b>1</b>\n</pre><p>End."
        assert read_document(source.encode(), "a.html").text == "See:\n\ndef f():\n    return 1\n\nEnd."


NOTES = (
    '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    '<w:{name}s xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    '<w:{name} w:type="separator" w:id="-1"><w:p><w:r><w:separator/></w:r></w:p></w:{name}>'
    '<w:{name} w:id="1"><w:p><w:r><w:{name}Ref/></w:r><w:r><w:t xml:space="preserve"> {sentence}</w:t></w:r></w:p>'
    "</w:{name}></w:{name}s>"
)


class TestDocx:
    @few
    @given(sentences(2, 6), st.data())
    def test_runs_headings_and_tables(self, found, data):
        written = docx.Document()
        path, parents = [], ("Top",)
        written.add_heading("Top", 1)
        for i, sentence in enumerate(found):
            if data.draw(st.booleans()):
                parents = ("Top", f"Part {i} & more")
                written.add_heading(parents[1], 2)
            path.append(parents)
            kind = data.draw(st.sampled_from(["Normal", "List Bullet", "table"]))
            paragraph = (
                written.add_table(1, 2).cell(0, 1).paragraphs[0]
                if kind == "table"
                else written.add_paragraph(style=kind)
            )
            cut = data.draw(st.integers(1, len(sentence) - 1))
            paragraph.add_run(sentence[:cut]).bold = True
            paragraph.add_run(sentence[cut:])
        file = io.BytesIO()
        written.save(file)
        document = read_document(file.getvalue(), "a.docx")
        for (sentence, place), headings in zip(places(document, found), path):
            assert place.headings == headings
            member = zipfile.ZipFile(file).read(place.part).decode()
            raw = re.sub(r"<[^>]*>", "", member[place.start : place.end])
            assert html.unescape(raw) == sentence

    def test_rows_and_hidden_text(self):
        written = docx.Document()
        table = written.add_table(2, 2)
        for row, texts in zip(table.rows, (("Name", "Price"), ("Apple", "3"))):
            for cell, text in zip(row.cells, texts):
                cell.text = text
        paragraph = written.add_paragraph("Seen. ")
        paragraph.add_run("Hidden.").font.hidden = True
        paragraph.add_run("A < B & C.")
        file = io.BytesIO()
        written.save(file)
        assert read_document(file.getvalue(), "a.docx").text == "Name | Price\nApple | 3\n\nSeen. A < B & C."

    @few
    @given(sentences(3, 3))
    def test_footnotes_and_endnotes(self, found):
        """python-docx writes none: the parts are put into its file by hand, as Word writes them."""
        written = docx.Document()
        written.add_paragraph(found[0])
        file = io.BytesIO()
        written.save(file)
        with zipfile.ZipFile(file, "a") as archive:
            for name, sentence in (("footnote", found[1]), ("endnote", found[2])):
                archive.writestr(f"word/{name}s.xml", NOTES.format(name=name, sentence=sentence))
        document = read_document(file.getvalue(), "a.docx")
        assert document.text.split("\n\n") == found
        parts = ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml")
        for (sentence, place), part in zip(places(document, found), parts):
            assert place.part == part
            member = zipfile.ZipFile(file).read(part).decode()
            assert re.sub(r"<[^>]*>", "", member[place.start : place.end]) == sentence


class TestEpub:
    @few
    @given(sentences(2, 4), st.data())
    def test_pages(self, found, data):
        chapters = {f"c{i}.xhtml": data.draw(pages([sentence])) for i, sentence in enumerate(found)}
        book = epub(chapters)
        document = read_document(book, "a.epub")
        assert document.title == "A book"
        for i, (sentence, place) in enumerate(places(document, found)):
            assert place.part == f"OEBPS/text/c{i}.xhtml"
            source = zipfile.ZipFile(io.BytesIO(book)).read(place.part).decode()
            assert untagged(source[place.start : place.end]) == sentence
            assert place.line == line_of(source, place.start)
            assert place.headings == ("Top", "Part 0")


class TestEml:
    @few
    @given(sentences(), st.sampled_from(["7bit", "quoted-printable", "base64"]), st.booleans(), st.data())
    def test_bodies(self, found, encoding, is_html, data):
        if encoding == "7bit":
            found = [sentence.replace("ü", "u") for sentence in found]
        message = EmailMessage()
        message["Subject"], message["From"] = "Zürich at noon", "Ada <ada@example.org>"
        body = data.draw(pages(found)) if is_html else "\n".join(wrap(" ".join(found).split(), 72)) + "\n"
        body = body.replace("\r\n", "\n")
        message.set_content(body, subtype="html" if is_html else "plain", cte=encoding)
        message.add_attachment(b"%PDF-1.4", maintype="application", subtype="pdf", filename="report.pdf")
        document = read_document(message.as_bytes(), "a.eml")
        assert document.title == "Zürich at noon"
        assert document.text.startswith("Subject: Zürich at noon\nFrom: Ada <ada@example.org>\n")
        assert document.notes == ("a.eml: attachment report.pdf",)
        part = email.message_from_bytes(message.as_bytes()).get_payload()[0]
        source = part.get_payload(decode=True).decode()
        for sentence, place in places(document, found):
            assert place.part == "body"
            assert (untagged if is_html else bare)(source[place.start : place.end]) == sentence
            assert place.line == line_of(source, place.start)

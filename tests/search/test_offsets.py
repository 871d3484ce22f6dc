"""The source at the place of a text is that text: for every format whose source is text.

What the reader does not see is taken out by other means than those that are tested: white space by `split`, tags by a
regular expression, references by `html.unescape`, marks by the test itself, which knows where it put them.
"""

import email
import html
import io
import re
import zipfile
from email.message import EmailMessage

import docx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.search import NoTextError, from_bytes, read_document, to_bytes
from search.writing import epub, sentences, wrap

few = settings(max_examples=30, deadline=None)


def bare(text):
    return " ".join(text.split())


def untagged(source):
    """What is left of HTML or XML without tags."""
    return bare(html.unescape(re.sub(r"<(?:[^>\"']|\"[^\"]*\"|'[^']*')*>", " ", source)).replace("\xad", "")).replace(
        " .", "."
    )


def places(document, wanted):
    """The place of each sentence, which the text holds once; the same after a way through bytes."""
    again = from_bytes(to_bytes(document))
    assert again.text == document.text
    for sentence in wanted:
        assert document.text.count(sentence) == 1, (sentence, document.text)
        start = document.text.index(sentence)
        place = document.place(start, start + len(sentence))
        assert place == again.place(start, start + len(sentence))
        first, past = document.sentence(start + 2, start + 5)
        assert document.text[first:past] == sentence
        yield sentence, place


def line_of(source, offset):
    """The line of a character, counted from 1."""
    return len(re.split(r"\r\n|\r|\n", source[: offset + 1])) if source[offset] not in "\r\n" else None


class TestText:
    @few
    @given(
        sentences(),
        st.integers(60, 100),
        st.sampled_from(["\n", "\r\n", "\r"]),
        st.sampled_from(["", "    "]),
        st.data(),
    )
    def test_wrapped_paragraphs(self, found, width, newline, indent, data):
        cut = data.draw(st.integers(0, len(found)))
        paragraphs = [" ".join(part) for part in (found[:cut], found[cut:]) if part]
        lines = [[indent + line for line in wrap(one.split(), width)] for one in paragraphs]
        source = (newline * 2).join(newline.join(one) for one in lines) + newline
        document = read_document(source.encode(), "a.txt")
        assert [bare(one) for one in re.split(r"[\r\n]+", document.text) if one.strip()] == paragraphs
        for sentence, place in places(document, found):
            assert bare(source[place.start : place.end]) == sentence
            assert place.line == line_of(source, place.start)

    @given(st.text(alphabet="ab -.\n\r\tAé•1", max_size=200))
    def test_every_character_has_its_place(self, source):
        if not source.strip():
            return
        document = read_document(source.encode(), "a.txt")
        for i, character in enumerate(document.text):
            place = document.place(i, i + 1)
            if not character.isspace():
                assert source[place.start : place.end] == character
            assert 0 <= place.start <= place.end <= len(source)

    def test_what_is_no_paragraph_keeps_its_lines(self):
        source = (
            "- the first item of a list that is long enough for a line\n- The second item\n\n"
            "if (x) {    // a line of code that is long enough to be a full one\n    return 1;\n}\n\n"
            "name                     price                     amount of the order\nApples       3       4\n\n"
            "Roses are red\nViolets are blue\n"
        )
        assert read_document(source.encode(), "a.txt").text == source

    def test_hyphens_at_line_ends(self):
        line = "x" * 60
        source = f"An example. {line} this is an exam-\nple of a well-\nknown thing {line} this is command-\nline text."
        text = read_document(source.encode(), "a.txt").text
        assert "an example of" in text
        assert "command-line" in text


MARKS = st.sampled_from(
    ["{}", "**{}**", "*{}*", "`{}`", "[{}](https://example.org/a_b)", "<b>{}</b>", "_{}_", "[{}][ref]"]
)
UNMARKED = re.compile(r"\*\*|\*|`|\]\(https://example.org/a_b\)|\]\[ref\]|\[|</?b>|(?<!\w)_|_(?!\w)|> ")


@st.composite
def marked(draw, found):
    """A sentence with marks around some words."""
    words = found.split()
    for i in draw(st.lists(st.integers(0, len(words) - 1), max_size=3, unique=True)):
        end = "." if words[i].endswith(".") else ""
        words[i] = draw(MARKS).format(words[i].removesuffix(".")) + end
    return words


class TestMarkdown:
    @few
    @given(sentences(2, 5), st.integers(30, 90), st.sampled_from(["", "> ", "- "]), st.data())
    def test_marks_and_headings(self, found, width, before, data):
        source, at = "# The *first* heading\n\n", []
        for i, sentence in enumerate(found):
            source += f"## Part {i}\n\n" if i % 2 == 0 else f"Part {i}\n{'-' * 8}\n\n"
            at.append(("The first heading", f"Part {i}"))
            lines = wrap(data.draw(marked(sentence)), width)
            source += before + ("\n" + ("> " if before == "> " else "")).join(lines) + "\n\n"
            source += "```\n" + "# no heading\n" + "```\n\n"
        document = read_document(source.encode(), "a.md")
        assert [one.title for one in document.headings] == ["The first heading"] + [
            f"Part {i}" for i in range(len(found))
        ]
        assert all(document.text[one.at :].startswith(one.title) for one in document.headings)
        text = document.text.replace("- ", "") if before == "- " else document.text
        for sentence, path in zip(found, at):
            start = document.text.index(sentence)
            place = document.place(start, start + len(sentence))
            assert bare(UNMARKED.sub("", source[place.start : place.end] + " ")) == sentence
            assert place.line == line_of(source, place.start)
            assert place.headings == path
            assert sentence in text

    @given(st.text(alphabet="ab *_`[]()<>#-|\\&;!\n\r1.~:", max_size=120))
    def test_every_character_has_its_place(self, source):
        if not source.strip():
            return
        try:
            document = read_document(source.encode(), "a.md")
        except NoTextError:  # all of it was marks
            return
        for i, character in enumerate(document.text):
            place = document.place(i, i + 1)
            assert 0 <= place.start <= place.end <= len(source)
            if not character.isspace() and place.end - place.start == 1:
                assert source[place.start] == character

    def test_tables_and_front_matter(self):
        source = "---\ntitle: x\n---\n\n| a | **b** |\n|---|---|\n| 1 | 2 |\n\nEnd.\n"
        text = read_document(source.encode(), "a.md").text
        assert [bare(line) for line in text.splitlines() if line.strip()] == ["a | b", "1 | 2", "End."]


class TestRst:
    @few
    @given(sentences(2, 5), st.integers(40, 90), st.sampled_from(["", "* ", ".. note:: "]), st.data())
    def test_marks_and_headings(self, found, width, before, data):
        marks = st.sampled_from(["{}", "**{}**", "*{}*", "``{}``", "`{} <https://example.org>`_", ":ref:`{} <x>`"])
        source, path = "=====\nTitle\n=====\n\n.. _target:\n\n", []
        for i, sentence in enumerate(found):
            source += f"Part {i}\n------\n\n"
            path.append(("Title", f"Part {i}"))
            words = sentence.split()
            one = data.draw(st.integers(0, len(words) - 2))
            words[one] = data.draw(marks).format(words[one]).replace(" <", "\0<")
            indent = " " * (3 if before.startswith("..") else len(before))
            source += before + f"\n{indent}".join(wrap(words, width)).replace("\0", " ") + "\n\n"
            source += "::\n\n    literal  text\n\n.. image:: x.png\n   :alt: no\n\n"
        document = read_document(source.encode(), "a.rst")
        assert "image" not in document.text
        for (sentence, place), headings in zip(places_in(document, found), path):
            raw = re.sub(r"\s+<(?:https://example.org|x)>`_?|:ref:`|[*`]", "", source[place.start : place.end])
            assert bare(raw) == sentence
            assert place.headings == headings
            assert place.line == line_of(source, place.start)

    @given(st.text(alphabet="ab *`:.=-_|<>\n\r 1", max_size=150))
    def test_every_character_has_its_place(self, source):
        try:
            document = read_document(source.encode(), "a.rst")
        except NoTextError:  # all of it was marks
            return
        for i, character in enumerate(document.text):
            place = document.place(i, i + 1)
            if not character.isspace():
                assert source[place.start : place.end] == character


def places_in(document, wanted):
    for sentence in wanted:
        start = document.text.index(sentence)
        yield sentence, document.place(start, start + len(sentence))


TAGS = st.sampled_from(
    ["{}", "<b>{}</b>", "<a href='x>y'>{}</a>", '<span class="a">{}</span>', "<em\n>{}</em>", "{}<!-- no -->"]
)
BLOCKS = st.sampled_from(
    ["<p>{}</p>", "<div><div>{}</div></div>", "<ul><li>{}</ul>", "<table><tr><td>{}</table>", "<p>{}"]
)


@st.composite
def pages(draw, found):
    """A page with these sentences, each below a heading of its own."""
    source = "<!DOCTYPE html>\n<html><head><title>A &amp; B</title><script>if (a<b) x()</script></head><body>\n"
    source += "<nav>Skip me.</nav><h1>Top</h1>"
    for i, sentence in enumerate(found):
        words = sentence.replace("ü", draw(st.sampled_from(["ü", "&uuml;", "&#252;", "&#xfc;"]))).split()
        one = draw(st.integers(0, len(words) - 2))
        words[one] = draw(TAGS).format(words[one])
        text = "".join(word + draw(st.sampled_from([" ", "\n", "  ", "\r\n\t"])) for word in words).strip()
        source += f"<h2>Part {i}</h2>\n{draw(BLOCKS).format(text)}\n<p hidden>Not this.</p><style>p {{}}</style>"
    return source + "</body></html>"


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
        for i, character in enumerate(document.text):
            place = document.place(i, i + 1)
            assert 0 <= place.start <= place.end <= len(source)
            if character.isalnum():
                assert source[place.start : place.end] == character

    @pytest.mark.parametrize(
        "raw", ["&ltab", "a&amp;b&notit;", "&copy2026 &#65;&#x42 &unknown; & &;", "&amp", "x&shy;y&nbsp;z"]
    )
    def test_references(self, raw):
        document = read_document(f"<p>{raw}".encode(), "a.html")
        assert document.text == html.unescape(raw).replace("\xad", "").replace("\xa0", " ")
        for i, character in enumerate(document.text):
            place = document.place(i, i + 1)
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

    def test_rows_footnotes_and_hidden_text(self):
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

"""The source at the place of a text is that text: plain text, Markdown, reStructuredText.

Marks are taken out by the test itself, which knows where it put them.
"""

import re

from hypothesis import given
from hypothesis import strategies as st

from quoth.search import NoTextError, read_document
from search.places import bare, characters, few, line_of, places
from search.writing import sentences, wrap


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
        for character, place in characters(document):
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
        for character, place in characters(document):
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
        for character, place in characters(document):
            if not character.isspace():
                assert source[place.start : place.end] == character


def places_in(document, wanted):
    for sentence in wanted:
        start = document.text.index(sentence)
        yield sentence, document.place(start, start + len(sentence))

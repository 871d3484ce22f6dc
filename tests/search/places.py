"""Where sentences of a document stand, and what the source has there, by other means than those that are tested.

What the reader does not see is taken out by hand: white space by `split`, tags by a regular expression, references by
`html.unescape`.
"""

import html
import re

from hypothesis import settings
from hypothesis import strategies as st

from quoth.search import from_bytes, to_bytes

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


def characters(document):
    """Each character of the text, and its place."""
    for i, character in enumerate(document.text):
        yield character, document.place(i, i + 1)


def line_of(source, offset):
    """The line of a character, counted from 1."""
    return len(re.split(r"\r\n|\r|\n", source[: offset + 1])) if source[offset] not in "\r\n" else None


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

"""Sentences: where they end, where they do not, and that the one around an answer holds it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoth.search import Document
from quoth.search.sentences import SENTENCE, split_sentences

SENTENCES = [  # each line is one text, its sentences apart by |
    "First one.|The answer is 42.|Last.",
    "It cost 4.50 in all!|Who knew?|Nobody.",
    "Dr. Smith met Mr. J. R. Jones at St. Mary's.|They left at 5 p.m. on Monday.",
    "See Fig. 3 and Sec. 2.1, e.g. the table, i.e. No. 5 of it.|The rest is on pp. 7–9.",
    "The U.S. Senate met.|He lives in the U.S.|The law says so.",
    "Run setup.py first.|Then see https://example.org/a.b?c=1.2.|It has more.",
    "Version 3.11.7 is out.|Use numpy>=1.26 or node.js 20.",
    "Apples, pears, etc. were sold.|They cost 3 etc.|The rest was free.",
    "He said no.|Then he left.",
    '"What?" he asked.|"Nothing."|She went on.',
    "(It was late.)|They slept.",
    "Wait... what is it?|Nothing...|The end.",
    "Smith et al. found it in 1999.|The others did not.",
    "It is written by J. Doe.|Plan B failed.",
    "1. First do this.|Then that.",
    "これは文です。|次の文です。",
    "The file config.toml.|It is in ~/.config/x.",
    "It was made by Apple Inc. in May.|It was sold by Apple Inc.|The price was high.",
    "The temperature was 3.5 °C.|At 10 a.m. it rose.",
    "He works at the dept. of physics, approx. five years.",
    "A. Turing wrote it.",
    "Modern art.|The museum.",
]


@pytest.mark.parametrize("marked", SENTENCES)
def test_where_sentences_end(marked):
    expected = marked.split("|")
    text = " ".join(expected) if "。" not in marked else "".join(expected)
    assert [text[first:past] for first, past in split_sentences(text)] == expected
    document = Document("x", text)
    for sentence in expected:
        start = text.index(sentence)
        middle = start + len(sentence) // 2
        first, past = document.sentence(middle, middle + 1)
        assert text[first:past] == sentence


@pytest.mark.parametrize(
    ("text", "answer", "sentence"),
    [
        ("The answer is 42", "42", "The answer is 42"),
        ("A line\nthe 42 of it\nanother", "42", "the 42 of it"),
        ("Yes. 42. No.", "42.", "42."),
        ("42", "42", "42"),
        ("One. Two. Three.", "ne. Tw", "One. Two."),
        ("1. Open it.\n2. Close it.", "Close", "2. Close it."),
        ("x = a.b\r\ny = 2", "2", "y = 2"),
    ],
)
def test_the_sentence_of_an_answer(text, answer, sentence):
    start = text.index(answer)
    first, past = Document("x", text).sentence(start, start + len(answer))
    assert text[first:past] == sentence


@given(st.text(alphabet='abA .!?\n\r。é😀)"1', min_size=1, max_size=60), st.data())
def test_a_sentence_holds_its_answer(text, data):
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    first, past = Document("x", text).sentence(start, end)
    assert 0 <= first <= start < end <= past <= len(text)


@given(st.text(alphabet='abA .!?\n\r。é😀)"1', max_size=80))
def test_sentences_are_in_order_and_lose_no_character(text):
    spans = split_sentences(text)
    assert all(first < past for first, past in spans)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert "".join("".join(text[a:b] for a, b in spans).split()) == "".join(text.split())


def test_a_text_without_an_end_is_cut():
    text = "word " * 1000
    first, past = Document("x", text).sentence(2500, 2504)
    assert past - first <= 4 + 2 * SENTENCE

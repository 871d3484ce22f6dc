"""Modules of the page on their own, compared with Python."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def blank(server, browser):
    """A page that only runs modules."""
    one = browser.new_page()
    one.goto(server.url)
    yield one
    one.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=40), data=st.data())
def test_offsets_are_those_of_python(blank, text, data):
    """Code points of Python become units of JavaScript."""
    start, end = sorted(data.draw(st.integers(0, len(text))) for _ in range(2))
    pieces = blank.evaluate(
        "async ([text, start, end]) => (await import('/page/offsets.js')).cut(text, start, end)", [text, start, end]
    )
    assert pieces == [text[:start], text[start:end], text[end:]]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text("ab 🚢é<&\n-", min_size=1, max_size=60), data=st.data())
def test_a_view_has_the_whole_text_and_marks_the_answer(blank, text, data):
    """Line ends become elements; every other character is shown, and the answer is what is marked."""
    first, start, end, past = sorted(data.draw(st.integers(0, len(text))) for _ in range(4))
    shown, marked, tinted = blank.evaluate(
        """async ([text, answer, sentence]) => {
          const view = (await import("/page/text.js")).textView({ text }, { answer, sentence });
          const words = (selector) => [...view.querySelectorAll(selector)].map((one) => one.textContent).join("");
          return [words("p"), words("mark"), words("mark, .sentence")];
        }""",
        [text, [start, end], [first, past]],
    )
    assert shown == text.replace("\n", "")
    assert marked == text[start:end].replace("\n", "")
    assert tinted == text[first:past].replace("\n", "")


def test_citations(blank):
    place = {"file": "a.pdf", "page": 7, "label": "iv", "line": None, "part": None, "headings": []}
    texts = [
        {**place, "sentence": "It\n was   so."},
        {**place, "label": None, "sentence": "Yes.", "headings": ["One", "Two"]},
        {**place, "file": "", "page": None, "line": 1, "sentence": "Oh."},
        {**place, "file": "b.epub", "page": None, "part": "ch1.html", "line": 3, "sentence": "No!"},
    ]
    made = blank.evaluate("async (all) => all.map((await import('/page/citation.js')).citation)", texts)
    assert made == [
        "“It was so.” — a.pdf, page iv",
        "“Yes.” — a.pdf, page 7, One › Two",
        "“Oh.” — pasted text, line 1",
        "“No!” — b.epub, ch1.html, line 3",
    ]

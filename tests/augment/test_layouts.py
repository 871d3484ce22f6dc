"""Passages in other layouts: every answer stands at its new offset, and nothing of the text is lost."""

import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.augment import relayout
from quoth.augment.blocks import BLOCKS, SLOTS
from quoth.augment.layouts import LAYOUTS, edited
from quoth.augment.sentences import sentence_spans
from quoth.data import Gold, Question, read

SHARED = os.environ.get("QUOTH_SHARED")
TEXT = (
    "The water mill at Arden was built by Thomas Hale in 1742. It is the oldest mill of the county. Mr. J. Hale sold it"
    " to the town in 1803 for two hundred pounds. In 1911 it burned, and the town built the present one."
)

WORDS = "the a of Mill Arden 1742 built, and. It? (in) “Hale” x-y it’s … é漢 U.S. J."


def ask(text, *spans, id="q", title="Water_mills"):
    return Question(id, "When?", text, tuple(Gold(text[a:b], a) for a, b in spans), not spans, title)


def spans_of(*answers):
    return [(TEXT.index(answer), TEXT.index(answer) + len(answer)) for answer in answers]


def letters(text):
    return [character for character in text if character.isalnum()]


@st.composite
def questions(draw):
    """Random passages of words and marks, with answers anywhere, also ones that overlap or touch."""
    word = st.sampled_from(WORDS.split()) | st.text(max_size=5)
    gap = st.sampled_from((" ", " ", "  ", "\n", "\n\n", "\t"))
    text = "".join(draw(st.lists(st.one_of(word, gap), max_size=60)))
    ends = st.integers(0, len(text))
    golds = [(min(a, b), max(a, b)) for a, b in draw(st.lists(st.tuples(ends, ends), max_size=3)) if a != b]
    return ask(text, *golds, id=str(draw(st.integers(0, 10**6))), title=draw(st.sampled_from(("", "A_b", "_x"))))


@pytest.mark.parametrize("layout", LAYOUTS)
@given(asked=questions(), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=200)
def test_answers_move_along(layout, asked, seed):
    (made,) = relayout([asked], {layout: 1.0}, seed)
    assert len(made.answers) == len(asked.answers)
    for old, new in zip(asked.answers, made.answers, strict=True):
        assert new.text == old.text == made.context[new.start : new.end]
    assert (made.id, made.question, made.gold_texts) == (asked.id, asked.question, asked.gold_texts)
    if made.context != asked.context:  # letters are put in, never left out or moved
        rest = iter(letters(made.context))
        assert all(character in rest for character in letters(asked.context))


@given(questions(), st.data())
@settings(deadline=None)
def test_edits_by_hand(asked, data):
    """Each answer is where a marker that was put in at its first character has gone."""
    places = data.draw(st.lists(st.integers(0, len(asked.context)), unique=True, max_size=5))
    good = [p for p in places if not any(gold.start < p < gold.end for gold in asked.answers)]
    made = edited(asked, [(place, place, "<+>") for place in good])
    for old, new in zip(asked.answers, made.answers, strict=True):
        assert new.start == old.start + 3 * sum(place <= old.start for place in good)


def test_what_the_layouts_look_like():
    asked = [ask(TEXT, *spans_of("1742"), id=str(i)) for i in range(60)]
    shapes = {
        "markdown": r"\*\*|\]\(|`|_|\*|\]\[\d",
        "list": r"\n\s*(?:[-*•+]|\(?\d+[.)]) ",
        "heading": r"^\S.*\n",
        "wrapped": r"\n",
        "code": r"\n\n|^\S",
    }
    for name, shape in shapes.items():
        made = relayout(asked, {name: 1.0}, seed=5)
        assert all(one.context != TEXT and re.search(shape, one.context) for one in made)
        assert len({one.context for one in made}) > 10
    wide = [max(map(len, one.context.split("\n"))) for one in relayout(asked, {"wrapped": 1.0})]
    assert max(wide) <= 80
    titles = [one.context for one in relayout(asked, {"heading": 1.0})]
    assert any("Water mills" in text for text in titles)
    assert any("`1742`" in one.context or "**1742**" in one.context for one in relayout(asked, {"markdown": 1.0}))


def test_an_answer_is_never_split():
    whole = ask(TEXT, (0, len(TEXT)))
    for name in ("list", "wrapped"):
        (made,) = relayout([whole], {name: 1.0})
        assert TEXT in made.context
    across = ask(TEXT, (TEXT.index("1742"), TEXT.index("It is") + 5))  # over the end of a sentence
    (made,) = relayout([across], {"list": 1.0})
    assert "1742. It is" in made.context
    assert relayout([ask("One sentence")], {"list": 1.0}) == [ask("One sentence")]


def test_fractions_and_draws():
    asked = [ask(TEXT, *spans_of("Thomas Hale"), id=str(i)) for i in range(100)]
    made = relayout(asked, {"list": 0.2, "wrapped": 0.3}, seed=4)
    assert sum(one != two for one, two in zip(asked, made, strict=True)) == 50
    assert made == relayout(asked[::-1], {"list": 0.2, "wrapped": 0.3}, seed=4)[::-1]
    assert made != relayout(asked, {"list": 0.2, "wrapped": 0.3}, seed=5)
    assert relayout(asked, {}) == asked


def test_sentences():
    assert [TEXT[a:b] for a, b in sentence_spans(TEXT)] == [
        "The water mill at Arden was built by Thomas Hale in 1742.",
        "It is the oldest mill of the county.",
        "Mr. J. Hale sold it to the town in 1803 for two hundred pounds.",
        "In 1911 it burned, and the town built the present one.",
    ]
    assert sentence_spans(" \n") == []


def test_every_slot_is_known():
    assert {slot for block in BLOCKS for slot in re.findall(r"\{(\w+)\}", block)} == set(SLOTS)


@pytest.mark.skipif(not SHARED, reason="QUOTH_SHARED is not set: no real data to read")
@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_whole_of_squad(layout):
    questions = read(f"{SHARED}/data/squad/train.json.gz").trainable
    made = relayout(questions, {layout: 1.0})
    changed = 0
    for old, new in zip(questions, made, strict=True):
        changed += old.context != new.context
        assert [gold.text for gold in new.answers] == [gold.text for gold in old.answers]
        assert all(new.context[gold.start : gold.end] == gold.text for gold in new.answers)
    assert changed > 0.95 * len(questions)

"""Questions made from sentences: of their own paragraph, without a label, the phrase left out."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.augment import make_unlabelled
from quoth.augment.cloze import cloze
from quoth.data import Gold, Question

TEXTS = [
    "The water mill at Arden was built by Thomas Hale in 1742. The mill joined the county museum in 1911.",
    "The option --verbose prints 12 lines for every file. The default encoding is UTF-8 on most systems.",
    "Call connect() before the first request is sent. Each worker uses three threads for reading.",
    "Short one.",
]


def test_questions_are_of_their_paragraph():
    made = cloze(TEXTS, 100, seed=1)
    assert 6 < len(made) <= 18
    assert {q.context for q in made} == set(TEXTS[:3])
    for question in made:
        assert not question.trainable
        assert question.question.strip()
        words = set(re.findall(r"\w+", question.question.lower())) & set(re.findall(r"\w+", question.context.lower()))
        assert len(words) >= 2
    assert len({(q.question, q.context) for q in made}) == len(made)
    assert len({q.id for q in made}) == len(made)


def test_a_phrase_is_left_out():
    fact = "The water mill at Arden was built by Thomas Hale in 1742."
    asked = {q.question for seed in range(60) for q in cloze([fact], 5, seed)}
    assert "When was the water mill at Arden built by Thomas Hale?" in asked
    assert not any(all(part in text.lower() for part in ("1742", "hale", "arden", "mill")) for text in asked)
    asked = {
        q.question for seed in range(60) for q in cloze(["Each worker uses three threads for reading files."], 5, seed)
    }
    assert "How many threads does each worker use for reading files?" in asked


def test_fewer_are_the_beginning_of_more():
    many = cloze(TEXTS, 100, seed=2)
    assert cloze(TEXTS, 4, seed=2) == many[:4]
    assert [q.id.rpartition("-")[2] for q in many[:3]] == ["1", "1", "1"]  # each paragraph once, first
    assert cloze(TEXTS[::-1], 100, seed=2) == many
    assert cloze(TEXTS, 100, seed=3) != many
    assert cloze([], 5) == []
    assert cloze(TEXTS, 0) == []


def test_counted_by_training_question():
    asked = [Question(str(i), "Who built it?", f"Hale built mill {i}.", (Gold("Hale", 0),)) for i in range(4)]
    made = make_unlabelled(asked, {"cloze": 1.0}, TEXTS, seed=0)
    assert {kind: len(found) for kind, found in made.items()} == {
        "moved": 0,
        "lookalike": 0,
        "new": 0,
        "edited": 0,
        "cloze": 4,
    }


@given(st.lists(st.text(max_size=200), max_size=4), st.integers(0, 99))
@settings(deadline=None)
def test_any_text(texts, seed):
    for question in cloze(texts, 10, seed):
        assert question.question.strip()
        assert question.context in texts

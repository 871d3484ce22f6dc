"""Questions in other styles: the words stay, the answers stay, and the draws are those of seed and id."""

import os
import string
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.augment import restyle
from quoth.augment.imperative import imperative
from quoth.augment.styles import STYLES, keywords, lower, no_mark
from quoth.augment.verbs import inverted, statement
from quoth.data import Gold, Question, read

SHARED = os.environ.get("QUOTH_SHARED")
TEXT = "The mill at Arden was built in 1742."


def ask(i, text):
    return Question(f"q{i}", text, TEXT, (Gold("1742", TEXT.index("1742")),), title="Mills")


ASKED = [ask(i, f"When was the mill number {i} at Arden built?") for i in range(200)]


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("What year did Beyoncé release Formation?", "year beyoncé release formation"),
        ("What is the Bank of England known for?", "bank of england known for"),
        ("Which award did Doctor Who win in 1996?", "award doctor who win 1996"),
        ('Who sang "Crazy in Love"?', "sang crazy love"),
        ("How old was Chopin when he left Poland?", "how old chopin left poland"),
        ("What's the capital of France?", "capital france"),
        ("What is it?", None),
        ("Why?", None),
        ("", None),
        ("???", None),
    ],
)
def test_keywords(question, query):
    assert keywords(question, 2) == query  # a draw with which "who" is left out


def test_keywords_say_what_is_asked_for():
    assert keywords("When was Universal Studios created?", 1) == "when universal studios created"
    assert keywords("When was Universal Studios created?", 0) == "universal studios created date"
    assert keywords("How many mills did Arden have?", 1) == "how many mills arden"
    assert keywords("How many mills did Arden have?", 0) == "number of mills arden"
    drawn = Counter(q.question.split()[0] for q in restyle(ASKED, {"keywords": 1.0}, seed=3))
    assert 70 < drawn["when"] < 130


@pytest.mark.parametrize(
    ("question", "order"),
    [
        ("What year did Beyoncé release Formation?", "the year in which Beyoncé released Formation"),
        ("When was the mill built?", "when the mill was built"),
        ("When did the Soviet government assume power?", "when the Soviet government assumed power"),
        ("Where does the ferry to Skye leave from?", "where the ferry to Skye leaves from"),
        ("Who wrote the book?", "who wrote the book"),
        ("Who was the new elector of Saxony?", "the new elector of Saxony"),
        ("What is the capital of Kenya?", "the capital of Kenya"),
        ("What network produced the show in Canada?", "the network that produced the show in Canada"),
        ("How many finalists were there?", "the number of finalists"),
        ("How many people died in the fire?", "how many people died in the fire"),
        ("In what month did the armistice come into being?", "the month in which the armistice came into being"),
        ("What did Chopin carry to Paris?", "what Chopin carried to Paris"),
        ("What collection was transferred to the museum?", "the collection that was transferred to the museum"),
        ("What can a bishop absolutely prohibit?", "what a bishop can absolutely prohibit"),
    ],
)
def test_imperative(question, order):
    for draw in range(64):
        made = imperative(question, draw << 4 | draw)
        assert made is not None
        assert made.rstrip(".").endswith(f" {order}")
        assert made[0].isupper()
        assert "?" not in made


@pytest.mark.parametrize(
    "question",
    [
        "What was the mill used for?",
        "What was the period called that was 505 million years ago?",
        "Which Germanic accent mark do both the English and the Dutch not use?",
        "Harrogate market is in the local what?",
        "What about pay TV channels?",
        "At what college did he study but not receive his degree?",
        "Why?",
        "",
    ],
)
def test_where_no_rule_fits(question):
    assert imperative(question, 0) is None


def test_statements_and_back():
    for auxiliary, rest, said in (
        ("did", "the mill burn in 1742", "the mill burned in 1742"),
        ("does", "it carry water", "it carries water"),
        ("did", "Otto Brandt cast the bell", None),  # a verb that the table lacks
        ("was", "the bell cast", None),
        ("was", "the mill built by Hale", "the mill was built by Hale"),
    ):
        assert statement(auxiliary, rest) == said
    for clause, question in (
        ("the mill joined the town in 1742", ("did", "the mill join the town in 1742")),
        ("the mill was built", ("was", "the mill built")),
        ("the old mill", None),
    ):
        found = inverted(clause.split())
        assert (found and (found[0], " ".join(found[1]))) == question


def test_marks_and_capitals():
    assert no_mark("When? ") == "When"
    assert no_mark("When was “it” built ??") == "When was “it” built"
    assert no_mark("When") is None
    assert no_mark("?") is None
    assert lower("When Was It?") == "when was it?"
    assert lower("when was it?") is None


FRACTIONS = {"no_mark": 0.3, "keywords": 0.1, "imperative": 0.1, "lower": 0.2}


class TestRestyle:
    def test_as_many_as_wanted_and_none_twice(self):
        made = restyle(ASKED, FRACTIONS, seed=1)
        kinds = Counter()
        for old, new in zip(ASKED, made, strict=True):
            assert (new.id, new.context, new.answers, new.title) == (old.id, old.context, old.answers, old.title)
            ways = [name for name in ("no_mark", "lower") if STYLES[name](old.question, 0) == new.question]
            order = new.question.endswith((" built", " built.")) and " was built" in new.question
            kinds.update(ways or (["imperative"] if order else ["same" if old == new else "keywords"]))
        assert kinds == {"no_mark": 60, "keywords": 20, "imperative": 20, "lower": 40, "same": 60}

    def test_by_seed_and_id(self):
        made = restyle(ASKED, FRACTIONS, seed=1)
        assert restyle(ASKED, FRACTIONS, seed=1) == made
        assert restyle(ASKED, FRACTIONS, seed=2) != made
        shuffled = restyle(ASKED[::-1], FRACTIONS, seed=1)
        assert shuffled == made[::-1]  # the order does not matter
        assert restyle(ASKED, {}, seed=1) == ASKED

    def test_another_is_drawn_where_a_rule_does_not_fit(self):
        odd = [ask(1000 + i, f"And {i}, perhaps") for i in range(100)]
        made = restyle([*odd, *ASKED[:20]], {"imperative": 1 / 6}, seed=0)
        assert made[:100] == odd
        assert all(new.question != old.question for new, old in zip(made[100:], ASKED[:20]))

    @given(st.text(max_size=80) | st.text(string.ascii_letters + " ?'.,", max_size=80), st.integers(0, 2**64 - 1))
    @settings(deadline=None)
    def test_never_empty(self, text, draw):
        for style in STYLES.values():
            made = style(text, draw)
            assert made is None or made.strip()


@pytest.mark.skipif(not SHARED, reason="QUOTH_SHARED is not set: no real data to read")
def test_real_questions():
    questions = read(f"{SHARED}/data/squad/train.json.gz").questions[:6000]
    made = restyle(questions, {"keywords": 0.5, "imperative": 0.3}, seed=0)
    changed = sum(old != new for old, new in zip(questions, made, strict=True))
    assert changed == 4800  # enough of them fit
    for old, new in zip(questions, made, strict=True):
        assert new.question.strip()
        assert new.answers == old.answers

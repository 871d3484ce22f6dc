"""Pairs without labels: which passages a question is asked of."""

import numpy as np

from quoth.augment import make_unlabelled
from quoth.augment.passages import Bm25, words
from quoth.augment.unlabelled import bare
from quoth.data import Gold, Question

TEXTS = [
    "The water mill at Arden was built by Thomas Hale in 1742.",
    "The wind mill at Sella was built by Ada Winter in 1801.",
    "A heron eats half a kilogram of fish on a winter day.",
    "The heron of Arden sleeps beside the water mill.",
    "Saffron is picked by hand in October.",
]
NEW = ["Mills were built by many hands.", "Fish of the lake are eaten by a heron.", "Nothing of the kind."]


def questions():
    asked = ["Who built the mill?", "When was the mill built?", "What does a heron eat?", "Who built the mill?", "How?"]
    return [
        Question(str(i), question, text, (Gold(text[:5], 0),), title="one" if i < 3 else "two")
        for i, (question, text) in enumerate(zip(asked, TEXTS))
    ]


def test_lookalikes_are_the_best_by_bm25():
    asked = questions()
    made = make_unlabelled(asked, {"lookalike": 2.0}, seed=3)["lookalike"]
    assert len(made) == 9  # of those asked twice, three passages are left
    index = Bm25([words(text) for text in TEXTS])
    for question in asked:
        scores = index.scores(words(question.question)) + index.scores(words(question.context))
        taken = {q.context for q in asked if q.question == question.question}
        twins = [q for q in made if q.question == question.question]
        order = [TEXTS[i] for i in np.argsort(-scores, kind="stable") if TEXTS[i] not in taken]
        mine = [q.context for q in twins if q.id.startswith(f"{question.id}-")]
        if question.question != "Who built the mill?":
            assert mine == order[:2]
        assert len({q.context for q in twins}) == len(twins)  # no pair twice


def test_fewer_are_the_beginning_of_more():
    asked = questions()
    for kind, part, count in (("lookalike", 0.4, 2), ("moved", 0.6, 3), ("new", 1.0, 5)):
        many, few = (make_unlabelled(asked, {kind: size}, NEW, seed=1)[kind] for size in (3.0, part))
        assert few == many[:count]
        assert len(many) > len(few) == count
    few = make_unlabelled(asked, {"moved": 0.6}, seed=1)["moved"]
    other = make_unlabelled(asked, {"moved": 0.6}, seed=2)["moved"]
    assert [q.id for q in other] != [q.id for q in few]


def test_moved_stays_in_its_article():
    asked = questions()
    made = make_unlabelled(asked, {"moved": 5.0})["moved"]
    titles = {q.context: q.title for q in asked}
    assert {(q.question, q.context) for q in asked}.isdisjoint({(q.question, q.context) for q in made})
    assert all(titles[q.context] == asked[int(q.id[0])].title for q in made)
    assert len(made) == 3 * 2 + 2  # all that there are


def test_new_passages():
    made = make_unlabelled(questions(), {"new": 1.0}, NEW)["new"]
    best = {q.question: q.context for q in reversed(made)}
    assert best["Who built the mill?"] == NEW[0]
    assert best["What does a heron eat?"] == NEW[1]
    assert len(made) == 5


def test_nothing_has_a_label():
    asked = questions()
    made = make_unlabelled(asked, {"lookalike": 1.0, "moved": 1.0, "new": 1.0}, NEW)
    for question in (*made["lookalike"], *made["moved"], *made["new"], bare(asked[0])):
        assert not question.trainable
        assert not question.gold_texts
    assert make_unlabelled(asked, {}) == {"moved": [], "lookalike": [], "new": [], "edited": [], "cloze": []}
    assert make_unlabelled(asked[:1], {"lookalike": 2.0})["lookalike"] == []

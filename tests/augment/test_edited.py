"""Pairs of a question and its own passage, changed."""

from collections import Counter

from quoth.augment import make_unlabelled
from quoth.augment.base import WORD
from quoth.augment.edited import edited
from quoth.augment.sentences import sentence_spans
from quoth.data import Gold, Question

PASSAGES = {
    "one": [
        "The mill at Arden was built by Thomas Hale in 1742. Later Hale sold it to Ada Winter. It had 3 wheels.",
        "In 1801 the painter Ada Winter came to Sella. She stayed for 12 years. Then Winter left for Arden.",
    ],
    "two": [
        "The lake of Sella has 40 islands. On the largest one Peter Moor kept herons. They eat fish.",
        "Saffron is picked in October. The village of Orsa sells 7 kilograms. It was first grown by John Lark.",
    ],
}
ASKED = "Who built the old mill at Arden in 1742 for Hale?"


def other(text):
    return f"What is said of {text.split()[1]} there?"


def questions():
    return [
        Question(
            f"{title}-{i}-{k}",
            ASKED if k else f"What is said of {text.split()[1]} there?",
            text,
            (Gold("x", 0),),
            title=title,
        )
        for title, texts in PASSAGES.items()
        for i, text in enumerate(texts)
        for k in (0, 1)
    ]


def made(count=400, seed=0):
    return edited(questions(), count, seed)


def test_fewer_are_the_beginning_of_more_and_seeds_differ():
    many = made()
    assert len(many) == 400
    assert made(7) == many[:7]
    assert made(seed=1) != many
    assert edited(questions(), 0) == edited([], 5) == []
    first = [question.id.rsplit("-edited-", 1)[0] for question in many[:8]]
    assert sorted(first) == sorted(question.id for question in questions())  # each once before any twice


def test_no_pair_twice_and_none_has_a_label():
    pairs = [(question.question, question.context) for question in made()]
    assert len(set(pairs)) == len(pairs)
    assert not set(pairs) & {(question.question, question.context) for question in questions()}
    assert not any(question.trainable or question.gold_texts for question in made())


def test_names_and_numbers_become_others_of_their_kind_in_question_and_passage_alike():
    """Of pairs whose sentences and words are all there and in order, the words at each place are compared."""
    kinds = {"1742": "year", "1801": "year", **dict.fromkeys(("3", "12", "40", "7"), "number"), "October": "month"}
    changed = Counter()
    for question in made():
        title, i, k = question.id.split("-")[:3]
        text = PASSAGES[title][int(i)]
        own = (text, ASKED if k == "1" else other(text))
        before, after = (WORD.findall(" ".join(pair)) for pair in (own, (question.context, question.question)))
        if len(before) != len(after) or [w for w in before if w.islower()] != [w for w in after if w.islower()]:
            continue
        becomes = dict(zip(before, after))
        assert [becomes[word] for word in before] == after  # the same word becomes the same word everywhere
        for old, new in becomes.items():
            if old != new:
                changed[kinds.get(old, "name")] += 1
                assert kinds.get(old, "name") == kinds.get(new, "name"), (old, new)
    assert min(changed[kind] for kind in ("year", "number", "name")) > 10


def test_sentences_are_left_out_moved_and_added():
    seen = Counter()
    for question in made():
        title, i, _ = question.id.split("-", 2)
        own = len(sentence_spans(PASSAGES[title][int(i)]))
        now = len(sentence_spans(question.context))
        seen["fewer" if now < own else "more" if now > own else "as many"] += 1
        assert now <= own + 1
        assert question.context.strip()
    assert min(seen.values()) > 40


def test_words_of_questions_are_left_out():
    lengths = Counter(len(q.question.split()) - len(ASKED.split()) for q in made() if "-1-edited" in q.id)
    assert set(lengths) == {0, -1}
    assert 0.15 < lengths[-1] / lengths.total() < 0.35


def test_odd_passages():
    odd = [
        Question(str(i), question, text, ())
        for i, (question, text) in enumerate([("?", " "), ("", "x"), ("Who?", "A. B.")])
    ]
    for question in edited(odd, 50):
        assert question.id.split("-")[0] in "012"


def test_it_is_a_kind_of_pair():
    kinds = make_unlabelled(questions(), {"edited": 1.5})
    assert kinds["edited"] == made(12)

"""SQuAD scores against a plain, slow implementation of the published rule, digit for digit."""

from __future__ import annotations

import gzip
import json
import os
import re
import string
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.data.normalise import normalise, normalised_words
from quoth.errors import QuothError
from quoth.score import squad
from quoth.score.squad import average_precisions, best_thresholds, score_squad1, score_squad2


class Question(NamedTuple):
    id: str
    gold_texts: tuple[str, ...]


# --- the rule, as published: one question, one gold, one character at a time -------------------------------


def rule_normalise(text):
    text = "".join(char for char in text.lower() if char not in set(string.punctuation))
    return " ".join(re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", text).split())


def rule_exact(gold, predicted):
    return int(rule_normalise(gold) == rule_normalise(predicted))


def rule_f1(gold, predicted, *, empty_matches_empty):
    gold_tokens, tokens = rule_normalise(gold).split(), rule_normalise(predicted).split()
    if empty_matches_empty and (not gold_tokens or not tokens):
        return int(gold_tokens == tokens)
    same = sum((Counter(gold_tokens) & Counter(tokens)).values())
    if same == 0:
        return 0
    precision, recall = 1.0 * same / len(tokens), 1.0 * same / len(gold_tokens)
    return (2 * precision * recall) / (precision + recall)


def plain_sum(numbers):
    total = 0
    for number in numbers:
        total += number
    return total


def rule_scores(questions, predictions):
    exact, f1 = {}, {}
    for question in questions:
        if question.id not in predictions:
            continue
        golds = [gold for gold in question.gold_texts if rule_normalise(gold)] or [""]
        predicted = predictions[question.id]
        exact[question.id] = max(rule_exact(gold, predicted) for gold in golds)
        f1[question.id] = max(rule_f1(gold, predicted, empty_matches_empty=True) for gold in golds)
    return exact, f1


def rule_squad2(questions, predictions, na_probs=None, threshold=1.0):
    """Everything that the script of 2.0 prints. Questions without prediction are as if not in the data."""
    raw_exact, raw_f1 = rule_scores(questions, predictions)
    has_answer = {q.id: bool(q.gold_texts) for q in questions if q.id in predictions}
    probs = na_probs if na_probs is not None else dict.fromkeys(predictions, 0.0)

    def at_threshold(scores):
        return {k: float(not has_answer[k]) if probs[k] > threshold else s for k, s in scores.items()}

    exact, f1 = at_threshold(raw_exact), at_threshold(raw_f1)
    result = {}
    parts = {"": list(exact), "HasAns_": [k for k in exact if has_answer[k]]}
    parts["NoAns_"] = [k for k in exact if not has_answer[k]]
    for prefix, ids in parts.items():
        if ids:
            result[f"{prefix}exact"] = 100.0 * plain_sum(exact[k] for k in ids) / len(ids)
            result[f"{prefix}f1"] = 100.0 * plain_sum(f1[k] for k in ids) / len(ids)
            result[f"{prefix}total"] = len(ids)
    if na_probs is None:
        return result

    ranked = [k for k in sorted(na_probs, key=lambda k: na_probs[k]) if k in has_answer]
    for name, scores in (("exact", raw_exact), ("f1", raw_f1)):
        current = best = sum(not has for has in has_answer.values())
        best_threshold = 0.0
        for k in ranked:
            if has_answer[k]:
                current += scores[k]
            elif predictions[k]:
                current += -1
            if current > best:
                best, best_threshold = current, na_probs[k]
        result[f"best_{name}"] = 100.0 * best / len(scores)
        result[f"best_{name}_thresh"] = best_threshold

    positives = sum(has_answer.values())
    oracle = {k: float(has) for k, has in has_answer.items()}
    for name, scores in (("exact", raw_exact), ("f1", raw_f1), ("oracle", oracle)):
        if not positives:
            break
        won, last_recall, average = 0.0, 0.0, 0.0
        for i, k in enumerate(ranked):
            if has_answer[k]:
                won += scores[k]
            precision, recall = won / float(i + 1), won / float(positives)
            if i == len(ranked) - 1 or na_probs[k] != na_probs[ranked[i + 1]]:
                average += precision * (recall - last_recall)
                last_recall = recall
        result[f"pr_{name}_ap"] = 100.0 * average
    return result


def rule_squad1(questions, predictions):
    exact = f1 = total = 0
    for question in questions:
        total += 1
        if question.id not in predictions:
            continue
        predicted = predictions[question.id]
        exact += max(rule_exact(gold, predicted) for gold in question.gold_texts)
        f1 += max(rule_f1(gold, predicted, empty_matches_empty=False) for gold in question.gold_texts)
    return {"exact": 100.0 * exact / total, "f1": 100.0 * f1 / total, "total": total}


# --- odd strings ------------------------------------------------------------------------------------------

ASCII = "a an the A An THE and there a.n the-the a'n th_e a_b _ - . ' \x00 \x1f \x7f 1 3.5 $5 fox red"
BEYOND = "\u2019 \u2013 \x85 \xa0 \u2028 \u3000 \u200b \u0301 e\u0301 \xe9 İ ß ẞ Σ ς ſ K 日本 ١ ² ½ 😀 \ud800"
pieces = st.sampled_from(ASCII.split(" ") + BEYOND.split(" "))
blanks = st.sampled_from(["", " ", "  ", "\t", "\r\n", "\x0b", "\x1c"])
phrases = st.lists(st.tuples(pieces, blanks), max_size=6).map(lambda ps: "".join(a + b for a, b in ps))
texts = st.one_of(phrases, phrases, st.text(max_size=12), st.text("aAnthe .-_\x00é", max_size=12))
probs = st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0, -3.0]), st.floats(-1e6, 1e6))


@st.composite
def cases(draw, least_golds=0):
    """Questions, predictions (some missing, some unknown) and na_probs in an order of their own."""
    golds = draw(st.lists(st.lists(texts, min_size=least_golds, max_size=4), min_size=1, max_size=12))
    questions = [Question(f"q{i}", tuple(gold)) for i, gold in enumerate(golds)]
    predictions = {}
    for question in questions:
        near = [texts, st.just("")] + [st.sampled_from(question.gold_texts)] * bool(question.gold_texts)
        if not predictions or draw(st.integers(0, 5)):
            predictions[question.id] = draw(st.one_of(near))
    predictions["unknown"] = "x"
    na_probs = {id: draw(probs) for id in draw(st.permutations(sorted(predictions)))}
    return questions, predictions, na_probs, draw(probs)


def bits(figures):
    """Floats as their exact hexadecimal form: equal to the last digit or not at all."""
    return {key: float(value).hex() for key, value in figures.items()}


@given(texts)
@settings(max_examples=300, deadline=None)
def test_normalise_is_the_published_rule(text):
    assert normalise(text) == rule_normalise(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Quick, brown Fox!", "quick brown fox"),
        ("a.n", ""),
        ("the-the", "thethe"),
        ("the–the", "–"),  # an en dash is no ASCII punctuation, but it does bound a word
        ("a\x00b", "\x00b"),
        ("a_n apple", "apple"),
        ("Á an", "á"),
        ("a\u0301n", "\u0301n"),  # a combining mark is no word character: the article before it goes
        ("1,000.5", "10005"),
        ("\u2003the\u3000end\x85", "end"),
        ("", ""),
    ],
)
def test_normalise_examples(text, expected):
    assert normalise(text) == rule_normalise(text) == expected


@given(cases())
@settings(max_examples=200, deadline=None)
def test_squad2_is_the_published_rule(case):
    questions, predictions, na_probs, threshold = case
    scored = score_squad2(questions, predictions)
    assert bits(scored.summary()) == bits(rule_squad2(questions, predictions))
    assert set(scored.ids) | set(scored.missing) == {q.id for q in questions}

    figures = scored.at_threshold(na_probs, threshold).summary()
    figures |= best_thresholds(scored, predictions, na_probs) | average_precisions(scored, na_probs)
    expected = rule_squad2(questions, predictions, na_probs, threshold)
    assert bits(figures) == bits(expected)
    assert list(figures) == list(expected)


@given(cases(least_golds=1))
@settings(max_examples=100, deadline=None)
def test_squad1_is_the_published_rule(case):
    questions, predictions, _, _ = case
    scored = score_squad1(questions, predictions)
    summary = scored.summary()
    assert bits({k: summary[k] for k in ("exact", "f1", "total")}) == bits(rule_squad1(questions, predictions))


def test_the_last_digit_of_long_sums_and_odd_fractions():
    random = Random(1)
    vocabulary = ["the", "red", "fox", "saw", "a", "blue", "bird", "over", "my", "house"]

    def text():
        return " ".join(random.choices(vocabulary, k=random.randint(1, 20)))

    questions = [Question(str(i), tuple(text() for _ in range(1 + i % 3))) for i in range(500)]
    predictions = {q.id: text() for q in questions}
    scored = score_squad2(questions, predictions)
    scores = list(rule_scores(questions, predictions)[1].values())
    assert scored.f1.tolist() == scores
    expected = rule_squad2(questions, predictions)
    assert bits(scored.summary()) == bits(expected)
    # These scores can tell ways of summing apart: added in pairs, they make another number.
    assert 100.0 * np.sum(scores) / 500 != expected["f1"]


def test_scores_by_question():
    questions = [
        Question("same", ("the cat",)),
        Question("swapped", ("red fox",)),
        Question("half", ("a red fox jumps", "red")),
        Question("articles", ("the", "An")),
        Question("none", ()),
        Question("answered", ()),
        Question("unanswered", ("x",)),
    ]
    predictions = {"same": "Cat!", "swapped": "fox red", "half": "red fox", "articles": "", "none": "the"}
    scored = score_squad2(questions, predictions | {"answered": "x"})
    assert scored.exact.tolist() == [1, 0, 0, 1, 1, 0]
    assert scored.f1.tolist() == [1, 1, 0.8, 1, 1, 0]
    assert scored.has_answer.tolist() == [True] * 4 + [False] * 2
    assert scored.missing == ("unanswered",)
    assert scored.part(~scored.has_answer).ids == ("none", "answered")


def test_squad1_counts_what_is_missing_and_gives_no_f1_for_empty():
    questions = [Question("x", ("fox",)), Question("y", ("fox",)), Question("z", ("the",))]
    scored = score_squad1(questions, {"x": "fox", "z": "an"})
    assert scored.exact.tolist() == [1, 0, 1]
    assert scored.f1.tolist() == [1, 0, 0]
    assert scored.missing == ("y",)


def test_best_threshold_takes_the_first_of_equals_and_may_stop_amid_a_tie():
    questions = [Question("yes", ("x",)), Question("no", ()), Question("late", ("x",))]
    predictions = {"yes": "x", "no": "x", "late": "wrong"}
    scored = score_squad2(questions, predictions)
    tie = best_thresholds(scored, predictions, {"yes": 0.3, "no": 0.3, "late": 0.9})
    assert (tie["best_exact"], tie["best_exact_thresh"]) == (100.0 * 2 / 3, 0.3)
    reverse = best_thresholds(scored, predictions, {"no": 0.3, "yes": 0.3, "late": 0.9})
    assert (reverse["best_exact"], reverse["best_exact_thresh"]) == (100.0 * 1 / 3, 0.0)


def test_a_long_text_is_scored():
    words = " ".join(f"w{i}" for i in range(100_000))
    scored = score_squad2([Question("long", (words + " z",))], {"long": words})
    assert scored.f1[0] == pytest.approx(1, abs=1e-4)


def test_words_are_compared_in_linear_work(monkeypatch):
    """F1 of two texts of n words looks each word up a few times, and never compares all pairs."""
    looked = Counter()

    class Word(str):
        def __hash__(self):
            looked["hash"] += 1
            return super().__hash__()

    for n in (100, 1000):
        looked.clear()
        monkeypatch.setattr(squad, "normalised_words", lambda text, n=n: [Word(f"{text}{i}") for i in range(n)])
        assert score_squad2([Question("q", ("gold",))], {"q": "predicted"}).f1[0] == 0
        assert n < looked["hash"] <= 4 * n


def test_each_text_of_twelve_thousand_questions_is_normalised_once(monkeypatch):
    random = Random(0)
    vocabulary = ["the", "a", *(f"word{i}" for i in range(5000))]

    def text():
        return " ".join(random.choices(vocabulary, k=random.randint(1, 7)))

    questions = [Question(str(i), tuple(text() for _ in range(1 + i % 6))) for i in range(12_000)]
    predictions = {q.id: text() if i % 3 else q.gold_texts[-1] for i, q in enumerate(questions)}
    seen = Counter()

    def counted(text):
        seen[text] += 1
        return normalised_words(text)

    monkeypatch.setattr(squad, "normalised_words", counted)
    scored = score_squad2(questions, predictions)
    assert seen.keys() == {text for q in questions for text in (*q.gold_texts, predictions[q.id])}
    assert max(seen.values()) == 1
    assert scored.exact[::3].all(), "every third prediction is a gold text"


@pytest.mark.parametrize(
    ("questions", "predictions", "message"),
    [
        ([], {}, "no questions"),
        ([Question("x", ())], {"y": "z"}, "no prediction for any of its 1 questions"),
        ([Question("x", ()), Question("x", ())], {"x": "z"}, "question x: the id comes twice"),
    ],
)
def test_mistakes_are_named(questions, predictions, message):
    with pytest.raises(QuothError, match=message):
        score_squad2(questions, predictions)


def test_squad1_refuses_a_question_without_answer():
    with pytest.raises(QuothError, match="question x: no answer in the data"):
        score_squad1([Question("x", ())], {"x": ""})


@pytest.mark.parametrize(
    ("na_probs", "message"),
    [({}, "question x: its no-answer probability is missing"), ({"x": float("nan")}, "nan is not finite")],
)
def test_bad_no_answer_probabilities_are_named(na_probs, message):
    scored = score_squad2([Question("x", ())], {"x": ""})
    with pytest.raises(QuothError, match=message):
        scored.at_threshold(na_probs, 1.0)
    with pytest.raises(QuothError, match=message):
        average_precisions(scored, na_probs)


def test_published_figures_of_a_real_system():
    shared = os.environ.get("QUOTH_SHARED")
    if not shared:
        pytest.skip("QUOTH_SHARED is not set: it names the folder that holds data/squad")
    folder = Path(shared) / "data" / "squad"
    with gzip.open(folder / "validation.json.gz", "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    predictions = json.loads((folder / "reference_predictions.validation.json").read_text(encoding="utf-8"))
    questions = [
        Question(qa["id"], tuple(answer["text"] for answer in qa["answers"]))
        for article in articles
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]
    summary = score_squad2(questions, predictions).summary()
    assert summary["exact"] == 78.4218217243059
    assert summary["f1"] == 82.24497870454641
    assert summary["HasAns_f1"] == 79.07834209702249
    assert summary["NoAns_f1"] == 85.8786610878661
    na_probs = {id: 1.0 - 1.0 / (1 + len(text)) for id, text in predictions.items()}
    scored = score_squad2(questions, predictions)
    figures = scored.at_threshold(na_probs, 0.9).summary() | best_thresholds(scored, predictions, na_probs)
    figures |= average_precisions(scored, na_probs)
    assert bits(figures) == bits(rule_squad2(questions, predictions, na_probs, 0.9))

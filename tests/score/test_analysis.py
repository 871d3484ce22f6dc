"""The error analysis: ten questions counted by hand, and what must hold of any questions and any runs."""

from __future__ import annotations

import gzip
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quoth.answer.calibration import area_under_risk_coverage, fit_calibration, risk_coverage
from quoth.answer.decode import Answer
from quoth.answer.record import Recorded, read_answers
from quoth.data import read
from quoth.data.dataset import Question
from quoth.errors import QuothError
from quoth.score.analysis import calibration, outcome, run_facts
from quoth.score.compare_runs import analyse_runs, together_facts
from quoth.score.slices import QUESTION_WORDS, question_word, slicings
from quoth.score.squad import score_squad2

# --- ten questions with known outcomes ------------------------------------------------------------------------

# id: question, words of the context, gold, title
ASKED = {
    "h1": ("Where is it?", 10, "Rome", "A"),
    "h2": ("Where is it?", 10, "Rome", "A"),
    "h3": ("What is it?", 10, "Rome", "A"),
    "h4": ("In what year was it?", 20, "Rome", "A"),
    "h5": ("How many are they?", 20, "Rome", "A"),
    "h6": ("How?", 30, "Rome in 1900", "A"),
    "n1": ("Is it so?", 30, None, "B"),
    "n2": ("Who was it?", 30, None, "B"),
    "n3": ("Who was it?", 40, None, "B"),
    "n4": ("By whom was it done, and why?", 50, None, ""),
}
# id: null - best, spans with their scores
FIRST = {
    "h1": (-2.0, [("Rome", 5.0), ("Paris", 4.0)]),  # right
    "h2": (-2.5, [("the Rome!", 5.0)]),  # right by the official rule
    "h3": (-1.0, [("Paris", 5.0), ("Rome", 4.5)]),  # wrong; null 4: Paris, Rome, no answer
    "h4": (-1.5, [("Rome in 1900", 5.0), ("Rome", 3.0)]),  # wrong, F1 1/2; null 3.5: Rome in 1900, no answer, Rome
    "h5": (0.5, [("Rome", 5.0)]),  # abstains, the span was right
    "h6": (3.0, [("in Paris", 5.0)]),  # abstains, the span was wrong: F1 2 · 1/2 · 1/3 / (5/6) = 0.4
    "n1": (None, []),  # rightly abstains
    "n2": (2.2, [("Rome", 5.0)]),  # rightly abstains
    "n3": (-0.8, [("Rome", 5.0), ("Paris", 3.0)]),  # answered; null 4.2: Rome, no answer, Paris
    "n4": (-3.5, [("Rome", 5.0), ("Paris", 3.0)]),  # answered; null 1.5: Rome, Paris, no answer
}
RIGHT_OF_SECOND = {"h1", "h3", "h4", "n1", "n3"}


def asked():
    return [
        Question(id, question, " ".join(["w"] * words), (), not gold, title, (gold,) if gold else ())
        for id, (question, words, gold, title) in ASKED.items()
    ]


def recorded(rows, source="run"):
    margins = [math.inf if margin is None else margin for margin, _ in rows.values()]
    answers = tuple(tuple(Answer(text, 0, 0, score) for text, score in spans) for _, spans in rows.values())
    return Recorded(source, tuple(rows), np.array(margins), answers)


def other():
    """A run that is right where it is said to be and else wrong, answering Paris or abstaining."""
    rows = {}
    for id, (_, _, gold, _) in ASKED.items():
        answers = (id in RIGHT_OF_SECOND) == (gold is not None)
        rows[id] = (-1.0, [(gold or "Paris", 5.0)]) if answers else (None, [])
    return recorded(rows)


@pytest.fixture(scope="module")
def facts():
    questions = asked()
    return run_facts(questions, outcome("one", questions, recorded(FIRST)), slicings(questions), resamples=200)


def share(some, of):
    return {"of": of, "questions": some, "share": pytest.approx(100 * some / of)}


class TestTenQuestions:
    def test_official_keys(self, facts):
        expected = {
            "exact": 40, "f1": 45, "total": 10,
            "HasAns_exact": 100 * 2 / 6, "HasAns_f1": 100 * 2.5 / 6, "HasAns_total": 6,
            "NoAns_exact": 50, "NoAns_f1": 50, "NoAns_total": 4,
        }  # fmt: skip
        assert {key: facts[key] for key in expected} == pytest.approx(expected)
        assert facts["interval"].keys() == {key for key in expected if "total" not in key}
        for key, (low, high) in facts["interval"].items():
            assert 0 <= low <= facts[key] <= high <= 100
        assert (facts["run"], facts["threshold"]) == ("one", 0.0)

    def test_confusion(self, facts):
        assert facts["confusion"] == {
            "answered_right": 2, "answered_wrong": 2, "wrongly_abstained": 2,
            "rightly_abstained": 2, "wrongly_answered": 2,
        }  # fmt: skip
        assert facts["called_no_answer"] == share(2, 4)
        assert facts["best_span_right"] == {**share(1, 2), "f1": pytest.approx(70)}

    def test_second_answers(self, facts):
        assert facts["second"] == {"all": share(3, 6), "has_answer": share(2, 4), "no_answer": share(1, 2)}
        assert facts["any_of_n"] == {"n": 3, **share(3, 4)}
        assert facts["has_answer_share"] == {"first": 50.0, "second": pytest.approx(200 / 3)}

    def test_best_threshold(self):
        # By rising margin the sum of F1 is 4 (all abstain), 3 n4, 4 h2, 5 h1, 5.5 h4, 5.5 h3, 4.5 n3, 5.5 h5, …
        questions = asked()
        found = outcome("one", questions, recorded(FIRST), "best")
        assert (found.threshold, found.best.value, found.best.score) == (-1.5, -1.5, pytest.approx(0.55))
        assert [q.id for q, right in zip(questions, found.right) if right] == ["h1", "h2", "n1", "n2", "n3"]
        assert found.scored.f1.mean() == pytest.approx(0.55)

    @pytest.mark.parametrize(
        ("threshold", "lost"),
        [
            # by falling |margin|, with n1 one above the largest margin: n1 n4 h6 h2 n2 h1 h4 h3 n3 h5
            (0.0, [0, 1, 1, 0, 0, 0, 0.5, 1, 1, 1]),
            # by falling |margin + 1.3|: n1 h6 n2 n4 h5 h2 h1 n3 h3 h4
            (-1.3, [0, 1, 0, 1, 1, 0, 0, 0, 1, 0.5]),
            # by rising margin: n4 h2 h1 h4 h3 n3 h5 n2 h6 n1
            (math.inf, [1, 0, 0, 0.5, 1, 1, 0, 1, 0.6, 0]),
        ],
    )
    def test_calibration(self, threshold, lost):
        questions = asked()
        found = calibration(outcome("one", questions, recorded(FIRST), threshold))
        area = np.mean(np.cumsum(lost) / np.arange(1, 11))
        assert found["area_under_risk_coverage"] == pytest.approx(area)
        assert found["temperature"] > 0
        assert 0 <= found["expected_calibration_error"] <= 1

    @pytest.mark.parametrize(
        ("name", "rows"),
        [
            (
                "context_length",
                [("10", 3, 200 / 3, 200 / 3), ("20", 2, 0, 25), ("30", 3, 200 / 3, 200 / 3), ("40–50", 2, 0, 0)],
            ),
            # one to seven words: 1 3 3 3 3 3 3 4 5 7, cut after the 3rd, the 5th and the 8th
            ("question_length", [("1–3", 7, 400 / 7, 400 / 7), ("4", 1, 0, 0), ("5–7", 2, 0, 25)]),
            ("answer_length", [("1", 5, 40, 50), ("3", 1, 0, 0), ("no answer", 4, 50, 50)]),
            (
                "question_word",
                [("what", 2, 0, 25), ("who", 3, 100 / 3, 100 / 3), ("where", 2, 100, 100), ("how", 1, 0, 0),
                 ("how many/much", 1, 0, 0), ("other", 1, 100, 100)],
            ),
            ("title", [("A", 6, 100 / 3, 250 / 6), ("B", 3, 200 / 3, 200 / 3), ("no title", 1, 0, 0)]),
        ],
    )  # fmt: skip
    def test_slices(self, facts, name, rows):
        found = facts["slices"][name]
        assert [(row["label"], row["questions"]) for row in found] == [row[:2] for row in rows]
        assert [(row["exact"], row["f1"]) for row in found] == [pytest.approx(row[2:]) for row in rows]
        for row in found:
            for key in ("exact", "f1"):
                low, high = row["interval"][key]
                assert low - 1e-9 <= row[key] <= high + 1e-9

    def test_lengths_of_right_questions(self, facts):
        assert facts["right"] == {"questions": 4, "context_words": 20.0, "question_words": 3.0}

    def test_two_runs(self):
        questions = asked()
        runs = [outcome("one", questions, recorded(FIRST)), outcome("two", questions, other())]
        found = together_facts(questions, runs, resamples=300)
        assert (found["all_right"], found["none_right"]) == (2, 3)
        assert found["both_right"] == [[4, 2], [2, 5]]
        assert found["uniquely_right"] == [
            {"run": "one", "questions": 2, "context_words": 20.0, "question_words": 3.0, "ids": ["h2", "n2"]},
            {
                "run": "two", "questions": 3, "context_words": pytest.approx(70 / 3),
                "question_words": pytest.approx(11 / 3), "ids": ["h3", "h4", "n3"],
            },
        ]  # fmt: skip
        expected = {
            "exact": 70, "f1": 70, "total": 10, "HasAns_exact": 400 / 6, "HasAns_f1": 400 / 6, "HasAns_total": 6,
            "NoAns_exact": 75, "NoAns_f1": 75, "NoAns_total": 4,
        }  # fmt: skip
        assert found["oracle"] == pytest.approx(expected)
        (against,) = found["against_first"]
        assert against["run"] == "two"
        assert (against["exact"]["difference"], against["f1"]["difference"]) == (pytest.approx(10), pytest.approx(5))
        for key in ("exact", "f1"):
            low, high = against[key]["interval"]
            assert low < 0 < high
            assert 0.05 < against[key]["p_value"] <= 1

    def test_never_abstains(self):
        questions = asked()
        found = run_facts(questions, outcome("one", questions, recorded(FIRST), math.inf), [], resamples=100)
        assert found["threshold"] is None
        assert found["confusion"] == {
            "answered_right": 3, "answered_wrong": 3, "wrongly_abstained": 0,
            "rightly_abstained": 1, "wrongly_answered": 3,
        }  # fmt: skip
        assert found["called_no_answer"] == share(0, 3)
        assert found["best_span_right"] == {"of": 0, "questions": 0, "share": None, "f1": None}
        # "no answer" is no second answer: h3 and h4 have Rome as the second span
        assert found["second"] == {"all": share(2, 6), "has_answer": share(2, 3), "no_answer": share(0, 3)}

    def test_answers_to_other_questions(self):
        with pytest.raises(QuothError, match="run: has no line for question h1 of the data"):
            outcome("one", asked(), recorded({"x": (None, [])}))


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("What is it?", "what"),
        ("what's that", "what"),
        ("In what year was it built?", "what"),
        ("Paris lies on which river?", "which"),
        ("To whom did it go?", "who"),
        ("Whose was it?", "who"),
        ("In the mid 18th century, who did not concur?", "who"),
        ("Why then?", "why"),
        ("How long is it?", "how"),
        ("How many are there?", "how many/much"),
        ("It cost HOW MUCH?", "how many/much"),
        ("The system has how many libraries?", "how many/much"),
        ("How?", "how"),
        ("When violence is used, what is it called?", "what"),
        ("When was it, in 1900?", "when"),
        ("Where did Buddha reside when he was alive?", "where"),
        ("The area where the town sits is called what?", "what"),
        ("It began when?", "when"),
        ("Was it controversial when it was displayed?", "other"),
        ("Name the man who did it.", "other"),
        ("The term was meant to confer?", "other"),
        ("somewhat, nowhere", "other"),
        ("¿?", "other"),
        ("", "other"),
    ],
)
def test_question_word(question, word):
    assert question_word(question) == word
    assert word in QUESTION_WORDS


# --- any questions, any runs ----------------------------------------------------------------------------------

TEXTS = ("Rome", "the Rome", "Rome in 1900", "in Paris", "Paris", "a", "1900")
quarters = st.integers(-12, 12).map(lambda x: x / 4)
thresholds = st.one_of(quarters, st.just(math.inf), st.just("best"))


@st.composite
def question_lists(draw):
    golds = st.one_of(st.just(()), st.lists(st.sampled_from(TEXTS), min_size=1, max_size=2).map(tuple))
    asks = st.sampled_from(["Who?", "What is it?", "In which year, or when, was it?", "Is it?", "How much?"])
    row = st.tuples(asks, st.integers(0, 9), golds, st.sampled_from(["", "A", "B", "C"]))
    rows = draw(st.lists(row, min_size=1, max_size=9))
    return [
        Question(f"q{i}", ask, " ".join(["w"] * words), (), not gold, title, gold)
        for i, (ask, words, gold, title) in enumerate(rows)
    ]


@st.composite
def runs_of(draw, questions, least=1):
    spans = st.lists(st.tuples(st.sampled_from(TEXTS), quarters), max_size=3)
    result = []
    for i in range(draw(st.integers(least, 4))):
        rows = {}
        for question in draw(st.permutations(questions)):
            found = sorted(draw(spans), key=lambda span: -span[1])
            rows[question.id] = (draw(quarters) if found else None, found)
        result.append((f"run {i}", recorded(rows)))
    return result


@given(question_lists().flatmap(lambda qs: st.tuples(st.just(qs), runs_of(qs))), thresholds)
@settings(max_examples=60, deadline=None)
def test_one_run(case, threshold):
    questions, [(name, answers), *_] = case
    run = outcome(name, questions, answers, threshold)
    parts = slicings(questions)
    found = run_facts(questions, run, parts, resamples=20)
    json.dumps(found, allow_nan=False)

    texts = dict(zip((q.id for q in questions), run.texts))
    scored = score_squad2(questions, texts)
    assert {key: found[key] for key in scored.summary()} == scored.summary()

    for part in parts:
        assert len(part.which) == len(questions)
        assert set(part.which.tolist()) == set(range(len(part.labels)))
        assert len(set(part.labels)) == len(part.labels)
        rows = found["slices"][part.name]
        assert sum(row["questions"] for row in rows) == len(questions)
        for key in ("exact", "f1"):
            total = sum(row["questions"] * row[key] for row in rows)
            assert total / len(questions) == pytest.approx(found[key])

    boxes = found["confusion"]
    assert sum(boxes.values()) == len(questions)
    right = boxes["answered_right"] + boxes["rightly_abstained"]
    assert found["right"]["questions"] == right
    assert 100 * right / len(questions) == pytest.approx(found["exact"])
    assert boxes["answered_right"] + boxes["answered_wrong"] + boxes["wrongly_abstained"] == found.get(
        "HasAns_total", 0
    )


@given(question_lists().flatmap(lambda qs: st.tuples(st.just(qs), runs_of(qs))), thresholds)
@settings(max_examples=60, deadline=None)
def test_second_answers_by_a_plain_loop(case, threshold):
    questions, [(name, answers), *_] = case
    run = outcome(name, questions, answers, threshold)
    counts = {"wrong": 0, "second": 0, "any": 0, "has": 0}
    for i, question in enumerate(questions):
        listed = [answer.text for answer in run.recorded.answers[i]]
        if run.threshold < math.inf or not listed:
            null = run.recorded.null_minus_best[i] + (run.recorded.answers[i][0].score if listed else 0)
            ahead = [answer for answer in run.recorded.answers[i] if null - answer.score <= run.threshold]
            listed.insert(len(ahead), "")
        rights = [score_squad2([question], {question.id: text}).exact[0] == 1 for text in listed]
        if not rights[0]:
            counts["wrong"] += 1
            counts["second"] += any(rights[1:2])
            counts["has"] += bool(question.gold_texts)
            counts["any"] += bool(question.gold_texts) and any(rights)
    found = run_facts(questions, run, [], resamples=20)
    assert (found["second"]["all"]["of"], found["second"]["all"]["questions"]) == (counts["wrong"], counts["second"])
    assert (found["any_of_n"]["of"], found["any_of_n"]["questions"]) == (counts["has"], counts["any"])


@given(question_lists().flatmap(lambda qs: st.tuples(st.just(qs), runs_of(qs))), quarters)
@settings(max_examples=40, deadline=None)
def test_no_threshold_beats_the_best(case, threshold):
    questions, [(name, answers), *_] = case
    best = outcome(name, questions, answers, "best")
    assert best.scored.f1.mean() == pytest.approx(best.best.score)
    for other_threshold in (threshold, -100.0, math.inf):
        tried = outcome(name, questions, answers, other_threshold)
        assert tried.scored.f1.mean() <= best.best.score + 1e-12
        assert tried.best == best.best


@given(question_lists().flatmap(lambda qs: st.tuples(st.just(qs), runs_of(qs))))
@settings(max_examples=40, deadline=None)
def test_risk_and_coverage_are_those_of_evaluate(case):
    questions, [(name, answers), *_] = case
    run = outcome(name, questions, answers)
    margins = np.array(run.recorded.finite_margins())
    no_answer = fit_calibration(margins, ~run.scored.has_answer).probability(margins)
    sure = np.round(np.maximum(no_answer, 1 - no_answer), 12)  # ±m are one confidence but for rounding
    assume(len(set(sure.tolist())) == len(set(np.abs(margins).tolist())))  # no sigmoid too steep to tell them apart
    found = run_facts(questions, run, [], resamples=20)["calibration"]
    assert found["area_under_risk_coverage"] == pytest.approx(
        area_under_risk_coverage(*risk_coverage(sure, run.scored.f1))
    )


@given(question_lists().flatmap(lambda qs: st.tuples(st.just(qs), runs_of(qs, least=2))), st.data())
@settings(max_examples=60, deadline=None)
def test_several_runs(case, data):
    questions, named = case
    runs = [outcome(name, questions, answers) for name, answers in named]
    found = together_facts(questions, runs, resamples=20)
    json.dumps(found, allow_nan=False)
    right = [{q.id for q, yes in zip(questions, run.right) if yes} for run in runs]
    alone = [set(row["ids"]) for row in found["uniquely_right"]]
    union = set().union(*right)
    for i, mine in enumerate(alone):
        others = set().union(*(ids for k, ids in enumerate(right) if k != i))
        assert mine == right[i] - others
        assert found["uniquely_right"][i]["questions"] == len(mine)
    assert sum(map(len, alone)) == len(set().union(*alone))  # disjoint
    assert set().union(*alone) <= union
    assert found["oracle"]["exact"] == pytest.approx(100 * len(union) / len(questions))
    assert found["oracle"]["f1"] >= max(100 * run.scored.f1.mean() for run in runs) - 1e-9
    assert found["none_right"] == len(questions) - len(union)
    assert found["all_right"] == len(set.intersection(*right))
    assert found["both_right"] == [[len(one & two) for two in right] for one in right]

    order = data.draw(st.permutations(range(len(runs))))
    turned = together_facts(questions, [runs[i] for i in order], resamples=20)
    assert turned["oracle"] == found["oracle"]
    assert (turned["all_right"], turned["none_right"]) == (found["all_right"], found["none_right"])
    assert turned["uniquely_right"] == [found["uniquely_right"][i] for i in order]
    assert turned["both_right"] == [[found["both_right"][i][k] for k in order] for i in order]


def test_published_figures_of_a_real_system(tmp_path):
    shared = os.environ.get("QUOTH_SHARED")
    if not shared:
        pytest.skip("QUOTH_SHARED is not set: it names the folder that holds data/squad")
    folder = Path(shared) / "data" / "squad"
    predictions = json.loads((folder / "reference_predictions.validation.json").read_text("utf-8"))
    with gzip.open(tmp_path / "answers.jsonl.gz", "wt", encoding="utf-8") as file:
        for id, text in predictions.items():
            answers = [[text, 0, len(text), 0.0]] if text else []
            row = {"id": id, "null_minus_best": -1.0 if text else None, "answers": answers}
            file.write(json.dumps(row) + "\n")
    dataset = read(folder / "validation.json.gz")
    facts = analyse_runs(dataset, [("reference", read_answers(tmp_path / "answers.jsonl.gz"))])
    (found,) = facts["runs"]
    assert (found["exact"], found["f1"]) == (78.4218217243059, 82.24497870454641)
    assert (found["HasAns_f1"], found["NoAns_f1"]) == (79.07834209702249, 85.8786610878661)
    assert (found["total"], found["HasAns_total"], found["NoAns_total"]) == (2053, 1097, 956)
    boxes = found["confusion"]
    assert boxes["rightly_abstained"] == sum(not predictions[q.id] for q in dataset.questions if q.impossible)
    assert boxes["wrongly_abstained"] == sum(not predictions[q.id] for q in dataset.questions if not q.impossible)
    for rows in found["slices"].values():
        assert sum(row["questions"] for row in rows) == 2053
    assert len(found["slices"]["title"]) == 6

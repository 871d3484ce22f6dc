"""A file of answers says what the decoded answers said, and what is wrong with it is one line."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.answer.decode import Decoded
from quoth.answer.record import read_answers, write_answers
from quoth.data.dataset import Question
from quoth.errors import QuothError

CONTEXT = "Änne\u2028saw “Rome” in\n1900."
# quarters add and subtract exactly, so that an order is never a matter of rounding
quarters = st.integers(-40, 40).map(lambda x: x / 4)
thresholds = st.one_of(quarters, st.just(math.inf))


@st.composite
def decoded_answers(draw):
    """Up to six questions with up to six spans each, some without any."""
    count, n = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    spans = st.tuples(st.integers(0, 20), st.integers(1, 4))
    start, end = np.zeros((2, count, n), np.int32)
    score = np.full((count, n), -np.inf)
    for i in range(count):
        for k, value in enumerate(sorted(draw(st.lists(quarters, max_size=n)), reverse=True)):
            first, length = draw(spans)
            start[i, k], end[i, k], score[i, k] = first, first + length, value
    null = np.array(draw(st.lists(quarters, min_size=count, max_size=count)))
    return Decoded(start, end, score, null, [CONTEXT] * count)


def asked(count):
    return [Question(f"q{i}", "who?", CONTEXT, ()) for i in range(count)]


@given(decoded_answers(), thresholds, st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_what_is_read_is_what_was_decoded(tmp_path_factory, decoded, threshold, keep):
    path = tmp_path_factory.mktemp("run") / "answers.jsonl.gz"
    write_answers(path, asked(len(decoded)), decoded, keep)
    found = read_answers(path)
    assert found.ids == tuple(f"q{i}" for i in range(len(decoded)))
    assert found.null_minus_best.tolist() == decoded.null_minus_best.tolist()
    assert found.finite_margins() == decoded.finite_margins()
    assert found.predictions(threshold) == decoded.predictions(threshold)
    for i, kept in enumerate(found.answers):
        spans = [answer for answer in decoded.answers(i, math.inf) if not answer.no_answer]
        assert list(kept) == spans[:keep]
        if keep >= decoded.score.shape[1]:  # nothing was left out
            assert found.ranked(i, threshold) == [answer.text for answer in decoded.answers(i, threshold)]
        assert found.ranked(i, threshold)[0] == found.predictions(threshold)[i]


def some_answers(count=2):
    start, end = np.zeros((count, 7), np.int32), np.full((count, 7), 4, np.int32)
    score = np.tile(np.arange(7.0, 0.0, -1.0), (count, 1))
    score[1] = -np.inf
    return Decoded(start, end, score, np.full(count, 0.1), [CONTEXT] * count)


def test_the_file(tmp_path):
    write_answers(tmp_path / "a.jsonl.gz", asked(2), some_answers())
    write_answers(tmp_path / "b.jsonl.gz", asked(2), some_answers())
    write_answers(tmp_path / "plain.jsonl", asked(2), some_answers())
    data = (tmp_path / "a.jsonl.gz").read_bytes()
    assert data == (tmp_path / "b.jsonl.gz").read_bytes()
    assert gzip.decompress(data) == (tmp_path / "plain.jsonl").read_bytes()
    lines = [json.loads(line) for line in (tmp_path / "plain.jsonl").read_text("utf-8").split("\n")[:-1]]
    five = [["Änne", 0, 4, 7.0 - k] for k in range(5)]
    assert lines == [
        {"id": "q0", "null_minus_best": 0.1 - 7.0, "answers": five},
        {"id": "q1", "null_minus_best": None, "answers": []},
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl.gz", "b.jsonl.gz", "plain.jsonl"]


def test_answers_go_by_id(tmp_path):
    write_answers(tmp_path / "a.jsonl", asked(2), some_answers())
    found = read_answers(tmp_path / "a.jsonl").of(["q1", "q0"])
    assert (found.ids, found.null_minus_best.tolist()) == (("q1", "q0"), [math.inf, 0.1 - 7.0])
    assert [len(spans) for spans in found.answers] == [0, 5]
    for ids, message in (
        (["q0", "q1", "q2"], "a.jsonl: has no line for question q2 of the data"),
        (["q0", "q3"], "has no line for question q3"),
        (["q0"], "question q1 is not in the data"),
    ):
        with pytest.raises(QuothError, match=message):
            found.of(ids)


def test_as_many_answers_as_questions(tmp_path):
    with pytest.raises(QuothError, match="2 answers to 3 questions"):
        write_answers(tmp_path / "a.jsonl", asked(3), some_answers())
    with pytest.raises(QuothError, match="keep=0"):
        write_answers(tmp_path / "a.jsonl", asked(2), some_answers(), keep=0)
    assert not list(tmp_path.iterdir())


GOOD = '{"id": "a", "null_minus_best": 1, "answers": [["x", 0, 1, 2]]}'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "has no answers"),
        (["{"], "line 1: not valid JSON"),
        (["[]"], 'line 1: an object with a text "id" is wanted'),
        (['{"answers": []}'], 'an object with a text "id" is wanted'),
        ([GOOD, GOOD], "line 2: the id a stands twice"),
        (['{"id": "a", "null_minus_best": 1}'], '"answers" must be a list'),
        ([GOOD.replace('"x"', "5")], '"answers" must be a list of [text, start, end, score]'),
        ([GOOD.replace("0, 1, 2", "0, true, 2")], '"answers" must be a list of [text, start, end, score]'),
        ([GOOD.replace("0, 1, 2", "0, 1")], '"answers" must be a list of [text, start, end, score]'),
        ([GOOD.replace("0, 1, 2", "0, 1, NaN")], '"answers" must be a list of [text, start, end, score]'),
        ([GOOD.replace("2]]", '2], ["y", 0, 1, 3]]')], "a score is higher than the one before it"),
        ([GOOD.replace(": 1,", ": null,")], '"null_minus_best" must be a finite number'),
        ([GOOD.replace(": 1,", ": 1e999,")], '"null_minus_best" must be a finite number'),
        ([GOOD.replace(": 1,", f": 1{'0' * 400},")], '"null_minus_best" must be a finite number'),
        (['{"id": "a", "null_minus_best": 1, "answers": []}'], "must be null where there are no answers"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, lines, message):
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(QuothError) as error:
        read_answers(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(QuothError, match="no such file"):
        read_answers(tmp_path / "answers.jsonl.gz")
    (tmp_path / "answers.jsonl.gz").write_bytes(gzip.compress(GOOD.encode())[:-6])
    with pytest.raises(QuothError, match="broken gzip file"):
        read_answers(tmp_path / "answers.jsonl.gz")

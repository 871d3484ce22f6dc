"""What `benchmarks.papers.corrections` counts, on data small enough to count by hand."""

import json

import numpy as np
import pytest
from benchmarks.papers.corrections import _begins_at_cls, label_row, mask_row
from benchmarks.questions import hold_out

from quoth.answer import decode
from quoth.data import read
from quoth.runtime.logits import SpanLogits
from quoth.tasks.examples import Examples
from quoth.windows import Tokenizer, make_windows
from quoth.windows.nsp import make_neighbours

WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
CONTEXT = " ".join([WORDS] * 10)


@pytest.fixture
def squad(tmp_path):
    """Two articles: a question on the second word, and one without an answer."""
    answer = {"text": "two", "answer_start": 4}
    asked = [
        {"id": "a", "question": "who?", "is_impossible": False, "answers": [answer]},
        {"id": "b", "question": "who?", "is_impossible": True, "answers": []},
    ]
    articles = [{"title": qa["id"], "paragraphs": [{"context": CONTEXT, "qas": [qa]}]} for qa in asked]
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"version": "v2.0", "data": articles}))
    return path


def test_labels_by_hand(squad, minilm):
    """160 words in windows of 75 with a step of 50: three a question, and only the first holds the second word."""
    questions, tokens = read(squad).questions, Tokenizer.load(minilm)
    assert label_row(questions, tokens, 80, 50) == {
        "questions": 2,
        "of several windows": 2,
        "windows": 6,
        '"no answer" before': 3,
        "after": 5,
        "answerable questions with such a window": 1,
    }


def test_masks_are_counted(minilm):
    tokens = Tokenizer.load(minilm)
    text = "Unquestionably the antidisestablishmentarians photosynthesised their hypercalcemia; " * 12
    examples = Examples(*make_neighbours([text, text[::-1]], tokens, max_length=64, seed=0))
    whole, apart = (mask_row(examples, tokens, 30522, whole_words) for whole_words in (True, False))
    assert whole["tokens"] == apart["tokens"]
    assert whole["of these in part"] == 0 < apart["of these in part"] <= apart["words of several tokens, masked"]


def test_which_answers_begin_at_cls_as_decode_has_it(squad, minilm):
    """Those are what differs between the rule before and now."""
    questions, tokens = read(squad).questions, Tokenizer.load(minilm)
    windows = make_windows(questions, tokens, max_length=80, step=50, max_query_length=8)
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        start, end = rng.normal(0, 2, (2, len(windows.ids))).astype(np.float32)
        start[windows.starts[:-1]] += 3
        cls = _begins_at_cls(windows, start, end, 2)
        answers = decode(windows, SpanLogits(start, end), [CONTEXT] * 2, rule="bertvision").predictions()
        for begins, answer in zip(cls, answers):
            seen.add((begins, answer != ""))
            assert (
                not begins
                or answer == ""
                or any(
                    answer.startswith(
                        CONTEXT[windows.spans[windows.starts[w] + windows.passage[w, 0], 0] :][: len(answer)]
                    )
                    for w in range(len(windows))
                )
            )
    assert seen >= {(True, True), (False, True)}


def test_halves_by_article(squad, tmp_path):
    paths = hold_out(squad, tmp_path / "halves", 0.5, ("dev", "test"))
    assert [path.name for path in paths] == ["dev.json", "test.json"]
    assert sorted(question.id for path in paths for question in read(path).questions) == ["a", "b"]
    assert all(len(read(path)) == 1 for path in paths)

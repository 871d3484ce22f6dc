"""Real files, where QUOTH_SHARED names a folder that has them: counts that are known."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from quoth.data import read
from quoth.data.dataset import Question
from quoth.data.glue import read_glue
from quoth.windows.batches import Batches
from quoth.windows.labels import span_labels
from quoth.windows.questions import iter_windows, make_windows
from quoth.windows.tokenizer import Tokenizer

FOLDER = os.environ.get("QUOTH_SHARED")
pytestmark = pytest.mark.skipif(not FOLDER, reason="QUOTH_SHARED is not set: no real data to read")
SHARED = Path(FOLDER or ".")


@pytest.fixture(scope="module")
def tokens():
    return Tokenizer.load(SHARED / "weights/minilm-l12-h384")


@pytest.mark.parametrize(
    ("name", "questions", "impossible", "version"),
    [
        ("squad/train", 29_898, 3_390, "2.0"),
        ("squad/validation", 2_053, 956, "2.0"),
        ("shifts/reddit", 9_803, 0, "1.1"),
    ],
)
def test_questions(name, questions, impossible, version):
    dataset = read(SHARED / f"data/{name}.json.gz")
    assert (len(dataset), dataset.report.unanswerable, dataset.version) == (questions, impossible, version)
    assert not dataset.report.skipped
    for question in dataset.questions:
        for gold in question.answers:
            assert question.context[gold.start : gold.end] == gold.text


@pytest.mark.parametrize(
    ("task", "rows"), [("MRPC", 3667 + 408), ("RTE", 2490 + 277), ("SST-2", 67349 + 872), ("CoLA", 8551 + 1043)]
)
def test_sentences(task, rows):
    splits = [read_glue(SHARED / f"data/glue/{task}/{split}.tsv.gz") for split in ("train", "dev")]
    assert sum(len(split) for split in splits) == rows
    assert all(not split.report.skipped for split in splits)


@pytest.mark.slow
def test_windows_of_squad(tokens):
    dataset = read(SHARED / "data/squad/train.json.gz")
    windows = make_windows(dataset.questions, tokens)
    found = span_labels(windows, dataset.questions)
    exact = 0
    answered = np.flatnonzero(found[:, 0])
    for w in answered.tolist():
        window, question = windows[w], dataset.questions[windows.question[w]]
        low, high = window.spans[found[w, 0], 0], window.spans[found[w, 1], 1]
        gold = question.answers[0]
        assert low <= gold.start < gold.end <= high
        exact += question.context[low:high] == gold.text
    assert exact / len(answered) > 0.99  # the rest begin or end inside a word
    batches = Batches(windows.lengths, 12_288, 0)
    totals = [windows.lengths[batches.batch(0, i)].sum() for i in range(batches.count())]
    assert max(totals) - min(totals) <= windows.lengths.max()


@pytest.mark.slow
def test_a_megabyte_of_text(tokens):
    with gzip.open(SHARED / "data/text/books.txt.gz", "rt", encoding="utf-8") as file:
        text = file.read(1_000_000)
    asked = [Question("x", "who?", text, ())]
    pieces = [len(part) for part in iter_windows(asked, tokens, at_most=500)]
    assert max(pieces) <= 500
    assert sum(pieces) == len(make_windows(asked, tokens))
    whole = tokens.encode([text], piece=10**9)[0]
    parts = tokens.encode([text], piece=5000)[0]
    assert np.array_equal(whole.ids, parts.ids)
    assert np.array_equal(whole.spans, parts.spans)

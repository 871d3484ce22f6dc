"""GLUE's files, with the columns of each as GLUE published them."""

import gzip

import numpy as np
import pytest

from laconic.errors import LaconicError
from laconic.text import read_glue

MNLI_HEADER = [
    "index",
    "promptID",
    "pairID",
    "genre",
    "sentence1_binary_parse",
    "sentence2_binary_parse",
    "sentence1_parse",
    "sentence2_parse",
    "sentence1",
    "sentence2",
    "label1",
    "gold_label",
]
STS_HEADER = [
    "index",
    "genre",
    "filename",
    "year",
    "old_index",
    "source1",
    "source2",
    "sentence1",
    "sentence2",
    "score",
]
FILES = {
    "MRPC": [
        ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
        ["1", "1", "2", 'He said " hello .', "One's word"],
        ["0", "3", "4", "A", '"'],
    ],
    "RTE": [
        ["index", "sentence1", "sentence2", "label"],
        ["0", "A one", "B one", "not_entailment"],
        ["1", "A two", "B two", "entailment"],
    ],
    "QNLI": [
        ["index", "question", "sentence", "label"],
        ["0", "A?", "B.", "entailment"],
        ["1", "C?", "D.", "not_entailment"],
    ],
    "QQP": [
        ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"],
        ["1", "2", "3", "A?", "B?", "0"],
        ["4", "5", "6", "C?", "D?", "1"],
        ["7", "8", "9", "broken in two"],
    ],
    "SST-2": [["sentence", "label"], ["it 's a charming journey ", "1"], ["bleak ", "0"]],
    "CoLA": [["gj04", "1", "", "The sailors rode."], ["gj04", "0", "*", "The sailors rided \"of."]],
    "STS-B": [
        STS_HEADER,
        ["0", "news", "f", "2012", "1", "s", "s", "A plane.", "An air plane.", "5.000"],
        ["1", "news", "f", "2012", "2", "s", "s", "A man.", "A dog.", "0.250"],
    ],
    "MNLI": [
        MNLI_HEADER,
        [*["0", "1", "1n", "fiction", "(", "(", "(", "("], "A", "B", "neutral", "neutral"],
        [*["1", "2", "2e", "fiction", "(", "(", "(", "("], "C", "D", "entailment", "entailment"],
        [*["2", "3", "3x", "fiction", "(", "(", "(", "("], "E", "F", "neutral", "-"],
        [*["3", "4", "4c", "fiction", "(", "(", "(", "("], "G", "H", "contradiction", "contradiction"],
    ],
}  # fmt: skip
EXPECTED = {
    "MRPC": (['He said " hello .', "A"], ["One's word", '"'], [1, 0], ("not_equivalent", "equivalent"), ()),
    "RTE": (["A one", "A two"], ["B one", "B two"], [1, 0], ("entailment", "not_entailment"), ()),
    "QNLI": (["A?", "C?"], ["B.", "D."], [0, 1], ("entailment", "not_entailment"), ()),
    "QQP": (["A?", "C?"], ["B?", "D?"], [0, 1], ("not_duplicate", "duplicate"), ("line 4",)),
    "SST-2": (["it 's a charming journey ", "bleak "], None, [1, 0], ("negative", "positive"), ()),
    "CoLA": (
        ["The sailors rode.", 'The sailors rided "of.'],
        None,
        [1, 0],
        ("unacceptable", "acceptable"),
        (),
    ),
    "STS-B": (["A plane.", "A man."], ["An air plane.", "A dog."], [5.0, 0.25], (), ()),
    "MNLI": (
        ["A", "C", "G"],
        ["B", "D", "H"],
        [1, 0, 2],
        ("entailment", "neutral", "contradiction"),
        ("line 4",),
    ),
}


def table(rows, end="\n"):
    return "".join("\t".join(row) + end for row in rows)


def check(sentences, task):
    first, second, labels, names, skipped = EXPECTED[task]
    assert sentences.task == task
    assert sentences.first == first
    assert sentences.second == second
    assert sentences.labels.tolist() == labels
    assert sentences.labels.dtype == (np.int64 if names else np.float64)
    assert sentences.names == names
    assert sentences.report.skipped == skipped
    assert sentences.report.read == len(sentences) + len(skipped)


@pytest.mark.parametrize("task", FILES)
@pytest.mark.parametrize("form", ["plain", "gzip", "windows", "bom"])
def test_each_task(tmp_path, task, form):
    folder = tmp_path / task.lower()
    folder.mkdir()
    path = folder / ("train.tsv.gz" if form == "gzip" else "train.tsv")
    data = table(FILES[task], "\r\n" if form == "windows" else "\n").encode()
    path.write_bytes({"gzip": gzip.compress(data), "bom": b"\xef\xbb\xbf" + data}.get(form, data))
    check(read_glue(path), task)


@pytest.mark.parametrize("task", [task for task in FILES if task != "CoLA"])
def test_the_header_tells_the_task(tmp_path, task):
    path = tmp_path / "train.tsv"
    path.write_text(table(FILES[task]), encoding="utf-8")
    check(read_glue(path), task)


def test_the_task_can_be_named(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text(table(FILES["CoLA"]), encoding="utf-8")
    check(read_glue(path, "cola"), "CoLA")
    with pytest.raises(LaconicError, match="which GLUE task"):
        read_glue(path)
    with pytest.raises(LaconicError, match="'wnli' is not a GLUE task known here"):
        read_glue(path, "wnli")


@pytest.mark.parametrize(
    ("task", "rows"),
    [
        ("CoLA", [["index", "sentence"], ["0", "Bill ran."]]),
        ("SST-2", [["index", "sentence"], ["0", "uneasy mishmash"]]),
        ("MRPC", [["index", "#1 ID", "#2 ID", "#1 String", "#2 String"], ["0", "1", "2", "A", "B"]]),
        ("QQP", [["id", "question1", "question2"], ["0", "A?", "B?"]]),
        ("STS-B", [STS_HEADER[:-1], ["0", "news", "f", "2012", "1", "s", "s", "A", "B"]]),
        ("MNLI", [MNLI_HEADER[:-2], [*["0", "1", "1n", "fiction", "(", "(", "(", "("], "A", "B"]]),
    ],
)
def test_a_test_split_has_no_labels(tmp_path, task, rows):
    (tmp_path / task).mkdir()
    path = tmp_path / task / "test.tsv"
    path.write_text(table(rows), encoding="utf-8")
    sentences = read_glue(path)
    assert sentences.labels is None
    assert len(sentences) == 1


@pytest.mark.parametrize(
    ("task", "content", "says"),
    [
        ("RTE", "", "is empty"),
        ("RTE", "index\tsentence1\tlabel\n", "no column 'sentence2' for RTE"),
        ("RTE", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tmaybe\n", "line 2: the label is 'maybe'"),
        ("RTE", "index\tsentence1\tsentence2\tlabel\n", "no row"),
        ("STS-B", table([STS_HEADER, ["0"] * 9 + ["high"]]), "line 2: the score is 'high'"),
    ],
)
def test_malformed(tmp_path, task, content, says):
    (tmp_path / task).mkdir()
    path = tmp_path / task / "train.tsv"
    path.write_text(content)
    with pytest.raises(LaconicError, match=says):
        read_glue(path)

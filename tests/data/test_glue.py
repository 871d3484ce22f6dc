"""GLUE's files, with the columns of each as GLUE published them."""

import gzip
import sys
import types

import numpy as np
import pytest

from quoth.data.glue import read_glue
from quoth.errors import QuothError

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
    with pytest.raises(QuothError, match="which GLUE task"):
        read_glue(path)
    with pytest.raises(QuothError, match="'wnli' is not a GLUE task known here"):
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
    with pytest.raises(QuothError, match=says):
        read_glue(path)


# The hub's columns (nyu-mll/glue), and labels as numbers; −1 in a test split.
HUB = {
    "mrpc": ("MRPC", {"sentence1": ["A\tone", "B"], "sentence2": ["C", "D"], "label": [1, 0]}),
    "rte": ("RTE", {"sentence1": ["A", "B"], "sentence2": ["C", "D"], "label": [1, 0]}),
    "sst2": ("SST-2", {"sentence": ["A", "B"], "label": [0, 1]}),
    "cola": ("CoLA", {"sentence": ["A", "B"], "label": [1, 1]}),
    "mnli": ("MNLI", {"premise": ["A", "B"], "hypothesis": ["C", "D"], "label": [2, 0]}),
    "qnli": ("QNLI", {"question": ["A", "B"], "sentence": ["C", "D"], "label": [0, 1]}),
    "qqp": ("QQP", {"question1": ["A", "B"], "question2": ["C", "D"], "label": [0, 1]}),
    "stsb": ("STS-B", {"sentence1": ["A", "B"], "sentence2": ["C", "D"], "label": [2.7999999523162842, 0.0]}),
}


def stand_in(monkeypatch, columns):
    """In the place of the package `datasets`: rows as dicts, and what was asked for."""
    calls = []

    def load_dataset(*asked, split):
        calls.append((*asked, split))
        if isinstance(columns, Exception):
            raise columns
        return [{**dict(zip(columns, row)), "idx": i} for i, row in enumerate(zip(*columns.values()))]

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return calls


@pytest.mark.parametrize("part", HUB)
def test_hub(monkeypatch, part):
    task, columns = HUB[part]
    calls = stand_in(monkeypatch, columns)
    sentences = read_glue(f"nyu-mll/glue/{part}:train")
    texts = [column for name, column in columns.items() if name != "label"]
    assert sentences.task == task
    assert sentences.first == texts[0]
    assert sentences.second == (texts[1] if len(texts) > 1 else None)
    assert sentences.labels.tolist() == columns["label"]
    assert sentences.names == EXPECTED[task][3]
    assert (sentences.report.source, sentences.report.read) == (f"nyu-mll/glue/{part}:train", 2)
    unlabelled = {**columns, "label": [-1, -1]}
    assert calls == [("nyu-mll/glue", part, "train")]
    calls = stand_in(monkeypatch, unlabelled)
    assert read_glue(f"nyu-mll/glue/{part}", task).labels is None
    assert calls == [("nyu-mll/glue", part, "validation")]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (None, r"nyu-mll/glue/rte: no such file; to read it from the hub, first: pip install 'quoth\[hub\]'"),
        (OSError("no network\nand a long story"), r"nyu-mll/glue/rte: .*'train'\) cannot be read: no network$"),
        ({"sentence1": ["A"], "label": [0]}, "nyu-mll/glue/rte:train, row 1: no column 'sentence2'"),
        ({"sentence1": ["A"], "sentence2": ["B"]}, "rte:train, row 1: no column 'label'"),
        ({"sentence1": ["A"], "sentence2": ["B"], "label": [2]}, "rte:train, row 1: the label is 2, a number from 0"),
        ({"sentence1": ["A"], "sentence2": ["B"], "label": ["x"]}, "rte:train, row 1: the label is 'x'"),
    ],
)
def test_hub_errors(monkeypatch, columns, says):
    if columns is None:
        monkeypatch.setitem(sys.modules, "datasets", None)
    else:
        stand_in(monkeypatch, columns)
    with pytest.raises(QuothError, match=says):
        read_glue("nyu-mll/glue/rte:train")


def test_what_is_a_file_or_no_task_is_not_of_the_hub(monkeypatch, tmp_path):
    calls = stand_in(monkeypatch, HUB["rte"][1])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my/glue").mkdir(parents=True)
    (tmp_path / "my/glue/rte").write_text(table(FILES["RTE"]), encoding="utf-8")
    assert read_glue("my/glue/rte").first == ["A one", "A two"]
    for missing in ("nyu-mll/glue/wnli:train", "my/RTE/train.tsv", "glue/rte", "/my/glue/rte"):
        with pytest.raises(QuothError, match="no such file"):
            read_glue(missing)
    assert not calls

"""Reading questions: what is kept, what is repaired, what is reported, what is refused."""

import contextlib
import csv
import gzip
import io
import json
import sys
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.data import read
from quoth.data.check import place
from quoth.data.dataset import Gold, Question, Report
from quoth.data.read import read_hub
from quoth.data.rows import read_csv, read_jsonl
from quoth.data.squad import read_squad
from quoth.errors import QuothError

CONTEXT = "The fox saw the dog. The dog ran: café, 東京 😀!"


def answer(text, start=None):
    return {"text": text, "answer_start": CONTEXT.find(text) if start is None else start}


def squad(*qas, version="v2.0", context=CONTEXT):
    return {"version": version, "data": [{"title": "Foxes", "paragraphs": [{"context": context, "qas": list(qas)}]}]}


def qa(name, *answers, **more):
    return {"id": name, "question": f"{name}?", "answers": list(answers), **more}


def write(path, content, zipped=False):
    data = (content if isinstance(content, str) else json.dumps(content)).encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    return path


@pytest.mark.parametrize("name", ["dev.json", "dev.json.gz", "DEV.JSON"])
def test_squad(tmp_path, name):
    content = squad(
        qa("a", answer("fox"), answer("The fox"), is_impossible=False),
        qa("b", is_impossible=True, plausible_answers=[answer("dog")]),
    )
    dataset = read(write(tmp_path / name, content, name.endswith("gz")))
    assert dataset.questions == [
        Question("a", "a?", CONTEXT, (Gold("fox", 4), Gold("The fox", 0)), False, "Foxes", ("fox", "The fox")),
        Question("b", "b?", CONTEXT, (), True, "Foxes", ()),
    ]
    assert dataset.version == "2.0"
    assert len(dataset) == 2
    assert dataset.trainable == dataset.questions
    assert dataset.report == Report(str(tmp_path / name), read=2, unanswerable=1)
    assert dataset.report.lines() == [f"{tmp_path / name}: 2 read, 1 of them unanswerable"]


def test_version(tmp_path):
    path = tmp_path / "x.json"
    assert read(write(path, squad(qa("a", answer("fox")), version="1.1"))).version == "1.1"
    assert read(write(path, squad(qa("a", answer("fox")), version="v2.0"))).version == "2.0"
    assert read(write(path, squad(qa("a"), version="1.1"))).version == "2.0"  # without answers: impossible
    without = squad(qa("a", answer("fox")))
    del without["version"]
    assert read(write(path, without)).version == "1.1"


def test_offsets_are_repaired_or_reported(tmp_path):
    content = squad(
        qa("right", answer("dog", 16)),
        qa("second", answer("dog", 25)),
        qa("moved", answer("fox", 5)),
        qa("negative", answer("!", -1)),
        qa("beyond", answer("東京", 10**30)),
        qa("twice", answer("dog", 3)),
        qa("absent", answer("cat", 0)),
        qa("blank", answer(" ", 3)),
        qa("some", answer("cat", 0), answer("fox", 0), answer("café", 34)),
        qa("flagged", answer("fox", 4), is_impossible=True),
        qa("neither", is_impossible=False),
    )
    dataset = read_squad(write(tmp_path / "x.json", content))
    by_id = {q.id: q for q in dataset.questions}
    assert len(by_id) == 11
    assert by_id["right"].answers == (Gold("dog", 16),)
    assert by_id["second"].answers == (Gold("dog", 25),)
    assert by_id["moved"].answers == (Gold("fox", 4),)
    assert by_id["some"].answers == (Gold("fox", 4), Gold("café", 34))
    assert by_id["some"].gold_texts == ("cat", "fox", "café")
    assert by_id["twice"].gold_texts == ("dog",)
    assert by_id["flagged"].impossible
    assert by_id["flagged"].gold_texts == ("fox",)
    assert not by_id["neither"].impossible
    report = dataset.report
    assert report.repaired == ("moved", "negative", "beyond", "some")
    assert report.partial == ("some",)
    assert report.skipped == ("twice", "absent", "blank", "neither")
    assert report.contradictory == ("flagged",)
    assert [q.id for q in dataset.questions if q not in dataset.trainable] == list(report.skipped)
    lines = report.lines()
    assert lines[0].endswith("11 read, 1 of them unanswerable")
    assert lines[1].startswith("  4 answer not at its offset")
    assert "twice, absent, blank, neither" in lines[3]
    assert len(lines) == 5


@given(context=st.text("ab é😀", max_size=20), gold=st.text("ab é😀", max_size=3), start=st.integers(-5, 25))
def test_place(context, gold, start):
    """By trying every place."""
    found = place(context, gold, start)
    places = [i for i in range(len(context) + 1) if context[i : i + len(gold)] == gold]
    if not gold.strip():
        assert found is None
    elif start in places:
        assert found == Gold(gold, start)
    elif len(places) == 1:
        assert found == Gold(gold, places[0])
    else:
        assert found is None
    if found is not None:
        assert context[found.start : found.end] == gold


def test_gold_texts_default_to_the_answers():
    assert Question("x", "q", "a b", (Gold("a", 0), Gold("b", 2))).gold_texts == ("a", "b")


def test_a_repeated_id_is_refused(tmp_path):
    path = write(tmp_path / "x.json", squad(qa("a", answer("fox")), qa("a", answer("dog"))))
    with pytest.raises(QuothError, match="'a' stands twice"):
        read(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "line 1, column 2"),
        ("[1, 2]", 'no "data"'),
        ('{"data": 3}', '"data": a list is wanted, not int'),
        ('{"data": [3]}', "article 1: an object is wanted"),
        ('{"data": [{}]}', 'article 1: "paragraphs" is missing'),
        ('{"data": [{"title": 3, "paragraphs": []}]}', '"title": a string'),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', 'paragraph 1: "context" is missing'),
        (squad(), None),
        (squad({"question": "?"}), 'question 1: "id" is missing'),
        (squad({"id": "a", "answers": []}), r'\(id a\): "question" is missing'),
        (squad({"id": "a", "question": "?"}), r'\(id a\): "answers" is missing'),
        (squad(qa("a", {"text": "fox"})), r'\(id a\): "answer_start" is missing'),
        (squad(qa("a", answer("fox", "4"))), '"answer_start": an integer is wanted, not str'),
        (squad(qa("a", answer("fox", True))), '"answer_start": an integer is wanted, not bool'),
        (squad(qa("a", is_impossible="no")), '"is_impossible": true or false'),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_malformed_squad(tmp_path, content, says):
    path = write(tmp_path / "x.json", content)
    if says is None:
        assert len(read(path)) == 0
        return
    with pytest.raises(QuothError, match=says) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_broken_bytes(tmp_path):
    whole = gzip.compress(json.dumps(squad(qa("a", answer("fox")))).encode())
    path = tmp_path / "x.json.gz"
    for broken in (whole[:-12], whole[: len(whole) // 2], whole[:11], whole[:-8] + b"\0" * 8, b"\x1f\x8bhello"):
        path.write_bytes(broken)
        with pytest.raises(QuothError, match="broken gzip file"):
            read(path)
    (tmp_path / "x.jsonl").write_bytes(b'{"question": "a"}\n\n\xff\xfe')
    with pytest.raises(QuothError, match="line 3: not UTF-8"):
        read(tmp_path / "x.jsonl")
    (tmp_path / "x.json").mkdir()
    with pytest.raises(QuothError, match="cannot be read"):
        read(tmp_path / "x.json")


def test_gzip_is_told_by_its_bytes_and_a_bom_is_left_out(tmp_path):
    content = json.dumps(squad(qa("a", answer("fox"))))
    (tmp_path / "zipped.json").write_bytes(gzip.compress(content.encode("utf-8-sig")))
    assert len(read(tmp_path / "zipped.json")) == 1
    (tmp_path / "plain.json.gz").write_bytes(content.encode())
    assert len(read(tmp_path / "plain.json.gz")) == 1


def test_json_lines(tmp_path):
    rows = [
        {"question": "q1", "context": CONTEXT, "answer": "fox", "answer_start": 4},
        {"id": 7, "question": "q2", "context": CONTEXT, "answer": "fox"},
        {"id": "x", "question": "q3", "context": CONTEXT, "answer": None, "answer_start": None, "title": "T"},
        {"id": "y", "question": "q4", "context": CONTEXT},
        {"id": "z", "question": "q5", "context": CONTEXT, "answer": ["dog", "fox"], "answer_start": [16, 4]},
        {"id": "h", "question": "q6", "context": CONTEXT, "answers": {"text": ["dog"], "answer_start": [16]}},
        {"id": "s", "question": "q7", "context": CONTEXT, "answers": [answer("fox")]},
        {"id": "e", "question": "q8", "context": CONTEXT, "answers": {"text": [], "answer_start": []}},
        {"id": "n", "question": "a\u2028b\x85", "context": CONTEXT, "answer": [], "answer_start": []},
    ]
    lines = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n"
    dataset = read(write(tmp_path / "x.jsonl.gz", lines, zipped=True))
    assert [q.id for q in dataset.questions] == ["1", "7", "x", "y", "z", "h", "s", "e", "n"]
    assert [q.impossible for q in dataset.questions] == [False, False, True, True, False, False, False, True, True]
    assert dataset.questions[1].answers == (Gold("fox", 4),)
    assert dataset.questions[2].title == "T"
    assert dataset.questions[4].answers == (Gold("dog", 16), Gold("fox", 4))
    assert dataset.report.repaired == ("7",)
    assert dataset.questions[8].question == "a\u2028b\x85"
    assert len({id(q.context) for q in dataset.questions}) == 1  # equal passages are one string in memory


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2: not valid JSON"),
        ("3", "line 2: an object is wanted, not int"),
        ('{"context": "c"}', r'line 2 \(id 2\): "question" is missing'),
        ('{"question": "q", "context": 3}', '"context": a string is wanted, not int'),
        ('{"question": "q", "context": "c", "answer": 3, "answer_start": 0}', "an answer: a string"),
        ('{"question": "q", "context": "c", "answer": "c", "answer_start": 0.5}', "an integer is wanted"),
        ('{"question": "q", "context": "c", "answer": ["c", "c"], "answer_start": [0]}', "2 answers but 1 offsets"),
        ('{"question": "q", "context": "c", "answers": 3}', "an object is wanted"),
        ('{"question": "q", "context": "c", "title": 3}', '"title": a string'),
        (f'{{"question": "q", "context": "c", "answer_start": {"1" * 5000}}}', "not valid JSON"),
    ],
)
def test_malformed_json_lines(tmp_path, line, says):
    path = write(tmp_path / "x.jsonl", '{"question": "q", "context": "c"}\n' + line)
    with pytest.raises(QuothError, match=says):
        read(path)


def test_csv(tmp_path):
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(["context", "question", "answer", "answer_start", "note"])
    writer.writerow([CONTEXT, 'a "quoted", one\r\ntwo', "fox", "4", "n"])
    writer.writerow([CONTEXT, "q2", "", "", ""])
    writer.writerow([CONTEXT, "q3", "café", "", ""])
    writer.writerow(["x" * 200_000 + " y", "q4", "y", "200001", ""])
    dataset = read(write(tmp_path / "x.csv", "\ufeff" + out.getvalue()))
    assert [q.id for q in dataset.questions] == ["1", "2", "3", "4"]
    assert dataset.questions[0].question == 'a "quoted", one\r\ntwo'
    assert dataset.questions[0].answers == (Gold("fox", 4),)
    assert dataset.questions[1].impossible
    assert dataset.questions[2].answers == (Gold("café", 34),)
    assert dataset.questions[3].answers == (Gold("y", 200_001),)
    assert csv.field_size_limit() == 131_072
    unlabelled = read(write(tmp_path / "q.csv", "question,context\nq,c\n"))
    assert unlabelled.report.unanswerable == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "no column 'question'"),
        ("question,text\nq,c\n", "no column 'context'"),
        ("question;context\nq;c\n", "no column 'question'"),
        ("question,context,context\nq,c,c\n", "'context' stands twice"),
        ("question,context,answers\nq,c,a\n", "one answer a row"),
        ("question,context\nq,c\nq,c,d\n", "line 3: 3 cells under 2 columns"),
        ("question,context\nq\n", "line 2: 1 cells under 2 columns"),
        ("question,context,answer,answer_start\nq,c,c,four\n", "line 2: answer_start is 'four'"),
        ('question,context\nq,"c\n', "not valid CSV"),
    ],
)
def test_malformed_csv(tmp_path, content, says):
    path = write(tmp_path / "x.csv", content)
    with pytest.raises(QuothError, match=says) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def rows(draw):
    """A question whose answers stand where they say; the answer is not blank."""
    context = draw(words) + draw(st.sampled_from(["fox", "東京", "e\u0301"])) + draw(words)
    start = draw(st.integers(0, len(context) - 1))
    end = draw(st.integers(start + 1, len(context)))
    gold = context[start:end]
    return draw(words), context, (gold, start) if gold.strip() else None


@given(table=st.lists(rows(), max_size=5))
@settings(max_examples=60, deadline=None)
def test_all_formats_agree(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("formats")
    expected = [
        Question(str(i), q, c, (Gold(*gold),) if gold else (), not gold) for i, (q, c, gold) in enumerate(table, 1)
    ]
    flat = [
        {"question": q, "context": c, "answer": gold[0] if gold else "", "answer_start": gold[1] if gold else ""}
        for q, c, gold in table
    ]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in flat)
    assert read_jsonl(write(folder / "x.jsonl", lines)).questions == expected
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, ["question", "context", "answer", "answer_start"])
    writer.writeheader()
    writer.writerows(flat)
    assert read_csv(write(folder / "x.csv", out.getvalue())).questions == expected
    paragraphs = [
        {"context": q.context, "qas": [{"id": q.id, "question": q.question, "answers": [
            {"text": gold.text, "answer_start": gold.start} for gold in q.answers]}]}
        for q in expected
    ]  # fmt: skip
    nested = {"version": "1.1", "data": [{"paragraphs": paragraphs}]}
    assert read_squad(write(folder / "x.json", nested)).questions == expected


@given(data=st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_read_or_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("bytes")
    for name in ("x.json", "x.jsonl", "x.csv"):
        (folder / name).write_bytes(data)
        with contextlib.suppress(QuothError):
            assert read(folder / name).report.source == str(folder / name)


def test_names_that_cannot_be_read(tmp_path):
    (tmp_path / "notes.md").write_text("hello")
    for name, says in (
        (tmp_path / "none.json", "no such file"),
        (tmp_path / "none", "no such file"),
        ("./none", "no such file"),
        ("", "is a folder"),
        (tmp_path, "is a folder"),
        (tmp_path / "dev.tsv", "read_glue"),
        (tmp_path / "notes.md", "name it by what it holds"),
    ):
        with pytest.raises(QuothError, match=says):
            read(name)


def fake_datasets(monkeypatch, load_dataset):
    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)


def test_hub(monkeypatch):
    """Against a stand-in for the package: the same call, and rows of the same form."""
    calls = []

    def load_dataset(name, split):
        calls.append((name, split))
        return [
            {
                "id": "a",
                "title": "T",
                "context": CONTEXT,
                "question": "q",
                "answers": {"text": ["fox"], "answer_start": [4]},
            },
            {"id": "b", "title": "T", "context": CONTEXT, "question": "q", "answers": {"text": [], "answer_start": []}},
        ]

    fake_datasets(monkeypatch, load_dataset)
    dataset = read("squad_v2")
    assert dataset.questions[0].answers == (Gold("fox", 4),)
    assert dataset.questions[1].impossible
    assert dataset.version == "2.0"
    assert read("rajpurkar/squad:train").report.source == "rajpurkar/squad:train"
    assert calls == [("squad_v2", "validation"), ("rajpurkar/squad", "train")]


def test_hub_errors(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(QuothError, match=r"squad_v2: no such file.*pip install 'quoth\[hub\]'"):
        read("squad_v2")

    def broken(name, split):
        raise OSError("no network\nand a long story")

    fake_datasets(monkeypatch, broken)
    with pytest.raises(QuothError, match=r"cannot be read: no network$"):
        read_hub("squad_v2")
    fake_datasets(monkeypatch, lambda name, split: [{"text": "x"}])
    with pytest.raises(QuothError, match=r'imdb:test, row 1 \(id 1\): "question" is missing'):
        read_hub("imdb", "test")

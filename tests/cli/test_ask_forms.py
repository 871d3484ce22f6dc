"""`quoth ask` with the embedded reader over a folder of text, Markdown, HTML and PDF: every form of output.

What is compared with is the files themselves: the source at the place, the page, the headings that were written.
"""

import json
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from search.writing import PdfPages

SCHEMA = json.loads((Path(__file__).parents[2] / "src/quoth/answer/ask.schema.json").read_text(encoding="utf-8"))
MASTER = "Who is the harbour master?"
FILES = {
    "handbook.md": "# Handbook\n\n## Staff\n\nThe harbour master is **Ingrid Solberg**. She lives in\nthe red house.\n",
    "rules.html": "<html><body><h1>Rules</h1><h2>Speed</h2><p>The speed limit is <b>4&nbsp;knots</b>.</p>\n"
    "<h2>Letters</h2><p>Write to the harbour master, Ingrid Solberg, in time.</p></body></html>",
    "log.txt": "Log of the harbour\r\n\r\n"
    "It rained. The old harbour master, Olav Berg, retired in the spring of\r\n1998 after thirty-one years of service, "
    "and nobody took his place for\r\na month.\r\n",
    "copy.txt": "The harbour master is Ingrid Solberg.\n",
}
PAGES = ["The year began with a storm. " * 300, "The repair of the north pier cost 310,000 euros. It took a year."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("harbour")
    for name, text in FILES.items():
        (place / name).write_bytes(text.encode())
    (place / "report.pdf").write_bytes(PdfPages().write(PAGES))
    return place


@pytest.fixture
def ask(cli):
    def run(*arguments):
        result = cli("ask", *arguments)
        assert result.returncode == 0, result.stderr
        return result

    return run


@pytest.fixture
def ask_json(ask):
    """One object, which is what the schema says."""

    def run(*arguments):
        found = json.loads(ask(*arguments, "--json").stdout)
        check(found)
        return found

    return run


def check(found):
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    for one in (*found["answers"], *([found["rejected"]] if found["rejected"] else [])):
        start, end = one["in_sentence"]
        assert one["sentence"][start:end] == one["answer"]
    for one in found.get("sentences", ()):
        for inside in one["answers"]:
            start, end = inside["in_sentence"]
            assert one["sentence"][start:end] == inside["answer"]


def test_the_schema_is_one_and_refuses_what_is_not_it(ask_json, folder):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    found = ask_json(MASTER, folder, "--all")
    changes = [{"schema": 2}, {"score": 2}, {"answer": None}, {"answers": []}, {"form": "top"}, {"more": 1}]
    for change in changes:
        with pytest.raises(jsonschema.ValidationError):
            check({**found, **change})
    with pytest.raises(jsonschema.ValidationError):
        check({key: value for key, value in found.items() if key != "distinct"})
    for key in ("file", "headings", "sentence", "count"):
        lacking = {name: value for name, value in found["answers"][0].items() if name != key}
        with pytest.raises(jsonschema.ValidationError):
            check({**found, "answers": [lacking]})


@pytest.mark.parametrize(
    ("question", "answer", "file", "line", "headings", "source"),
    [
        (MASTER, "Ingrid Solberg", "copy.txt", 1, [], "Ingrid Solberg"),
        ("Where does she live?", "in the red house", "handbook.md", 5, ["Handbook", "Staff"], "in\nthe red house"),
        ("What is the speed limit?", "4 knots", "rules.html", 1, ["Rules", "Speed"], "4&nbsp;knots"),
        ("When exactly did Olav Berg retire?", "spring of 1998", "log.txt", 3, [], "spring of\r\n1998"),
    ],
)
def test_places_in_text(ask, ask_json, folder, question, answer, file, line, headings, source):
    found = ask_json(question, folder / file)
    (one,) = found["answers"]
    assert one["answer"].replace("\xa0", " ") == answer
    text = FILES[file]
    assert text[one["start"] : one["end"]] == source
    assert one["line"] == line == text[: one["start"]].count("\n") + 1
    assert one["headings"] == headings
    assert (one["file"], one["page"], one["boxes"]) == (str(folder / file), None, [])
    shown = ask(question, folder / file).stdout.splitlines()
    path = f", {' > '.join(headings)}" if headings else ""
    characters = f"characters {one['start']}–{one['end']}{path}, score {one['score']:.2f}"
    assert shown[2] == f"  {folder / file}:{one['line']}, {characters}"


def test_the_page_of_a_pdf(ask, ask_json, folder):
    found = ask_json("What did the repair of the north pier cost?", folder)
    (one,) = found["answers"]
    assert (one["answer"], one["sentence"]) == ("310,000 euros", "The repair of the north pier cost 310,000 euros.")
    assert (one["file"], one["page"], one["line"], one["start"]) == (str(folder / "report.pdf"), 2, None, None)
    ((x0, y0, x1, y1),) = one["boxes"]
    assert 50 < x0 < x1 < 562
    assert 0 < y1 - y0 < 15
    shown = ask("What did the repair of the north pier cost?", folder).stdout.splitlines()
    assert shown == [
        "310,000 euros",
        "  The repair of the north pier cost **310,000 euros**.",
        f"  {folder / 'report.pdf'}, page 2, score {one['score']:.2f}",
    ]


def test_a_hard_line_break_is_no_end_of_a_sentence(ask_json, folder):
    found = ask_json("When did Olav Berg retire?", folder)
    sentence = FILES["log.txt"][FILES["log.txt"].index("The old") :].strip().replace("\r\n", " ")
    assert sentence.endswith("a month.")
    assert found["answers"][0]["sentence"] == sentence
    assert found["answers"][0]["sentence_start"] == FILES["log.txt"].index("The old")


def test_all(ask, ask_json, folder):
    found = ask_json(MASTER, folder, "--all")
    names = {one["answer"]: {Path(place["file"]).name for place in one["places"]} for one in found["answers"]}
    assert names == {"Ingrid Solberg": {"handbook.md", "rules.html", "copy.txt"}, "Olav Berg": {"log.txt"}}
    assert [one["count"] for one in found["answers"]] == [3, 1]
    assert found["distinct"] == 2
    for one in found["answers"]:
        scores = [place["score"] for place in one["places"]]
        assert scores == sorted(scores, reverse=True)
        assert {key: value for key, value in one.items() if key not in ("count", "places")} == one["places"][0]
    shown = ask(MASTER, folder, "--all").stdout.splitlines()
    assert (shown[0], shown[-1]) == ("Ingrid Solberg (3 places)", "2 answers in 4 places.")
    assert shown[7] == "Olav Berg"


def test_all_above_a_score(ask, ask_json, folder):
    every = ask_json(MASTER, folder, "--all", "--min-score", "0")
    scores = [place["score"] for one in every["answers"] for place in one["places"]]
    assert len(scores) > 4
    least = sorted(scores)[-2]
    some = ask_json(MASTER, folder, "--all", "--min-score", repr(least))
    assert sum(one["count"] for one in some["answers"]) == sum(score >= least for score in scores)
    one = ask_json(MASTER, folder, "--all", "--top", "1", "--min-score", "0")
    assert (one["answers"], one["distinct"]) == (every["answers"][:1], every["distinct"])
    assert f"1 of {every['distinct']} answers in" in ask(MASTER, folder, "--all", "--top", "1", "--min-score", 0).stdout


def test_the_same_answer_has_the_same_score_in_every_form(ask_json, folder):
    forms = [(), ("--top", "5"), ("--top", "300"), ("--all",), ("--sentences",)]
    scores = [ask_json(MASTER, folder, *form)["score"] for form in forms]
    assert scores == pytest.approx([scores[0]] * len(forms), abs=1e-6)


def test_top(ask, ask_json, folder):
    found = ask_json(MASTER, folder, "--top", "4")
    assert len(found["answers"]) == 4
    shown = ask(MASTER, folder, "--top", "4").stdout.splitlines()
    assert shown[::3] == [one["answer"] for one in found["answers"]]


def test_sentences(ask, ask_json, folder):
    found = ask_json(MASTER, folder, "--sentences")
    texts = [one["sentence"] for one in found["sentences"]]
    number = texts.index("The harbour master is Ingrid Solberg.")
    assert len(texts) == 3
    assert "Write to the harbour master, Ingrid Solberg, in time." in texts
    assert any(text.startswith("The old harbour master, Olav Berg") and text.endswith("a month.") for text in texts)
    assert {Path(place["file"]).name for place in found["sentences"][number]["places"]} == {"handbook.md", "copy.txt"}
    for place in found["sentences"][number]["places"]:
        source = FILES[Path(place["file"]).name][place["start"] : place["end"]]
        assert source.replace("*", "") == texts[number]
    shown = ask(MASTER, folder, "--sentences").stdout.splitlines()
    assert "The harbour master is **Ingrid Solberg**." in shown
    assert shown[-1] == "3 sentences in 4 places."
    (one,) = ask_json(MASTER, folder, "--sentences", "--top", "1")["sentences"]
    assert one == found["sentences"][0]


@pytest.mark.parametrize("form", [(), ("--all",), ("--sentences",), ("--top", "3")])
def test_no_answer_has_the_best_candidate(ask, ask_json, folder, form):
    question = "Who owns the fuel dock?"
    found = ask_json(question, folder, *form)
    assert (found["answer"], found["no_answer"], found["answers"]) == (None, True, [])
    assert found["rejected"]["score"] < found["score"]
    shown = ask(question, folder, *form).stdout.splitlines()
    assert shown[0] == f"No answer in these texts (score {found['score']:.2f})."
    assert shown[1] == f"Rejected: {found['rejected']['answer']}"
    assert shown[-1].endswith("--min-score 0 always gives one")


def test_many_places_are_counted(ask, ask_json, tmp_path):
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"Entry {number}. The harbour master is Ingrid Solberg.\n")
    found = ask_json(MASTER, tmp_path, "--all")
    assert found["answers"][0]["count"] == 8
    assert "  and 3 more places; --json has all" in ask(MASTER, tmp_path, "--all").stdout.splitlines()
    assert "  and 3 more places; --json has all" in ask(MASTER, tmp_path, "--sentences").stdout.splitlines()


def test_at_a_terminal_the_answer_is_marked_by_its_style(ask, folder, monkeypatch):
    def coloured(**_):
        return Console(force_terminal=True, color_system="standard", highlight=False, soft_wrap=True)

    monkeypatch.setattr("quoth.cli.ask_output.console", coloured)
    shown = ask(MASTER, folder / "copy.txt").stdout
    assert "**" not in shown
    assert "\x1b[1;4mIngrid Solberg\x1b[0m" in shown


def test_control_characters_are_made_visible(ask, tmp_path):
    (tmp_path / "a.txt").write_text("The harbour master is Ingrid\x1b[31m Solberg\x07.\n")
    for form in ((), ("--all",), ("--sentences",), ("--json",), ("--sentences", "--json")):
        shown = ask(MASTER, tmp_path, "--min-score", "0", *form).stdout
        assert not {"\x1b", "\x07"} & set(shown)
        assert "Ingrid" in shown


def test_an_index_of_ones_own_and_none(ask_json, folder, tmp_path):
    kept = tmp_path / "of.index"
    with_index = ask_json(MASTER, folder, "--index", kept)
    assert kept.exists()
    again, without = ask_json(MASTER, folder, "--index", kept), ask_json(MASTER, folder, "--no-index")
    assert with_index == again == without

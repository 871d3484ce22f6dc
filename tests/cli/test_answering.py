"""`ask`, `answer`, `evaluate` with real weights; where input is piped, through a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "fixtures"
ASKED = json.loads((DATA / "questions.json").read_text())
TEXT = ASKED["passages"][1]


def quoth(*arguments, stdin=None):
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "quoth", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, check=False, input=stdin
    )


@pytest.fixture(scope="module")
def squad(tmp_path_factory):
    """A small SQuAD 2.0 file: 24 questions, a third without an answer."""
    paragraphs = []
    for p, text in enumerate(ASKED["passages"][:8]):
        word = text.split()[5].strip(".,:“”")
        gold = [{"text": word, "answer_start": text.index(word)}]
        qas = [
            {
                "id": f"{p}-{q}",
                "question": ASKED["questions"][q],
                "answers": gold if q < 2 else [],
                "is_impossible": q == 2,
            }
            for q in range(3)
        ]
        paragraphs.append({"context": text, "qas": qas})
    path = tmp_path_factory.mktemp("data") / "squad.json"
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


class TestAsk:
    def test_json(self, cli, span_model, tmp_path):
        for name, text in (("kiln.txt", TEXT), ("bees.md", ASKED["passages"][2])):
            (tmp_path / name).write_text(text)
        result = cli("ask", "Who ran the pottery?", tmp_path, "--model", span_model, "--top", 3, "--json")
        facts = json.loads(result.stdout)
        assert facts["question"] == "Who ran the pottery?"
        assert result.returncode == 0, result.stderr
        assert facts["no_answer"] == (facts["answer"] is None) == (not facts["answers"])
        for found in facts["answers"]:
            text = Path(found["file"]).read_text()
            assert text[found["start"] : found["end"]] == found["answer"]
            place = found["sentence_start"]
            assert text[place : place + len(found["sentence"])] == found["sentence"]
            assert found["answer"] in found["sentence"]
            assert 0 <= found["score"] <= 1

    def test_standard_input_for_people(self, span_model):
        result = quoth("ask", "Which word did they send back?", "--model", span_model, stdin=ASKED["passages"][0])
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith("No answer in these texts (score 0.") or "standard input:1, " in result.stdout

    @pytest.mark.parametrize(
        ("arguments", "stdin", "culprit"),
        [
            (("ask", "Who?", "nowhere.txt", "--model", "x/y"), None, "nowhere.txt: no such file"),
            (("ask", "  ", "-", "--model", "x/y"), "text", "the question is empty"),
            (("ask", "Who?", "-", "--model", "/no/where"), "text", "/no/where: no such file or folder"),
            (("ask", "Who?", "-", "--model", "x/y"), "", "there is no text to answer from"),
            (("answer", "nowhere.json", "--out", "x.json"), None, "nowhere.json: no such file"),
        ],
    )
    def test_a_mistake_is_one_line_and_code_2(self, arguments, stdin, culprit):
        result = quoth(*arguments, stdin=stdin)
        assert result.returncode == 2, result.stderr
        assert culprit in result.stderr
        assert result.stdout == ""


def test_answer_then_score_equals_evaluate(cli, span_model, squad, tmp_path):
    out, nbest, na = tmp_path / "p.json", tmp_path / "n.json", tmp_path / "na.json"
    result = cli(
        "answer", squad, "--out", out, "--nbest", nbest, "--na-probs", na, "--model", span_model, "--top", 5, "--json"
    )
    assert json.loads(result.stdout)["questions"] == 24, result.stderr
    predictions = json.loads(out.read_text())
    assert len(predictions) == 24
    for id, answers in json.loads(nbest.read_text()).items():
        assert len(answers) == 6
        assert answers[0]["text"] == predictions[id]
    scored = json.loads(cli("score", squad, out, "--json").stdout)
    evaluated = json.loads(cli("evaluate", squad, "--model", span_model, "--json").stdout)
    for key in ("exact", "f1", "total", "HasAns_exact", "HasAns_f1", "HasAns_total", "NoAns_f1", "NoAns_total"):
        assert evaluated[key] == scored[key], key
    assert evaluated["best_f1"] >= evaluated["f1"] - 1e-9
    cost = evaluated["cost"]
    assert cost["parameters"] == 22_565_376 + 770
    assert cost["questions_per_second"] > 0
    assert cost["flops_per_question"] > 1e9


def test_evaluate_for_people(cli, span_model, squad):
    shown = cli("evaluate", squad, "--model", span_model).stdout
    for word in ("with an answer", "questions/s", "best F1", "95 % interval"):
        assert word in shown


def test_out_must_be_a_file(cli, span_model, squad, tmp_path):
    result = cli("answer", squad, "--out", tmp_path, "--model", span_model)
    assert result.returncode == 2
    assert "is a folder" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (("--rule", "guess"), "--rule guess: choose devlin, probability, bertvision"),
        (("--device", "abacus"), "device 'abacus' cannot be used on this machine"),
        (("--precision", "int3"), "precision 'int3' is unknown"),
    ],
)
def test_wrong_options_are_one_line(cli, span_model, squad, arguments, culprit):
    result = cli("evaluate", squad, "--model", span_model, *arguments)
    assert result.returncode == 2, result.stderr
    assert culprit in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_a_file_name_with_brackets_is_shown_as_it_is(cli, span_model, tmp_path):
    place = tmp_path / "[bold]a[/red].txt"
    place.parent.mkdir()
    place.write_text(ASKED["passages"][6])
    result = cli("ask", "Which word did the ephors send back?", place, "--model", span_model)
    assert result.returncode == 0, result.stderr
    assert f"{place}:1, characters" in result.stdout


def test_evaluate_has_the_keys_of_score_for_squad_1_too(cli, span_model, squad, tmp_path):
    data = json.loads(squad.read_text())
    for paragraph in data["data"][0]["paragraphs"]:
        paragraph["qas"] = [qa for qa in paragraph["qas"] if qa["answers"]]
    (tmp_path / "one.json").write_text(json.dumps({**data, "version": "1.1"}))
    out = tmp_path / "p.json"
    cli("answer", tmp_path / "one.json", "--out", out, "--model", span_model)
    assert all(json.loads(out.read_text()).values()), "1.1 always answers"
    scored = json.loads(cli("score", tmp_path / "one.json", out, "--json").stdout)
    evaluated = json.loads(cli("evaluate", tmp_path / "one.json", "--model", span_model, "--json").stdout)
    assert {key: evaluated[key] for key in ("exact", "f1", "total", "HasAns_f1")} == {
        key: scored[key] for key in ("exact", "f1", "total", "HasAns_f1")
    }


def test_json_is_json_when_it_never_abstains(cli, span_model, squad):
    shown = cli("evaluate", squad, "--model", span_model, "--threshold", "inf", "--json").stdout
    assert json.loads(shown, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["threshold"] is None

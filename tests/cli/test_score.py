"""The verb `score`: its JSON, its tables, and one line for each mistake."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from quoth.cli.score import score
from quoth.errors import QuothError

app = typer.Typer()
app.command()(score)

CONTEXT = "The red fox saw Anna in Rome in 1900."
GOLDS = {"who": ["Anna", "anna"], "where": ["Rome", "in Rome"], "when": ["1900"], "why": [], "how": []}
PREDICTIONS = {"who": "the Anna", "where": "Rome in 1900", "when": "", "why": "", "how": "Rome"}


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "data.json", squad(GOLDS))
    write(tmp_path / "predictions.json", PREDICTIONS)
    return tmp_path


def squad(golds):
    def answers(texts):
        return [{"text": text, "answer_start": max(CONTEXT.find(text), 0)} for text in texts]

    qas = [
        {"id": id, "question": f"{id}?", "answers": answers(texts), "is_impossible": not texts}
        for id, texts in golds.items()
    ]
    return {"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": qas}]}]}


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def run(*arguments):
    """Standard output and standard error of the verb; its errors are raised here."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def run_json(*arguments):
    return json.loads(run(*arguments, "--json")[0])


def test_json_has_the_official_keys(folder):
    found = run_json(folder / "data.json", folder / "predictions.json")
    # who: 1, where: "rome in 1900" has 2 of 3 words of "in rome", F1 0.8; when: 0; why: 1; how: 0.
    assert found.pop("interval").keys() == {
        "exact", "f1", "HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1"
    }  # fmt: skip
    assert found == {
        "exact": 40.0,
        "f1": 100.0 * (1 + 0.8 + 0 + 1 + 0) / 5,
        "total": 5,
        "HasAns_exact": 100.0 / 3,
        "HasAns_f1": 100.0 * (1 + 0.8) / 3,
        "HasAns_total": 3,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
        "missing": 0,
    }


def test_intervals_surround_their_means(folder):
    found = run_json(folder / "data.json", folder / "predictions.json")
    for key, (low, high) in found["interval"].items():
        assert 0 <= low <= found[key] <= high <= 100


def test_no_answer_probabilities(folder):
    probs = write(folder / "na.json", {"who": 0.1, "where": 0.2, "when": 0.3, "how": 0.6, "why": 0.9})
    found = run_json(folder / "data.json", folder / "predictions.json", "--na-probs", probs)
    assert found["exact"] == 40.0
    assert (found["best_exact"], found["best_exact_thresh"]) == (60.0, 0.1)
    assert (found["best_f1"], found["best_f1_thresh"]) == (pytest.approx(76.0), 0.2)
    # who has an answer and is right, then 1.8 of 2, when 1.8 of 3 (no gain), the others have no answer.
    assert found["pr_exact_ap"] == pytest.approx(100 / 3)
    assert found["pr_f1_ap"] == pytest.approx(100 * (1 * 1 / 3 + 0.9 * 0.8 / 3))
    assert found["pr_oracle_ap"] == pytest.approx(100)
    found = run_json(folder / "data.json", folder / "predictions.json", "--na-probs", probs, "--na-threshold", 0.5)
    assert (found["exact"], found["NoAns_exact"]) == (60.0, 100.0)
    assert found["best_exact"] == 60.0


def test_against_another_run(folder):
    other = write(folder / "other.json", PREDICTIONS | {"who": "", "how": ""})
    found = run_json(folder / "data.json", folder / "predictions.json", "--against", other)["against"]
    assert found["questions"] == 5
    assert found["exact"]["difference"] == pytest.approx(0)
    assert found["exact"]["p_value"] == 1.0
    assert found["exact"]["interval"][0] < 0 < found["exact"]["interval"][1]
    itself = run_json(folder / "data.json", other, "--against", other)["against"]
    assert itself["f1"] == {"difference": 0.0, "interval": [0.0, 0.0], "p_value": 1.0}


def test_squad1(folder):
    data = write(folder / "data1.json", squad({id: texts for id, texts in GOLDS.items() if texts}))
    predictions = write(folder / "some.json", {"who": "Anna", "where": "in Rome in"})
    found, warnings = run(data, predictions, "--squad1", "--json")
    assert json.loads(found).keys() == {"exact_match", "f1", "total", "missing", "interval"}
    assert json.loads(found)["exact_match"] == 100.0 / 3
    assert json.loads(found)["f1"] == 100.0 * (1 + 0.8) / 3
    assert "no prediction for 1 of the questions, e.g. when: counted as wrong" in warnings


def test_missing_and_unknown_ids_are_told(folder):
    predictions = write(folder / "some.json", {"who": "Anna", "unknown": "x"})
    out, warnings = run(folder / "data.json", predictions, "--json")
    assert json.loads(out)["total"] == 1
    assert json.loads(out)["missing"] == 4
    assert "left out 1 of its ids that are not in the data, e.g. unknown" in warnings
    assert "no prediction for 4 of the questions, e.g. where: left out of the scores" in warnings


def test_tables_for_people(folder):
    probs = write(folder / "na.json", {"who": 0.1, "where": 0.2, "when": 0.3, "how": 0.6, "why": 0.9})
    out, _ = run(
        folder / "data.json",
        folder / "predictions.json",
        "--na-probs",
        probs,
        "--against",
        folder / "predictions.json",
    )
    for words in ("has answer", "no answer", "56.00", "best f1: 76.00 at threshold 0.2", "+0.00", "1.0000"):
        assert words in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[1]", "must be one JSON object by question id, not a list"),
        ("{}", "none of its 0 ids is in the data"),
        ('{"unknown": "x"}', "none of its 1 ids is in the data, e.g. not unknown"),
        ('{"who": {"text": "Anna"}}', 'the prediction of who is {"text": "Anna"}, not a string'),
        ('{"who": null}', "the prediction of who is null, not a string"),
        (None, "no such file"),
    ],
)
def test_bad_predictions_are_one_line(folder, content, message):
    path = folder / "bad.json"
    if content is not None:
        path.write_text(content)
    for arguments in ([path], [folder / "predictions.json", "--against", path]):
        with pytest.raises(QuothError) as error:
            run(folder / "data.json", *arguments)
        assert str(path) in str(error.value)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", ['"0.5"', "true", "NaN", "-Infinity", "1" + "0" * 400])
def test_bad_probabilities_are_one_line(folder, value):
    path = folder / "na.json"
    path.write_text(f'{{"who": {value}}}')
    with pytest.raises(QuothError, match=r"the value of who is .*, not a finite number"):
        run(folder / "data.json", folder / "predictions.json", "--na-probs", path)


def test_a_probability_for_each_question_is_needed(folder):
    probs = write(folder / "na.json", {"who": 0.5})
    with pytest.raises(QuothError, match="question where: its no-answer probability is missing"):
        run(folder / "data.json", folder / "predictions.json", "--na-probs", probs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--na-threshold", "0.5"], "needs --na-probs"),
        (["--squad1", "--na-probs", "na.json"], "leave out --squad1"),
        (["--squad1"], "question why: no answer in the data"),
    ],
)
def test_options_that_do_not_go_together(folder, options, message):
    with pytest.raises(QuothError, match=message):
        run(folder / "data.json", folder / "predictions.json", *options)


def test_a_folder_or_an_empty_dataset_is_one_line(folder):
    with pytest.raises(QuothError, match="cannot be read"):
        run(folder / "data.json", folder)
    with pytest.raises(QuothError, match=r"empty\.json: has no questions"):
        run(write(folder / "empty.json", squad({})), folder / "predictions.json")


def test_published_figures_of_a_real_system():
    shared = os.environ.get("QUOTH_SHARED")
    if not shared:
        pytest.skip("QUOTH_SHARED is not set: it names the folder that holds data/squad")
    data = Path(shared) / "data" / "squad"
    found = run_json(data / "validation.json.gz", data / "reference_predictions.validation.json")
    assert (found["exact"], found["f1"]) == (78.4218217243059, 82.24497870454641)
    assert (found["HasAns_f1"], found["NoAns_f1"]) == (79.07834209702249, 85.8786610878661)

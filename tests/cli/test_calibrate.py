"""`quoth calibrate`: fitted on datasets, kept in the folder, used by every verb that answers."""

import json
import shutil

import pytest

from quoth import Reader
from quoth.answer.confidence import stored_confidence
from quoth.encoder.shape import LayerShape
from quoth.hub import find_model
from support.exporting import make_folder, shape, with_tokenizer
from train.material import make_questions


@pytest.fixture(scope="module")
def place(tmp_path_factory, minilm):
    """A small random model, and two datasets of four articles each, whose first answers it gets right."""
    place = tmp_path_factory.mktemp("calibrate")
    sizes = {"hidden": 64, "embedding": 64, "vocab": 30522, "positions": 96}
    make_folder(place / "plain", shape((LayerShape(4, 16, 16, 256),) * 2, **sizes), {"kind": "span"})
    with_tokenizer(place / "plain", minilm)
    reader = Reader.load(place / "plain", device="cpu")
    for name, seed in (("one.json", 1), ("two.json", 2)):
        made = json.loads(make_questions(place / name, seed, passages=4).read_text())
        paragraphs = made["data"][0]["paragraphs"]
        for paragraph in paragraphs:
            for qa in [qa for qa in paragraph["qas"] if qa["answers"]][::2]:
                found = reader.ask(qa["question"], paragraph["context"], min_score=0)
                qa["answers"] = [{"text": found.text, "answer_start": found.start}]
        made["data"] = [{"title": f"t{i}", "paragraphs": paragraphs[i : i + 1]} for i in range(4)]
        (place / name).write_text(json.dumps(made))
    return place


@pytest.fixture
def model(place, tmp_path):
    return shutil.copytree(place / "plain", tmp_path / "m")


def run(cli, *arguments):
    result = cli(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_fitted_stored_and_used(cli, place, model, tmp_path):
    data = (place / "one.json", place / "two.json")
    tried = run(cli, "calibrate", *data, "--model", model, "--dry-run")
    assert tried["stored"] is None
    assert stored_confidence(find_model(model)) is None
    before = run(cli, "evaluate", data[0], "--model", model)
    light = run(cli, "calibrate", *data, "--model", model, "--dry-run", "--weights", "1,0.1")
    assert light["calibration"]["right"] != tried["calibration"]["right"]
    assert [of["weight"] for of in light["cross_fitted"].values()] == [1, 0.1]
    fitted = run(cli, "calibrate", *data, "--model", model)
    assert fitted["stored"] == str(model)
    assert fitted["calibration"] == tried["calibration"], "the same every time"
    assert set(fitted["cross_fitted"]) == {"one.json", "two.json"}
    kept = Reader.load(model, device="cpu").confidence
    assert json.loads(json.dumps(kept.to_json()))["right"] == fitted["calibration"]["right"]
    assert kept.fitted["cross_fitted"]["one.json"]["f1"] == fitted["cross_fitted"]["one.json"]["f1"]

    after = run(cli, "evaluate", data[0], "--model", model)
    assert (after["threshold"], after["min_score"]) == (None, None)
    assert 0 <= after["calibration"]["expected_calibration_error"] <= 1
    assert run(cli, "evaluate", data[0], "--model", model, "--threshold", 0)["f1"] == before["f1"]
    assert run(cli, "evaluate", data[0], "--model", model, "--min-score", 1)["NoAns_f1"] == 100
    always = run(cli, "evaluate", data[0], "--model", model, "--min-score", 0)
    assert always["HasAns_f1"] == pytest.approx(always["answered_f1"])
    assert always["NoAns_f1"] == 0
    for words in ((), ("--min-score", "0.3")):
        scores = run(cli, "evaluate", data[0], "--model", model, *words)
        run(cli, "answer", data[0], "--model", model, "--out", tmp_path / "p.json", *words)
        assert run(cli, "score", data[0], tmp_path / "p.json")["f1"] == scores["f1"]
    shown = cli("evaluate", data[0], "--model", model).stdout
    assert "abstains where no answer is more probable than a right one" in shown
    assert "abstains below the score 0.3" in cli("evaluate", data[0], "-m", model, "--min-score", "0.3").stdout
    assert "abstains where no answer is more probable" in cli("inspect", model).stdout


def test_answer_and_ask_agree_with_evaluate(cli, place, model, tmp_path):
    data = place / "one.json"
    run(cli, "calibrate", data, "--model", model)
    out, nbest, na = tmp_path / "p.json", tmp_path / "n.json", tmp_path / "na.json"
    run(cli, "answer", data, "--model", model, "--out", out, "--nbest", nbest, "--na-probs", na)
    given, best, no_answer = (json.loads(path.read_text()) for path in (out, nbest, na))
    reader = Reader.load(model, device="cpu")
    made = json.loads(data.read_text())["data"][1]["paragraphs"][0]
    (tmp_path / "a.txt").write_text(made["context"])
    for qa in made["qas"][:4]:
        answer = reader.ask(qa["question"], made["context"])
        assert answer.text == given[qa["id"]]
        assert (no_answer[qa["id"]] > 0.5) == answer.no_answer
        assert best[qa["id"]][0]["text"] == answer.text
        assert best[qa["id"]][0]["score"] == pytest.approx(answer.score, rel=1e-4)
        asked = run(cli, "ask", qa["question"], tmp_path / "a.txt", "--model", model)
        assert (asked["answer"] or "", asked["score"]) == (answer.text, pytest.approx(answer.score, rel=1e-4))
        assert asked["min_score"] is None
    scored = run(cli, "score", data, out, "--na-probs", na, "--na-threshold", "0.5")
    assert scored["f1"] == run(cli, "evaluate", data, "--model", model)["f1"]


def test_the_exported_folder_has_it(cli, place, model, tmp_path):
    run(cli, "calibrate", place / "one.json", "--model", model)
    run(cli, "export", model, "--to", tmp_path / "onnx")
    assert Reader.load(tmp_path / "onnx").confidence == Reader.load(model, device="cpu").confidence


def test_what_cannot_be_done_is_one_line(cli, place, model, minilm, tmp_path):
    data = place / "one.json"
    before = (model / "quoth.json").read_bytes()

    def told(*arguments):
        result = cli(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        return result.stderr.splitlines()[-1]

    assert "name the folder that is to keep this one" in told("calibrate", data, "--model", "embedded")
    assert f"{minilm}: " in told("calibrate", data, "--model", minilm)
    for weights, why in (
        ("1", "has 1 weights for 2 files"),
        ("1,x", "numbers with commas"),
        ("1,-1", "-1 is no weight"),
        ("1,nan", "nan is no weight"),
    ):
        assert why in told("calibrate", data, data, "--model", model, "--weights", weights)
    assert "no such file" in told("calibrate", tmp_path / "none.json", "--model", model)
    made = json.loads(data.read_text())
    for article in made["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [qa for qa in paragraph["qas"] if qa["answers"]]
    (tmp_path / "all.json").write_text(json.dumps(made))
    assert "all.json: a calibration is fitted on right answers" in told(
        "calibrate", tmp_path / "all.json", "--model", model
    )
    assert "not both" in told("evaluate", data, "--model", model, "--threshold", 1, "--min-score", 0.5)
    assert (model / "quoth.json").read_bytes() == before
    run(cli, "calibrate", data, "--model", model)
    assert "goes before a threshold" in told("evaluate", data, "--model", model, "--store-threshold")

"""`quoth export` on the command line, and what other verbs make of the folder."""

import json

import pytest
from typer.testing import CliRunner

from quoth import QuothError
from quoth.cli import app
from quoth.encoder.shape import LayerShape
from support.exporting import make_folder, shape, with_tokenizer
from train.material import make_questions, quoth


@pytest.fixture(scope="module")
def place(tmp_path_factory, minilm):
    place = tmp_path_factory.mktemp("command")
    layers = (LayerShape(4, 16, 16, 256),) * 2
    make_folder(place / "m", shape(layers, hidden=64, embedding=64, vocab=30522, positions=96), {"kind": "span"})
    with_tokenizer(place / "m", minilm)
    make_questions(place / "asked.json", 1, passages=2)
    return place


def run(*arguments):
    words = [str(argument) for argument in arguments]
    result = CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_export_and_evaluate(place):
    asked = place / "asked.json"
    found = json.loads(run("export", place / "m", "--to", place / "onnx", "--int8", "--data", asked, "--json"))
    assert found["folder"] == str(place / "onnx")
    for name, folder in (("f1", "m"), ("int8_f1", "onnx")):
        facts = json.loads(run("evaluate", asked, "--model", place / folder, "--json"))
        assert found[name] == pytest.approx(facts["f1"])
    assert facts["cost"]["bytes"] == found["int8_bytes"], "model.onnx and its data"


def test_what_people_see(place):
    lines = run("export", place / "m", "--to", place / "again", "--int8").splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("fp32: ")
    assert "MB, logits within " in lines[0]
    assert lines[1].startswith("int8: ")
    assert lines[2] == f"written to {place / 'again'}"


def test_questions_are_not_for_heads_of_classes(place, tmp_path):
    make_folder(tmp_path / "m", shape(), {"kind": "class", "labels": 2})
    with pytest.raises(QuothError, match="has a head for classes"):
        run("export", tmp_path / "m", "--to", tmp_path / "onnx", "--data", place / "asked.json")


def test_a_mistake_is_one_line(place):
    done = quoth("export", place / "m", "--to", place / "asked.json" / "x")
    assert done.returncode == 2
    assert "asked.json" in done.stderr
    assert done.stderr.count("\n") == 1

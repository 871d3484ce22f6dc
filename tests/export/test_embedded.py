"""The embedded reader: it ships, it is small, it answers without torch, and nothing writes to it."""

import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import quoth.embedded
from quoth import QuothError, Reader
from quoth.embedded import FILES, ONLY_ANSWERS, embedded_folder, is_embedded
from quoth.files import read_json
from quoth.hub import find_model
from train.material import environment, make_questions

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src/quoth/embedded"
LIMIT = 25e6  # bytes in the wheel
WITHOUT = "import sys\nfor name in ('torch', 'transformers', 'onnx', 'accelerate'): sys.modules[name] = None\n"


@pytest.fixture(scope="module")
def reader():
    return Reader.load()


def python(code, *arguments, **settings):
    command = [sys.executable, "-c", WITHOUT + code, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environment(), **settings
    )


def packed():
    """The files that pyproject puts into the wheel."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    return named["quoth.embedded"]


def test_all_of_it_is_in_the_wheel_and_within_the_limit():
    assert {*FILES, "MODEL_CARD.md"} == set(packed())
    assert sum((FOLDER / name).stat().st_size for name in packed()) < LIMIT
    assert {path.name for path in FOLDER.iterdir()} - {"__pycache__"} == {*packed(), "__init__.py"}


def test_the_demo_without_torch():
    """Right answers and one refusal, as examples/demo.py itself checks."""
    done = python("import runpy; runpy.run_path(sys.argv[1], run_name='__main__')", ROOT / "examples/demo.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(longitude.txt:") == 5
    assert done.stdout.count("no answer in this text") == 1


def test_the_demo_notices_a_wrong_answer(monkeypatch, reader):
    demo = runpy.run_path(str(ROOT / "examples/demo.py"))
    monkeypatch.setitem(demo["QUESTIONS"], "Where was John Harrison born?", "Barrow")
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(SystemExit, match=r"'Barrow' is right, not 'Foulby'"):
        demo["main"]()


def test_ask_needs_no_model_and_no_torch():
    text = ROOT / "examples/longitude.txt"
    done = python("from quoth.cli import main; main()", "ask", "Where was John Harrison born?", text, "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["answers"]
    assert (found["answer"], found["file"]) == ("Foulby", str(text))
    assert text.read_text().splitlines()[found["line"] - 1].startswith("John Harrison was born in Foulby")


def test_it_is_what_is_loaded_where_no_model_is_named(reader, span_model):
    assert reader.source == str(embedded_folder()) == str(FOLDER)
    assert Reader.load("embedded").source == reader.source
    assert Reader.load(span_model, device="cpu").source == str(span_model)
    assert reader.abstention.fitted["questions"] > 0, "its own threshold"
    assert reader.confidence.fitted["cross_fitted"], "its own calibration"


def test_evaluate_and_answer_take_it(cli, tmp_path):
    asked = make_questions(tmp_path / "asked.json", 1, passages=1)
    facts = json.loads(cli("evaluate", asked, "--json").stdout)
    assert facts["cost"]["bytes"] == sum((FOLDER / name).stat().st_size for name in FILES[:2])
    assert (facts["threshold"], facts["min_score"]) == (None, None), "its calibration decides"
    assert facts["answered_f1"] > 80, "easy questions"
    done = cli("answer", asked, "--out", tmp_path / "p.json")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("model", [(), ("--model", "embedded"), ("--model", FOLDER)])
def test_no_threshold_is_written_into_the_package(cli, tmp_path, model):
    before = (FOLDER / "quoth.json").read_bytes()
    asked = make_questions(tmp_path / "asked.json", 1, passages=1)
    done = cli("evaluate", asked, *model, "--store-threshold")
    assert done.returncode == 2
    assert "name the folder with --model that is to keep it" in done.stderr
    assert (FOLDER / "quoth.json").read_bytes() == before


def test_it_is_not_exported_again(cli, tmp_path):
    done = cli("export", "embedded", "--to", tmp_path / "x")
    assert (done.returncode, done.stderr) == (
        2,
        f"quoth: {ONLY_ANSWERS}\n",
    )


@pytest.mark.parametrize("name", FILES)
def test_a_broken_installation_is_one_line(monkeypatch, tmp_path, name):
    for path in FILES:
        if path != name:
            shutil.copyfile(FOLDER / path, tmp_path / path)
    monkeypatch.setattr(quoth.embedded, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(QuothError, match=rf"incomplete, {re.escape(str(tmp_path / name))} is missing: install quoth"):
        Reader.load()


def test_a_folder_of_that_name_goes_before_the_word(tmp_path, monkeypatch, minilm):
    monkeypatch.chdir(tmp_path)
    assert is_embedded("embedded")
    assert is_embedded(None)
    assert is_embedded(FOLDER)
    assert not is_embedded("./embedded")
    (tmp_path / "embedded").write_text("a file, not a folder")
    assert find_model("embedded").source == find_model(None).source == str(FOLDER)
    (tmp_path / "embedded").unlink()
    shutil.copytree(minilm, tmp_path / "embedded")
    for name in ("embedded", "./embedded", tmp_path / "embedded"):
        assert not is_embedded(name)
        assert find_model(name).description.samefile(tmp_path / "embedded/config.json")
    assert find_model(None).source == str(FOLDER)


def test_the_card_tells_the_scores_and_the_licences():
    card = (FOLDER / "MODEL_CARD.md").read_text()
    fitted = read_json(FOLDER / "quoth.json")["abstention"]["fitted"]
    for key in ("f1", "HasAns_f1", "NoAns_f1"):
        assert f"{fitted[key]:.2f}" in card, key
    for name, scores in read_json(FOLDER / "quoth.json")["calibration"]["fitted"]["cross_fitted"].items():
        assert name in card
        for key in ("f1", "HasAns_f1", "NoAns_f1"):
            assert f"{scores[key]:.2f}" in card, (name, key)
    for word in ("CC BY-SA 4.0", "SQuAD", "parameters", "Limits"):
        assert word in card, word
    assert "/work" + "/" not in card
    assert "/tmp" + "/" not in json.dumps(read_json(FOLDER / "quoth.json"))

"""The word `embedded` where a model is named: it answers, and what needs weights is refused in one line."""

import json

import pytest

from quoth.embedded import ONLY_ANSWERS, embedded_folder
from train.material import make_questions

TEXT = "John Harrison was born in Foulby, a village in Yorkshire, in 1693."


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def recipe(tmp_path):
    """A recipe of training on a few questions."""
    asked = make_questions(tmp_path / "asked.json", 1, passages=1)
    path = tmp_path / "r.toml"
    path.write_text(f'model = "embedded"\n[data]\ntrain = "{asked}"\n')
    return path


@pytest.mark.parametrize("name", ["embedded", embedded_folder()])
def test_ask_takes_it(cli, text, name):
    words = ("ask", "Where was John Harrison born?", text, "--json", "--min-score", "0")
    named, unnamed = (json.loads(cli(*words, *model).stdout) for model in (("--model", name), ()))
    assert named == unnamed
    assert named["answer"] == "Foulby"


@pytest.mark.parametrize("name", ["embedded", embedded_folder()])
def test_what_needs_weights_is_refused_and_nothing_is_written(cli, recipe, tmp_path, name, span_model):
    out, asked = tmp_path / "out", tmp_path / "asked.json"
    for words in (
        ("train", recipe, f"model={name}", "--out", out, "--device", "cpu"),
        ("prune", name, "--keep", 0.5, "--data", asked, "--out", out, "--device", "cpu"),
        ("export", name, "--to", out),
        ("ensemble", span_model, name, "--out", out),
    ):
        result = cli(*words)
        assert (result.returncode, result.stdout) == (2, ""), words
        assert result.stderr.splitlines()[-1] == f"quoth: {ONLY_ANSWERS}"
    assert {path.name for path in out.rglob("*")} <= {".lock"}, "that of a run"


def test_a_folder_of_that_name_is_meant_where_there_is_one(cli, text, span_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "embedded").symlink_to(span_model)
    words = ("ask", "Where was John Harrison born?", text, "--json", "--min-score", "0")
    theirs, ours = (json.loads(cli(*words, "--model", model).stdout) for model in ("embedded", span_model))
    assert theirs == ours
    assert theirs != json.loads(cli(*words).stdout)
    assert json.loads(cli("inspect", "embedded", "--json").stdout)["bytes"]["stored"] > 50e6

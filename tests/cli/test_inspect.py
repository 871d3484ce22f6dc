"""`laconic inspect`, through the real command line."""

import json
import os
import subprocess
import sys

import pytest

from laconic.encoder import Encoder, Model, Shape, load, save
from tiny import hugging_face

OPTBERT_43M = {
    "family": "bert", "vocab": 30522, "positions": 512, "types": 2, "embedding": 304, "hidden": 304, "tied": False,
    "layers": [{"heads": 12, "key": 64, "value": 64, "ffn": 3072}] * 12,
}  # fmt: skip


def laconic(*arguments):
    environment = {**os.environ, "COLUMNS": "120"}
    command = [sys.executable, "-m", "laconic", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


def test_shape_file(tmp_path):
    (tmp_path / "shape.json").write_text(json.dumps(OPTBERT_43M))
    facts = json.loads(laconic("inspect", tmp_path / "shape.json", "--json").stdout)
    assert facts["parameters"] == 43_141_920
    assert facts["hidden"] == 304
    assert facts["layers"] == OPTBERT_43M["layers"]
    assert sum(facts["parts"].values()) == facts["parameters"]
    assert facts["flops"]["per_window"] == 384 * facts["flops"]["per_token"]


def test_table(tmp_path):
    (tmp_path / "shape.json").write_text(json.dumps(OPTBERT_43M))
    shown = laconic("inspect", tmp_path / "shape.json").stdout
    assert "43,141,920" in shown
    assert "3,072" in shown
    assert "1–12" in shown


@pytest.mark.parametrize("kind", ["Model", "ForQuestionAnswering", "ForSequenceClassification"])
def test_model_counts_everything_it_has(kind, tmp_path):
    model = hugging_face("bert", kind)
    model.save_pretrained(tmp_path / "theirs")
    save(load(tmp_path / "theirs"), tmp_path / "ours")
    for folder in ("theirs", "ours"):
        facts = json.loads(laconic("inspect", tmp_path / folder, "--json").stdout)
        assert facts["parameters"] == sum(p.numel() for p in model.parameters())
        assert facts["bytes"]["stored"] == 4 * facts["parameters"]


def test_does_not_need_torch(tmp_path):
    save(Model(Encoder(Shape.uniform(layers=1, hidden=8, heads=2))), tmp_path / "model")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"sys.argv = ['laconic', 'inspect', {str(tmp_path / 'model')!r}]\n"
        "from laconic.cli import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "parameters" in result.stdout, result.stderr


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a shape file"),
        (json.dumps({**OPTBERT_43M, "family": "gpt"}), "unknown family 'gpt'"),
        (json.dumps({**OPTBERT_43M, "hidden": -3}), "hidden is -3"),
    ],
)
def test_bad_shape_file_is_one_line_and_code_2(text, culprit, tmp_path):
    (tmp_path / "shape.json").write_text(text)
    result = laconic("inspect", tmp_path / "shape.json")
    assert result.returncode == 2
    assert culprit in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_help_names_what_it_takes():
    shown = laconic("inspect", "--help").stdout
    assert "MODEL|SHAPE.json" in shown
    assert "--json" in shown

"""`quoth inspect`, through the real command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import quoth as quoth_package
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.prune import cut
from tiny import hugging_face

OPTBERT_43M = {
    "family": "bert", "vocab": 30522, "positions": 512, "types": 2, "embedding": 304, "hidden": 304, "tied": False,
    "layers": [{"heads": 12, "key": 64, "value": 64, "ffn": 3072}] * 12,
}  # fmt: skip


def quoth(*arguments):
    environment = {**os.environ, "COLUMNS": "120"}
    command = [sys.executable, "-m", "quoth", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


def without_torch(*arguments):
    """The same in a process that cannot import torch; it must not fail."""
    code = "import sys; sys.modules['torch'] = sys.modules['onnx'] = None; from quoth.cli import main; main()"
    environment = {**os.environ, "COLUMNS": "120"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    return result


def test_shape_file(tmp_path):
    (tmp_path / "shape.json").write_text(json.dumps(OPTBERT_43M))
    facts = json.loads(quoth("inspect", tmp_path / "shape.json", "--json").stdout)
    assert facts["parameters"] == 43_141_920
    assert facts["hidden"] == 304
    assert facts["layers"] == OPTBERT_43M["layers"]
    assert sum(facts["parts"].values()) == facts["parameters"]
    assert facts["flops"]["per_window"] == 384 * facts["flops"]["per_token"]


def test_table(tmp_path):
    (tmp_path / "shape.json").write_text(json.dumps(OPTBERT_43M))
    shown = quoth("inspect", tmp_path / "shape.json").stdout
    assert "43,141,920" in shown
    assert "3,072" in shown
    assert "1–12" in shown


@pytest.mark.parametrize(
    ("family", "kind"),
    [*(("bert", kind) for kind in ("Model", "ForQuestionAnswering", "ForSequenceClassification")), ("mpnet", "Model")],
)
def test_model_counts_everything_it_has(family, kind, tmp_path):
    model = hugging_face(family, kind)
    model.save_pretrained(tmp_path / "theirs")
    save(load(tmp_path / "theirs"), tmp_path / "ours")
    for folder in ("theirs", "ours"):
        facts = json.loads(quoth("inspect", tmp_path / folder, "--json").stdout)
        assert facts["parameters"] == sum(p.numel() for p in model.parameters())
        assert facts["bytes"]["stored"] == 4 * facts["parameters"]


def test_relative_biases_shared_and_of_each_layer(tmp_path):
    hugging_face("mpnet").save_pretrained(tmp_path / "theirs")
    model = load(tmp_path / "theirs")
    save(cut(model, {"a1": torch.tensor([True, False, True])}), tmp_path / "cut")
    for folder, size in (("theirs", 32 * 3), ("cut", 32 * (3 + 2 + 3))):
        facts = json.loads(quoth("inspect", tmp_path / folder, "--json").stdout)
        assert facts["parts"]["relative"] == size
        assert facts["parameters"] == sum(facts["parts"].values()) == facts["bytes"]["stored"] // 4
        assert facts["relative_buckets"] == 32
    assert "0 types, relative positions in 32 buckets" in quoth("inspect", tmp_path / "cut").stdout


def test_does_not_need_torch(tmp_path):
    save(Model(Encoder(Shape.uniform(layers=1, hidden=8, heads=2))), tmp_path / "model")
    assert "parameters" in without_torch("inspect", tmp_path / "model").stdout


class TestEmbedded:
    """The reader that ships, against its own files."""

    @pytest.fixture(scope="class")
    @classmethod
    def facts(cls):
        return json.loads(without_torch("inspect", "embedded", "--json").stdout)

    def test_sizes_bytes_and_threshold(self, facts):
        folder = Path(quoth_package.__file__).parent / "embedded"
        kept = json.loads((folder / "quoth.json").read_text())
        assert facts["layers"] == kept["shape"]["layers"]
        assert facts["abstention"] == kept["abstention"]
        assert facts["bytes"]["stored"] == sum((folder / f"model.onnx{more}").stat().st_size for more in ("", ".data"))
        shape = Shape.from_json(kept["shape"], "")
        assert facts["parameters"] == sum(facts["parts"].values()) == shape.total() + 2 * shape.hidden + 2

    def test_it_is_what_is_shown_where_no_model_is_named(self, facts):
        assert json.loads(without_torch("inspect", "--json").stdout) == facts
        shown = without_torch("inspect", "embedded").stdout
        assert f"{facts['parameters']:,}" in shown
        assert "abstains where no answer is more probable than a right one, fitted on" in shown
        assert facts["calibration"]["fitted"]["cross_fitted"]
        rows = [line.split("│") for line in shown.splitlines() if line.startswith("│")]
        assert [int(row[5].replace(",", "")) for row in rows] == [layer["ffn"] for layer in facts["layers"]]


def test_what_was_exported_counts_as_what_it_was_made_of(cli, span_model, tmp_path):
    assert cli("export", span_model, "--to", tmp_path / "onnx").returncode == 0
    before, after = (json.loads(cli("inspect", m, "--json").stdout) for m in (span_model, tmp_path / "onnx"))
    for key in ("family", "layers", "hidden", "flops", "head"):
        assert after[key] == before[key]
    without = before["parts"].get("pooler", 0)  # a span head does not read it, so that it is not exported
    assert after["parameters"] == before["parameters"] - without
    assert after["parts"]["others"] == before["parts"]["head"]
    assert after["abstention"] is None
    assert after["bytes"]["stored"] == pytest.approx(after["bytes"]["fp32"], rel=0.05)


@pytest.mark.slow
def test_an_exported_ensemble_is_refused(cli, span_model, tmp_path):
    assert cli("ensemble", span_model, span_model, "--out", tmp_path / "two").returncode == 0
    assert cli("export", tmp_path / "two", "--to", tmp_path / "onnx").returncode == 0
    result = cli("inspect", tmp_path / "onnx")
    assert (result.returncode, result.stdout) == (2, "")
    assert "is an exported ensemble; inspect the ensemble" in result.stderr


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
    result = quoth("inspect", tmp_path / "shape.json")
    assert result.returncode == 2
    assert culprit in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_help_names_what_it_takes():
    shown = quoth("inspect", "--help").stdout
    assert "MODEL|SHAPE.json" in shown
    assert "--json" in shown

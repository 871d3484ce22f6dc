"""Delta folders from outside: `quoth inspect`, `quoth evaluate`, a reader."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch

from quoth.answer.reader import Reader
from quoth.hub import find_model
from quoth.model import apply
from quoth.model.checkpoint import open_checkpoint
from quoth.model.loading import load
from quoth.model.saving import save
from quoth.runtime.torch_runner import TorchRunner
from quoth.tune.adapters import Adapters
from quoth.tune.lora import LoRA


class TestCommands:
    def quoth(self, *arguments):
        environment = {**os.environ, "COLUMNS": "200"}
        command = [sys.executable, "-m", "quoth", *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    @pytest.mark.parametrize(
        ("tuning", "part", "count"),
        [(Adapters(4), "adapters", 6 * (2 * 4 * 24 + 4 + 24)), (LoRA(2), "lora", 6 * 2 * (24 + 24))],
    )
    def test_inspect(self, tuning, part, count, tune, bases, tmp_path):
        shutil.copytree(bases / "bert", tmp_path / "base")
        model = tune("bert", tuning, source=tmp_path / "base")
        save(model, tmp_path / "tuned")
        for found in (True, False):
            facts = json.loads(self.quoth("inspect", tmp_path / "tuned", "--json"))
            assert facts["parameters"] == sum(value.numel() for value in model.parameters())
            assert facts["parts"][part] == count
            assert facts["tuning"] == tuning.to_json()
            assert facts["base"]["source"] == str(tmp_path / "base")
            assert facts["base"]["found"] is found
            assert facts["base"]["delta"]["parameters"] == sum(v.numel() for v in model.parameters() if v.requires_grad)
            if found:
                assert facts["bytes"]["stored"] == 4 * facts["parameters"]
                (tmp_path / "base").rename(tmp_path / "moved")
        shown = self.quoth("inspect", tmp_path / "tuned")
        assert f"tuning: {tuning.kind} (" in shown
        assert "which is not there" in shown

    def test_operations_of_adapters_are_counted(self, tune, tmp_path):
        """Two matrices of 4 × 24, 2 operations a weight, in two adapters of one layer that is run three times."""
        save(tune("albert", Adapters(4)), tmp_path / "tuned")
        facts = json.loads(self.quoth("inspect", tmp_path / "tuned", "--json"))
        plain = open_checkpoint(tmp_path / "tuned").shape.flops(384)
        assert facts["flops"]["per_token"] == plain + 6 * 2 * (2 * 4 * 24)

    def test_inspect_needs_no_torch(self, tune, tmp_path):
        save(tune("bert", Adapters(4)), tmp_path / "tuned")
        code = (
            "import sys; sys.modules['torch'] = None\n"
            f"sys.argv = ['quoth', 'inspect', {str(tmp_path / 'tuned')!r}]\n"
            "from quoth.cli import main; main()"
        )
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert "adapters" in result.stdout, result.stderr

    @pytest.mark.slow
    def test_reader_and_evaluate(self, span_model, tmp_path):
        """A reader from a delta on a real model, answering as the same model in memory does."""
        torch.manual_seed(0)
        model = apply(load(span_model), Adapters(8))
        with torch.no_grad():
            for name, value in model.named_parameters():
                if "_adapter." in name:
                    value.normal_(0, 0.03)
        save(model, tmp_path / "tuned")
        assert [path.name for path in find_model(tmp_path / "tuned").weights] == ["delta.safetensors"]
        reader = Reader.load(tmp_path / "tuned", device="cpu")
        asked = {"question": "Who wrote it?", "context": "Plutarch wrote it, in Greek, at Chaeronea."}
        expected = Reader(TorchRunner(model, "cpu"), reader.tokenizer, max_length=reader.max_length)(**asked)
        assert reader(**asked) == expected
        assert reader(**asked) != Reader.load(span_model, device="cpu")(**asked)
        answer = {"text": "Plutarch", "answer_start": 0}
        question = {"id": "1", "question": asked["question"], "answers": [answer], "is_impossible": False}
        paragraphs = [{"context": asked["context"], "qas": [question]}]
        squad = {"version": "v2.0", "data": [{"title": "Lives", "paragraphs": paragraphs}]}
        (tmp_path / "squad.json").write_text(json.dumps(squad))
        facts = json.loads(self.quoth("evaluate", tmp_path / "squad.json", "--model", tmp_path / "tuned", "--json"))
        assert facts["cost"]["parameters"] == sum(value.numel() for value in model.parameters())
        assert facts["cost"]["bytes"] == (tmp_path / "tuned/delta.safetensors").stat().st_size

"""What a run leaves behind and tells: files, log, metrics, TensorBoard, and the command line."""

import hashlib
import json
import math
import os
import re
import signal
import sys
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import quoth
from quoth import Reader
from quoth.answer.record import read_answers
from quoth.data import read
from quoth.model.loading import load
from quoth.score.squad import score_squad2
from quoth.train.build import build_model
from quoth.train.log import Status
from quoth.train.recipe import make_recipe, read_recipe
from quoth.train.training import Interrupted
from train.material import CPU, log_lines, losses, make_recipe_file, prepare, table, train, weights

WINDOWS = 100 + 52  # an epoch, and 9 steps of 5 or 6


@pytest.fixture(scope="module")
def made(material):
    return table(material.model, material.train, material.dev, optimisation={"epochs": 1.5}, evaluation={"at": [0.5]})


@pytest.fixture(scope="module")
def run(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    told = []
    facts = train(make_recipe(made), folder, device="cpu", tell=told.append)
    return SimpleNamespace(folder=folder, facts=facts, told=told)


def hashes(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


class TestFiles:
    def test_a_run_folder(self, run, made):
        names = {path.name for path in run.folder.iterdir()}
        assert names == {".lock", "recipe.toml", "log.jsonl", "metrics.json", "answers.jsonl.gz", "model"}
        assert read_recipe(run.folder / "recipe.toml") == make_recipe(made)
        tokenizer = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"}
        assert {path.name for path in (run.folder / "model").iterdir()} == {
            "quoth.json",
            "model.safetensors",
            *tokenizer,
        }

    def test_the_answers_are_those_of_the_model(self, run, material):
        """What `quoth analyse` reads: the best spans of the last evaluation, with their scores."""
        dataset = read(str(material.dev))
        found = read_answers(run.folder / "answers.jsonl.gz")
        decoded = Reader.load(run.folder / "model", device="cpu").decode(dataset.questions)
        assert list(found.ids) == [question.id for question in dataset.questions]
        np.testing.assert_allclose(found.null_minus_best, decoded.finite_margins())
        for i, answers in enumerate(found.answers):
            assert answers == tuple(a for a in decoded.answers(i, math.inf) if not a.no_answer)[: len(answers)]
            assert len(answers) == 5
        scored = score_squad2(dataset.questions, dict(zip(found.ids, found.predictions())))
        assert scored.summary().items() <= run.facts["quality"].items()

    def test_the_same_seed_gives_identical_files(self, run, made, tmp_path):
        torch.manual_seed(99)  # which no run heeds
        facts = train(make_recipe(made), tmp_path / "again", device="cpu")
        assert hashes(tmp_path / "again/model") == hashes(run.folder / "model")
        assert losses(tmp_path / "again") == losses(run.folder)
        assert facts["quality"] == run.facts["quality"]

    def test_an_evaluation_before_training(self, run, made, tmp_path):
        """That of the model as it was built; the weights after training are the same as without it."""
        before = {**made, "evaluation": {"at": [0, 0.5]}}
        facts = train(make_recipe(before), tmp_path / "run", device="cpu")
        assert [(point["step"], point["epoch"]) for point in facts["evaluations"]] == [
            (0, 0),
            (8, 8 / 17),
            (26, 26 / 17),
        ]
        recipe = make_recipe(made)
        model = build_model(recipe)
        built = prepare(recipe, model).evaluate(model, CPU).quality
        first = facts["evaluations"][0]
        same = {key: value for key, value in built.items() if key != "seconds"}
        assert {key: first[key] for key in same} == same
        assert hashes(tmp_path / "run/model") == hashes(run.folder / "model")

    @pytest.mark.cuda
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")
    def test_and_on_a_gpu(self, made, tmp_path):
        for name in ("one", "two"):
            train(make_recipe(made), tmp_path / name, device="cuda")
        assert hashes(tmp_path / "one/model") == hashes(tmp_path / "two/model")
        assert losses(tmp_path / "one") == losses(tmp_path / "two")

    def test_another_seed_gives_others(self, run, made, tmp_path):
        train(make_recipe({**made, "seed": 1}), tmp_path / "other", device="cpu")
        mine, theirs = weights(tmp_path / "other/model"), weights(run.folder / "model")
        assert not torch.equal(mine["encoder.layers.0.up.weight"], theirs["encoder.layers.0.up.weight"])
        assert losses(tmp_path / "other") != losses(run.folder)


class TestLog:
    def test_lines(self, run):
        lines = log_lines(run.folder)
        assert [line["step"] for line in lines] == [8, 10, 20, 26, 26]
        for line in lines:
            assert line["epoch"] == line["step"] / 17
            keys = (
                {"evaluation"} if "evaluation" in line else {"loss", "learning_rate", "windows_per_second", "seconds"}
            )
            assert line.keys() == {"step", "epoch", *keys}
        steps = [line for line in lines if "loss" in line]
        # the learning rate of the last step: 3 of 26 steps warm up, and step s − 1 has s − 4 of 23 behind it
        assert [line["learning_rate"] for line in steps] == pytest.approx(
            [1e-3 * (1 - (s - 4) / 23) for s in (10, 20, 26)]
        )
        assert all(line["loss"] > 0 and line["windows_per_second"] > 0 for line in steps)
        assert sorted(line["seconds"] for line in steps) == [line["seconds"] for line in steps]

    def test_who_watches_is_told(self, run):
        status = [news for news in run.told if isinstance(news, Status)]
        assert [(news.step, news.steps) for news in status] == [(10, 26), (20, 26), (26, 26)]
        assert status[0].seconds_left == pytest.approx(status[0].seconds / 10 * 16)
        assert status[-1].seconds_left == 0
        lines = [news for news in run.told if isinstance(news, str)]
        assert [line.partition(":")[0] for line in lines] == ["epoch 0.47", "epoch 1.53"]
        assert all("exact" in line and "F1" in line and "F1 at the best threshold" in line for line in lines)


class TestMetrics:
    def test_all_facts(self, run, made):
        facts = json.loads((run.folder / "metrics.json").read_text())
        assert facts == run.facts
        total = sum(value.numel() for value in load(run.folder / "model").parameters())
        assert facts["trainable_parameters"] == facts["total_parameters"] == total
        assert {"exact", "f1", "best_f1", "best_exact", "HasAns_f1", "NoAns_f1", "answered_f1"} <= facts[
            "quality"
        ].keys()
        assert (facts["steps"], facts["windows"], facts["epochs"]) == (26, WINDOWS, 26 / 17)
        assert facts["train_seconds"] > 0
        assert facts["windows_per_second"] == pytest.approx(WINDOWS / facts["train_seconds"])
        assert facts["inference_seconds"] > 0
        assert facts["inference_windows"] == 33
        assert facts["peak_memory"] > 50e6
        assert facts["bytes"] == sum(path.stat().st_size for path in (run.folder / "model").iterdir())
        assert (facts["device"], facts["precision"], facts["processes"]) == ("cpu", "fp32", 1)
        assert facts["threads"] == torch.get_num_threads()
        assert facts["hardware"]["cpu"]
        assert facts["hardware"]["cores"] == os.cpu_count()
        assert facts["hardware"]["gpu"] is None
        assert facts["versions"] == {
            "quoth": quoth.__version__,
            **{name: version(name) for name in ("torch", "accelerate", "tokenizers")},
        }
        assert (facts["model"], facts["tuning"], facts["head"], facts["seed"]) == (
            made["model"],
            {"kind": "full"},
            {"kind": "span"},
            0,
        )
        assert [found["step"] for found in facts["evaluations"]] == [8, 26]

    def test_trainable_parameters_are_counted(self, made, tmp_path):
        """Adapters of size 4 at h = 32: 2·(32·4 + 4 + 4·32 + 32) a layer, and norms 5·64, and the head 66."""
        tuned = {**made, "tuning": {"kind": "adapters", "size": 4}}
        facts = train(make_recipe(tuned), tmp_path / "run", device="cpu")
        added = 2 * 2 * (32 * 4 + 4 + 4 * 32 + 32)
        assert facts["trainable_parameters"] == added + 5 * 64 + 66
        base = sum(value.numel() for value in load(made["model"]).parameters())
        assert facts["total_parameters"] == base + added + 66
        assert facts["bytes"] < 1.2e6  # a delta, and the tokenizer

    def test_the_clock_goes_on(self, made, tmp_path):
        """Seconds, windows and evaluations of a run that was stopped are those of all its parts."""

        def stop(news):
            if isinstance(news, Status):
                os.kill(os.getpid(), signal.SIGTERM)

        with pytest.raises(Interrupted):
            train(make_recipe(made), tmp_path / "run", device="cpu", tell=stop)
        folder = max((tmp_path / "run/checkpoints").iterdir())
        before = json.loads((folder / "state.json").read_text())
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        assert facts["train_seconds"] > before["seconds"] > 0
        assert before["windows"] < facts["windows"] == WINDOWS
        assert [found["step"] for found in facts["evaluations"]] == [8, 26]


class TestTensorBoard:
    def scalars(self, run):
        events = EventAccumulator(str(run / "tensorboard")).Reload()
        return {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}

    def test_events_read_back(self, made, tmp_path, run):
        """Those of a run that was stopped after step 10 and broke after step 20: each step once, as in the log."""

        def stop(news):
            if isinstance(news, Status):
                os.kill(os.getpid(), signal.SIGTERM)

        def fail(news):
            if isinstance(news, Status) and news.step == 20:
                raise RuntimeError("broken")

        recipe = make_recipe(made)
        with pytest.raises(Interrupted):
            train(recipe, tmp_path / "run", device="cpu", tensorboard=True, tell=stop)
        assert [step for step, _ in self.scalars(tmp_path / "run")["loss"]] == [10]
        with pytest.raises(RuntimeError, match="broken"):
            train(recipe, tmp_path / "run", device="cpu", tensorboard=True, tell=fail)
        assert [step for step, _ in self.scalars(tmp_path / "run")["loss"]] == [10, 20]
        train(recipe, tmp_path / "run", device="cpu", tensorboard=True)
        assert [line["step"] for line in log_lines(tmp_path / "run")] == [8, 10, 20, 26, 26]
        found = self.scalars(tmp_path / "run")
        lines = [line for line in log_lines(run.folder) if "loss" in line]
        for name in ("loss", "learning_rate"):
            assert [step for step, _ in found[name]] == [10, 20, 26]
            assert [value for _, value in found[name]] == pytest.approx([line[name] for line in lines])
        assert "windows_per_second" in found
        quality = [line for line in log_lines(run.folder) if "evaluation" in line]
        assert [step for step, _ in found["evaluation/f1"]] == [8, 26]
        assert [value for _, value in found["evaluation/f1"]] == pytest.approx(
            [line["evaluation"]["f1"] for line in quality]
        )

    def test_none_unless_asked(self, run):
        assert not (run.folder / "tensorboard").exists()

    def test_without_the_package(self, made, tmp_path, cli, monkeypatch):
        recipe = make_recipe_file(tmp_path / "r.toml", made)
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
        result = cli("train", recipe, "--tensorboard", "--out", tmp_path / "run")
        assert result.returncode == 2
        assert result.stderr == (
            "quoth: TensorBoard is not installed: pip install tensorboard, or leave --tensorboard out\n"
        )
        assert cli("train", recipe, "--out", tmp_path / "run").returncode == 0


def test_an_evaluation_is_that_of_quoth_evaluate(span_model, material, tmp_path, cli):
    """A model with real weights, at windows of its own, which its folder remembers."""
    made = table(span_model, material.train, material.dev, optimisation={"epochs": 0.2, "learning_rate": 1e-4})
    made["data"] = {
        "train": str(material.train),
        "evaluate": str(material.dev),
        "max_length": 60,
        "step": 20,
        "max_query_length": 12,
    }
    made["tuning"] = {"kind": "freeze", "layers": 1, "norms": "above"}
    facts = train(make_recipe(made), tmp_path / "run", device="cpu")
    result = cli("evaluate", material.dev, "--model", tmp_path / "run/model", "--device", "cpu", "--json")
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    print(facts["quality"])
    assert facts["quality"]["answered_f1"] > 20  # the answers are not all wrong
    assert facts["quality"] == {key: told[key] for key in facts["quality"]}
    assert told["cost"]["parameters"] == facts["total_parameters"]


class TestCommandLine:
    @pytest.fixture
    def recipe(self, made, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        return make_recipe_file(tmp_path / "first.toml", made)

    def test_help(self, cli):
        told = cli("train", "--help").stdout
        assert "RECIPE" in told
        assert "[KEY=VALUE]..." in told
        for option in ("--out", "--device", "--tensorboard", "--json"):
            assert option in told

    def test_json_is_metrics_and_out_is_the_name(self, recipe, cli, tmp_path):
        result = cli("train", "first.toml", "optimisation.epochs=0.5", "seed=3", "--json", "--device", "cpu")
        assert result.returncode == 0
        facts = json.loads(result.stdout)
        assert facts == json.loads((tmp_path / "runs/first/metrics.json").read_text())
        assert facts["command"] == sys.argv
        assert read_recipe(tmp_path / "runs/first/recipe.toml").seed == 3
        assert result.stderr.startswith("epoch 0.47: exact ")

    def test_for_people(self, recipe, cli, monkeypatch):
        monkeypatch.setattr("quoth.cli.train.PAUSE", 0.0)
        result = cli("train", recipe, "--out", "run")
        for word in (
            "exact",
            "F1 at the best threshold",
            "trainable parameters",
            "1,011,426",
            "windows/s",
            "run/model",
        ):
            assert word in result.stdout
        progress = [line for line in result.stderr.splitlines() if "step" in line]
        assert progress[0].startswith("epoch 0.59, step 10 of 26, loss ")
        assert progress[0].endswith(" left")
        assert re.search(r"windows/s, \d\d:\d\d:\d\d left$", progress[0])

    def test_a_live_line_on_a_terminal(self, recipe, cli, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes stderr for a terminal
        told = cli("train", recipe, "--out", "run").stderr
        assert "step 26 of 26" in told  # what is shown on the way depends on how fast it is
        assert "epoch 0.47: exact" in told

    def test_what_cannot_be_written(self, recipe, cli, tmp_path):
        (tmp_path / "file").write_text("x")
        result = cli("train", recipe, "--out", tmp_path / "file/run")
        assert result.returncode == 2
        (line,) = result.stderr.splitlines()
        assert "file/run" in line


def test_a_loss_that_diverges_ends_the_run(material, tmp_path, cli):
    made = table(
        material.model, material.train, optimisation={"learning_rate": 1e30, "warmup_ratio": 0.0, "max_grad_norm": 0.0}
    )
    result = cli("train", make_recipe_file(tmp_path / "r.toml", made), "--out", tmp_path / "run", "--device", "cpu")
    assert result.returncode == 2
    assert "the loss is nan at step" in result.stderr or "the loss is inf at step" in result.stderr

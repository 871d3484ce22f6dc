"""Stages of a run: heads on the encoder at several of its epochs, what they leave behind, and mistakes."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from quoth import Reader
from quoth.answer.record import read_answers, write_answers
from quoth.data import read
from quoth.errors import QuothError
from quoth.model.loading import load
from quoth.score.quality import span_quality
from quoth.train.log import Status
from quoth.train.recipe import make_recipe, read_recipe
from train.heads_material import AT, HEADS, answers, as_it_is, frozen_table
from train.material import log_lines, make_model, make_recipe_file, train, weights


class TestFolders:
    def test_what_lies_there(self, staged):
        assert {path.name for path in staged.folder.iterdir()} == {
            *(".lock", "recipe.toml", "log.jsonl", "metrics.json", "answers.jsonl.gz"),
            *("model", "snapshots", "frozen"),
        }
        assert {path.name for path in (staged.folder / "snapshots").iterdir()} == {"epoch-0.5"}
        assert {path.name for path in staged.frozen.iterdir()} == {f"epoch-{at}" for at in AT}
        for at in AT:
            own = {"encoder"} if at != "0" else set()  # the encoder as it was loaded has no head
            here = staged.frozen / f"epoch-{at}"
            assert {path.name for path in here.iterdir()} == {"log.jsonl", "metrics.json", *HEADS, *own}
            for name in HEADS:
                assert {path.name for path in (here / name).iterdir()} == {"model", "answers.jsonl.gz", "metrics.json"}

    def test_metrics(self, staged):
        facts = json.loads((staged.folder / "metrics.json").read_text())
        assert facts == staged.facts
        assert facts["frozen"].keys() == set(AT)
        for at in AT:
            stage = json.loads((staged.frozen / f"epoch-{at}/metrics.json").read_text())
            assert stage == facts["frozen"][at]
            assert stage["steps"] == 17
            assert stage["windows_per_second"] == pytest.approx(100 / stage["train_seconds"])
            for name in HEADS:
                found = stage["heads"][name]
                assert found == json.loads((staged.frozen / f"epoch-{at}" / name / "metrics.json").read_text())
                stored = weights(staged.frozen / f"epoch-{at}" / name / "model")
                assert found["parameters"] == sum(value.numel() for value in stored.values())
                assert found["learning_rate"] == (3e-3 if name == "compress+skip" else 1e-3)
        last = facts["frozen"]["1"]["heads"]["encoder"]["quality"]
        assert last == facts["quality"]  # the encoder's own head, from the same pass as the others
        assert answers(staged.frozen / "epoch-1/encoder") == answers(staged.folder)

    @pytest.mark.parametrize("at", AT)
    def test_a_head_is_a_model_folder_whose_answers_are_kept(self, staged, lively, tmp_path, at):
        """`Reader` finds base, windows and head; its answers and scores are those that were kept."""
        dataset = read(str(lively.dev))
        base = {"0": lively.model, "0.5": staged.folder / "snapshots/epoch-0.5", "1": staged.folder / "model"}[at]
        plain = load(base)
        for name in HEADS:
            here = staged.frozen / f"epoch-{at}" / name
            assert (here / "model/delta.safetensors").exists()
            assert all(tensor.startswith("head.") for tensor in weights(here / "model"))
            model = load(here / "model")
            for key, value in plain.encoder.named_parameters():
                assert torch.equal(model.encoder.get_parameter(key), value), key
            reader = Reader.load(here / "model", device="cpu")
            assert (reader.max_length, reader.step, reader.max_query_length) == (64, 24, 24)
            decoded = reader.decode(dataset.questions)
            write_answers(tmp_path / "answers.jsonl.gz", dataset.questions, decoded)
            assert answers(tmp_path) == answers(here)
            assert span_quality(dataset, decoded)[1] == json.loads((here / "metrics.json").read_text())["quality"]
        kept = {name: read_answers(staged.frozen / f"epoch-{at}" / name / "answers.jsonl.gz").answers for name in HEADS}
        assert len(set(map(str, kept.values()))) == len(HEADS)  # the heads do not all say the same

    def test_the_log_and_who_watches(self, staged):
        for at in AT:
            lines = log_lines(staged.frozen / f"epoch-{at}")
            assert [(line["step"], "losses" in line) for line in lines] == [(10, True), (17, True), (17, False)]
            for line in lines[:2]:
                assert line["losses"].keys() == HEADS.keys()
                assert line["loss"] == pytest.approx(np.mean(list(line["losses"].values())))
                assert line["learning_rate"] == 1e-3
            assert lines[2]["evaluation"]["heads"].keys() == staged.facts["frozen"][at]["heads"].keys()
        said = [news for news in staged.told if isinstance(news, str)]
        assert [line for line in said if line.startswith("heads on")] == [
            f"heads on the encoder of epoch {at}" for at in AT
        ]
        assert sum(line.startswith("lp: exact ") for line in said) == 3
        status = [news for news in staged.told if isinstance(news, Status)]
        assert [(news.step, news.steps) for news in status] == [(10, 17), (17, 17)] * 4

    def test_a_recipe_reads_back(self, staged, lively):
        recipe = read_recipe(staged.folder / "recipe.toml")
        assert recipe == make_recipe(frozen_table(lively, HEADS))
        assert recipe.frozen.heads == HEADS

    def test_the_command_tells_again_and_trains_nothing(self, staged, lively, tmp_path, cli):
        recipe = make_recipe_file(tmp_path / "r.toml", frozen_table(lively, HEADS))
        (staged.folder / "tuned.json").write_text("{}")  # as if killed between the last two writes
        before = {path: path.stat().st_mtime_ns for path in staged.folder.rglob("*") if path.name != ".lock"}
        result = cli("train", recipe, "--out", staged.folder, "--json", "--device", "cpu")
        assert json.loads(result.stdout) == staged.facts
        del before[staged.folder / "tuned.json"]
        assert not (staged.folder / "tuned.json").exists()
        assert {path: path.stat().st_mtime_ns for path in before} == before

    def test_another_head_is_another_recipe(self, staged, lively, tmp_path, cli):
        recipe = make_recipe_file(tmp_path / "r.toml", frozen_table(lively, HEADS))
        result = cli("train", recipe, "frozen.heads.dot.max_grad_norm=1", "--out", staged.folder)
        assert result.returncode == 2
        assert "holds a run of another recipe (there, here: frozen.heads.dot.max_grad_norm: 0.1, 1)" in result.stderr


class TestEncoders:
    def test_without_epochs_the_encoder_is_as_it_is(self, lively, tmp_path):
        """at is then 0 by default; the encoder itself was neither trained nor evaluated."""
        made = as_it_is(lively, {"lp": HEADS["lp"]})
        del made["frozen"]["at"]
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        assert (facts["steps"], facts["quality"], facts["evaluations"]) == (0, {}, [])
        assert facts["frozen"].keys() == {"0"}
        plain, saved = load(lively.model), load(tmp_path / "run/model")
        for name, value in plain.encoder.named_parameters():
            assert torch.equal(saved.encoder.get_parameter(name), value)
        assert not (tmp_path / "run/log.jsonl").exists()

    def test_an_encoder_with_a_head_of_its_own_is_scored_beside_the_others(self, staged, lively, tmp_path):
        """The result of one run is the model of another, at windows of its own."""
        made = as_it_is(
            SimpleNamespace(model=staged.folder / "model", train=lively.train, dev=lively.dev), {"lp": HEADS["lp"]}
        )
        made["data"] |= {"max_length": 60}
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        assert facts["frozen"]["0"]["heads"].keys() == {"encoder", "lp"}
        reader = Reader.load(tmp_path / "run/frozen/epoch-0/lp/model", device="cpu")
        assert reader.max_length == 60  # of the recipe, not of the model below

    @pytest.mark.parametrize(
        ("tuning", "within"),
        [
            ({"kind": "adapters", "size": 4}, True),
            pytest.param({"kind": "lora", "rank": 2}, True, marks=pytest.mark.slow),
            ({"kind": "freeze", "layers": 1}, False),
            pytest.param({"kind": "freeze", "layers": 0, "norms": "above"}, False, marks=pytest.mark.slow),
        ],
    )
    def test_on_a_tuned_encoder(self, lively, tmp_path, tuning, within):
        """A snapshot is itself a delta; a head on it is one on that, or with adapters and LoRA has them within it."""
        heads = {"lp": HEADS["lp"], "dot": HEADS["dot"]}
        made = frozen_table(lively, heads, tuning=tuning)
        made["frozen"]["at"] = [0.5, 1]
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        dataset = read(str(lively.dev))
        for at, base in (("0.5", "snapshots/epoch-0.5"), ("1", "model")):
            plain = load(tmp_path / "run" / base)
            for name in heads:
                here = tmp_path / f"run/frozen/epoch-{at}" / name
                model = load(here / "model")
                own = {f"head.{key}" for key in model.head.state_dict()}
                trained = {key for key in weights(tmp_path / "run" / base) if not key.startswith("head.")}
                assert weights(here / "model").keys() == own | (trained if within else set())
                for key, value in plain.encoder.named_parameters():
                    assert torch.equal(model.encoder.get_parameter(key), value), key
                decoded = Reader.load(here / "model", device="cpu").decode(dataset.questions)
                assert span_quality(dataset, decoded)[1] == facts["frozen"][at]["heads"][name]["quality"]

    def test_without_evaluation_data(self, lively, tmp_path):
        made = as_it_is(lively, {"lp": HEADS["lp"]})
        made["data"]["evaluate"] = ""
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        assert facts["frozen"]["0"]["heads"]["lp"]["quality"] == {}
        assert {path.name for path in (tmp_path / "run/frozen/epoch-0/lp").iterdir()} == {"model", "metrics.json"}

    def test_a_fraction_of_the_data_and_of_an_epoch(self, lively, tmp_path):
        made = as_it_is(lively, {"lp": HEADS["lp"]}, epochs=0.5)
        made["data"]["fraction"] = 0.5
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        assert facts["frozen"]["0"]["steps"] == 4  # half of 9, rounded to the even one

    def test_bf16(self, lively, tmp_path):
        made = as_it_is(lively, {"lp": HEADS["lp"], "cnn": HEADS["cnn"]})
        made["optimisation"]["precision"] = "bf16"
        train(make_recipe(made), tmp_path / "run", device="cpu")
        assert all(
            value.dtype == torch.float32 for value in weights(tmp_path / "run/frozen/epoch-0/cnn/model").values()
        )


class TestMistakes:
    """Found before the encoder is trained, and named."""

    @pytest.fixture(scope="class")
    @classmethod
    def bare(cls, minilm, lively, tmp_path_factory):
        """The same without a pooler."""
        model = make_model(tmp_path_factory.mktemp("bare") / "small", minilm, pooler=False)
        return SimpleNamespace(model=model, train=lively.train, dev=lively.dev)

    @pytest.mark.parametrize(
        ("head", "culprit"),
        [
            ("pool(lerned) > linear", "recipe: frozen.heads.it: head: pool: how must be learned or average"),
            ("pol(learned) > linear", "recipe: frozen.heads.it: head: unknown step 'pol'; did you mean pool?"),
            ("layer(3) > linear", "recipe: frozen.heads.it: head: layer(3): this encoder has the states 0"),
            ({"kind": "spam"}, "recipe: frozen.heads.it: head: kind 'spam' is unknown"),
            (
                {"kind": "class", "labels": 2},
                "recipe: frozen.heads.it gives classes, but data.task = 'span' wants spans",
            ),
            (
                {"head": "linear", "rte": 1},
                "unknown key frozen.heads.it.rte; did you mean frozen.heads.it.learning_rate?",
            ),
        ],
    )
    def test_a_head(self, lively, tmp_path, cli, head, culprit):
        made = frozen_table(lively, {"lp": HEADS["lp"]})
        path = make_recipe_file(tmp_path / "r.toml", made)
        word = f"frozen.heads.it={head}" if isinstance(head, str) else f"frozen.heads.it={inline(head)}"
        result = cli("train", path, word, "--out", tmp_path / "run", "--device", "cpu")
        assert result.returncode == 2
        (line,) = result.stderr.splitlines()
        assert culprit in line
        assert not (tmp_path / "run/recipe.toml").exists()

    @pytest.mark.parametrize("at", [[0], [0.5, 0], [1]])
    def test_a_pooler_that_the_encoder_lacks(self, bare, tmp_path, at):
        pooled = {"kind": "class", "labels": 2, "pooled": True}
        plain = {"kind": "class", "labels": 2}
        made = frozen_table(bare, {"lp": pooled}, head=pooled if 0 in at else plain)
        made["data"]["task"] = "answerable"
        made["frozen"]["at"] = at
        with pytest.raises(QuothError) as raised:
            train(make_recipe(made), tmp_path / "run", device="cpu")
        assert str(raised.value) == f"recipe: frozen.heads.lp reads a pooler, which {bare.model} does not have"
        assert not (tmp_path / "run/recipe.toml").exists()

    def test_a_pooler_that_was_trained_with_the_encoder(self, bare, tmp_path):
        pooled = {"kind": "class", "labels": 2, "pooled": True}
        made = frozen_table(bare, {"lp": pooled}, head=pooled, optimisation={"epochs": 0.2})
        made["data"]["task"] = "answerable"
        made["frozen"]["at"] = []
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        assert "exact" in facts["frozen"]["0.2"]["heads"]["lp"]["quality"]

    @pytest.mark.parametrize(
        ("frozen", "culprit"),
        [
            ({"batch_size": None, "batch_tokens": 32}, "more than the budget of 32"),
            ({"batch_size": 0}, "frozen.batch_size is 0"),
        ],
    )
    def test_steps(self, lively, tmp_path, frozen, culprit):
        made = frozen_table(lively, {"lp": HEADS["lp"]})
        made["frozen"] = {key: value for key, value in {**made["frozen"], **frozen}.items() if value is not None}
        with pytest.raises(QuothError, match=culprit):
            train(make_recipe(made), tmp_path / "run", device="cpu")
        assert not (tmp_path / "run/recipe.toml").exists()

    def test_a_loss_that_diverges_names_its_head(self, lively, tmp_path):
        heads = {
            "calm": HEADS["lp"],
            "wild": {"head": "compress(8) > linear", "learning_rate": 1e30, "max_grad_norm": 0},
        }
        with pytest.raises(QuothError, match=r"the loss of wild is (nan|inf) at step 10; lower its learning_rate"):
            train(make_recipe(as_it_is(lively, heads)), tmp_path / "run", device="cpu")


def inline(value):
    return "{" + ", ".join(f"{key} = {json.dumps(inner)}" for key, inner in value.items()) + "}"

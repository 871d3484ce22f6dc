"""Algorithm 1 end to end on a tiny reader: targets, resuming, what is refused before any training."""

import json
import math
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from quoth import Reader
from quoth.answer.record import read_answers
from quoth.data import read
from quoth.errors import QuothError
from quoth.heads.cacnn import ContextCNN
from quoth.model.loading import load
from quoth.model.saving import save
from quoth.prune.cost import Parameters
from quoth.prune.gate_training import GateTraining
from quoth.prune.latency import Latency
from quoth.prune.plan import plan_rounds
from quoth.prune.recipe import make_prune_recipe
from quoth.score.squad import score_squad2
from quoth.train.loop import Loop
from quoth.train.recipe import make_recipe
from quoth.train.training import Interrupted
from train.material import assert_same_weights, make_model, make_questions, prune, table, train


@pytest.fixture(scope="module")
def material(minilm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prune")
    questions = make_questions(folder / "train.json", seed=1, passages=3)
    dev = make_questions(folder / "dev.json", seed=2, passages=1)
    base = make_model(folder / "base", minilm, initializer_range=0.2)
    train(make_recipe(table(base, questions)), folder / "tuned", device="cpu")
    return SimpleNamespace(model=folder / "tuned/model", train=questions, dev=dev)


def recipe(material, **sections):
    made = {
        "model": str(material.model),
        "data": table("", material.train, material.dev)["data"],
        "target": {"keep": [0.8, 0.5], "embeddings": False},
        "gates": {"steps": 4, "batch_size": 8, "learning_rate": 0.05},
        "recovery": {"epochs": 0.5, "batch_size": 8, "learning_rate": 1e-3},
        "distillation": {"task_weight": 0.5, "states_weight": 0.5},
        "round_epochs": 0.2,
    }
    for name, value in sections.items():
        made[name] = {**made.get(name, {}), **value} if isinstance(value, dict) else value
    return make_prune_recipe(made)


@pytest.fixture(scope="module")
def run(material, tmp_path_factory):
    folder, told = tmp_path_factory.mktemp("runs") / "run", []
    made = recipe(material, target={"rounds": 2})
    facts = prune(made, folder, device="cpu", tell=told.append)
    return SimpleNamespace(folder=folder, facts=facts, told=told, recipe=made)


class TestRun:
    def test_targets_are_reached(self, run):
        cost = Parameters(embeddings=False, pooler=True)
        full = cost(load(run.recipe.model).encoder.shape)
        for keep in (0.8, 0.5):
            model = load(run.folder / f"keep-{keep}/model")
            assert 0.9 * keep * full < cost(model.encoder.shape) <= keep * full
            facts = run.facts["targets"][f"keep-{keep}"]
            assert facts["parameters"] == sum(value.numel() for value in model.parameters())
            assert facts["shape"] == model.encoder.shape.to_json()
            assert facts["cost"] == cost(model.encoder.shape) / full
            assert set(facts["losses"]) == {"before", "gated", "cut", "recovered"}
            assert facts["steps"]["gates"] == 4

    def test_recovery_helps(self, run):
        for facts in run.facts["targets"].values():
            assert facts["losses"]["recovered"] < facts["losses"]["cut"]

    def test_a_saved_model_answers_as_it_was_scored(self, run, material):
        """The answers written with the metrics, again from the folder."""
        dataset = read(str(material.dev))
        found = read_answers(run.folder / "keep-0.5/answers.jsonl.gz")
        decoded = Reader.load(run.folder / "keep-0.5/model", device="cpu").decode(dataset.questions)
        np.testing.assert_allclose(found.null_minus_best, decoded.finite_margins())
        for number, answers in enumerate(found.answers):
            assert answers == tuple(a for a in decoded.answers(number, math.inf) if not a.no_answer)[: len(answers)]
        scored = score_squad2(dataset.questions, dict(zip(found.ids, found.predictions())))
        assert scored.summary().items() <= run.facts["targets"]["keep-0.5"]["quality"].items()

    def test_what_is_left_behind(self, run):
        assert {path.name for path in run.folder.iterdir()} == {
            ".lock", "recipe.toml", "unpruned.json", "rounds", "keep-0.8", "keep-0.5", "metrics.json",
        }  # fmt: skip
        assert not list(run.folder.rglob("checkpoints"))
        assert not [path for path in run.folder.glob("rounds/*/*") if path.name in ("cut", "model")]
        assert json.loads((run.folder / "metrics.json").read_text()) == run.facts
        assert len(list(run.folder.glob("rounds/*/alpha.safetensors"))) == 4

    def test_a_run_that_has_ended_says_so_again(self, run):
        assert prune(run.recipe, run.folder, device="cpu") == run.facts


class Killed(Exception):
    pass


@pytest.mark.parametrize("at", ["recovery, 1", "round 2", "round 4", "loss "])
@pytest.mark.slow
def test_a_killed_run_goes_on(run, at, tmp_path):
    """Killed in the gates, the recovery or between rounds: finished rounds stay, and the models are the same."""
    seen = []

    def kill(news):
        seen.append(news)
        if isinstance(news, str) and news.startswith(at):
            raise Killed

    with pytest.raises(Killed):
        prune(run.recipe, tmp_path / "run", device="cpu", tell=kill)
    done = len(list((tmp_path / "run").glob("rounds/*/round.json")))
    told = []
    facts = prune(run.recipe, tmp_path / "run", device="cpu", tell=told.append)
    assert sum(isinstance(news, str) and news.startswith("round ") for news in told) == 4 - done
    assert facts["targets"]["keep-0.5"]["losses"] == run.facts["targets"]["keep-0.5"]["losses"]
    for keep in ("keep-0.8", "keep-0.5"):
        assert_same_weights(tmp_path / "run" / keep / "model", run.folder / keep / "model")


@pytest.mark.slow
def test_a_signal_leaves_a_checkpoint(run, tmp_path, monkeypatch):
    """In the middle of the gates' steps, and the run goes on from there to the same models."""
    advance = Loop.advance

    def signalled(loop):
        advance(loop)
        if isinstance(loop.objective, GateTraining) and loop.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Loop, "advance", signalled)
        with pytest.raises(Interrupted, match="step 2 of 4"):
            prune(run.recipe, tmp_path / "run", device="cpu")
    assert (tmp_path / "run/rounds/01/gates/checkpoints/step-00000002").is_dir()
    prune(run.recipe, tmp_path / "run", device="cpu")
    assert_same_weights(tmp_path / "run/keep-0.5/model", run.folder / "keep-0.5/model")


class TestMethods:
    @pytest.mark.parametrize(
        "sections",
        [
            {"method": "layers", "target": {"keep": [0.6]}},
            {"method": "uniform", "ranking": "magnitude"},
            {"method": "uniform", "gates": {"penalty": "proximal", "gamma": 1.0}},
            {"ranking": "random", "target": {"keep": [0.6], "kinds": "af", "multiple": 4}},
            {"gates": {"penalty": "l0", "fold": False}, "target": {"keep": [0.6], "by": "flops"}},
            {"start": {"layers": 1, "embedding": 8, "epochs": 0.0}, "target": {"keep": [0.4]}},
        ],
        ids=lambda sections: "-".join(map(str, sections)),
    )
    def test_each(self, sections, material, tmp_path):
        made = recipe(material, gates={**sections.pop("gates", {}), "steps": 2}, recovery={"epochs": 0.1}, **sections)
        facts = prune(made, tmp_path / "run", device="cpu")
        for name, target in facts["targets"].items():
            model = load(tmp_path / "run" / name / "model")
            assert model.encoder.shape.to_json() == target["shape"]
            if name != "start":
                assert target["cost"] <= float(name.removeprefix("keep-")) + 1e-9
        if made.start.layers:
            assert len(facts["targets"]["start"]["shape"]["layers"]) == 1
            assert facts["targets"]["keep-0.4"]["shape"]["embedding"] == 8
            assert (
                facts["targets"]["start"]["steps"]["recovery"] == 0 < facts["targets"]["keep-0.4"]["steps"]["recovery"]
            )

    def test_by_a_latency_that_was_measured_before(self, material, tmp_path):
        """Of a tiny model nearly all time is overhead, which no cut takes away: a table of a larger one."""
        made = Latency("cpu", 512, 64, (0, 0, 0, 1e-6, 1e-6, 0, 0), (0, 0, 0, 1e-6), 0.0)
        (tmp_path / "run").mkdir()
        (tmp_path / "run/latency.json").write_text(json.dumps(made.to_json()))
        short = recipe(material, target={"keep": [0.6], "by": "latency"}, gates={"steps": 2}, recovery={"epochs": 0.1})
        prune(short, tmp_path / "run", device="cpu")
        before, after = (load(place).encoder.shape for place in (material.model, tmp_path / "run/keep-0.6/model"))
        assert 0.5 * made(before) < made(after) <= 0.6 * made(before)

    def test_fresh_targets_begin_anew(self, material):
        shape, cost = load(material.model).encoder.shape, Parameters()
        chain = plan_rounds(recipe(material, target={"rounds": 2}), shape, cost)
        fresh = plan_rounds(recipe(material, target={"rounds": 2, "fresh": True}), shape, cost)
        assert [round(r.part, 3) for r in chain] == [0.9, 0.8, 0.65, 0.5]
        assert [round(r.part, 3) for r in fresh] == [0.9, 0.8, 0.75, 0.5]
        assert [r.before for r in chain] == [0, 1, 2, 3]
        assert [r.before for r in fresh] == [0, 1, 0, 3]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")
@pytest.mark.parametrize("penalty", ["l1", "l0"])
def test_on_a_gpu(material, penalty, tmp_path):
    made = recipe(material, gates={"penalty": penalty, "states_weight": 0.1}, target={"rounds": 2, "multiple": 8})
    facts = prune(made, tmp_path / "run", device="cuda")
    for target in facts["targets"].values():
        assert target["losses"]["recovered"] < target["losses"]["cut"] + 0.5
        assert target["cost"] <= target["part"] + 1e-9


class TestRefused:
    def refused(self, made, folder, match):
        with pytest.raises(QuothError, match=match):
            prune(made, folder, device="cpu")
        assert not (folder / "recipe.toml").exists()

    def test_a_target_below_the_smallest_shape(self, material, tmp_path):
        made = recipe(material, target={"keep": [0.5], "kinds": "a"})
        self.refused(
            made, tmp_path / "run", r"target.keep = 0.5 cannot be reached: cutting a as far as it goes leaves 0"
        )

    @pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
    def test_a_latency_that_cannot_be_measured(self, material, tmp_path):
        made = recipe(material, target={"by": "latency", "device": "cuda"})
        self.refused(made, tmp_path / "run", "latency cannot be measured")

    def test_a_head_that_does_not_follow(self, material, tmp_path):
        model = load(material.model)
        model.head = ContextCNN(model.encoder.shape.hidden)
        save(model, tmp_path / "model")
        made = recipe(SimpleNamespace(model=tmp_path / "model", train=material.train, dev=""))
        self.refused(made, tmp_path / "run", "cannot follow a cut of the hidden size")

    def test_no_head(self, material, minilm, tmp_path):
        base = make_model(tmp_path / "base", minilm)
        made = recipe(SimpleNamespace(model=base, train=material.train, dev=""))
        self.refused(made, tmp_path / "run", "has no head")

    def test_a_start_that_leaves_less_than_the_target(self, material, tmp_path):
        made = recipe(material, start={"layers": 1}, target={"keep": [0.9, 0.8]})
        self.refused(made, tmp_path / "run", "keep = 0.9 cannot be reached: what is done at the start leaves")

    def test_a_teacher_that_no_loss_needs(self, material):
        """The default loss is the task's; a teacher that is named is meant to be used."""
        with pytest.raises(
            QuothError, match=r"teacher is \('x',\); it must be empty, or set distillation.logits_weight"
        ):
            recipe(material, teacher="x", distillation={"states_weight": 0.0})

    def test_no_model(self, material):
        with pytest.raises(QuothError, match="model is ''; it must be a folder or hub id of a model with a head for"):
            recipe(material, model="")

    def test_another_recipe(self, run, material, tmp_path):
        with pytest.raises(QuothError, match=r"another recipe \(there, here: target.rounds: 2, 1\)"):
            prune(recipe(material), run.folder, device="cpu")

    def test_a_folder_of_something_else(self, material, tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(QuothError, match="not a run folder"):
            prune(recipe(material), tmp_path, device="cpu")

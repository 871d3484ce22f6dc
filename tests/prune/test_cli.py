"""`quoth prune`, and the drawing of `quoth inspect`."""

import json

import pytest

from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.prune.recipe import read_prune_recipe
from quoth.train.recipe import make_recipe
from train.material import make_model, make_questions, table, train

SHORT = ("gates.steps=2", "gates.batch_size=8", "recovery.epochs=0.2", "recovery.batch_size=8")


@pytest.fixture(scope="module")
def place(minilm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prune")
    questions = make_questions(folder / "train.json", seed=1, passages=2)
    base = make_model(folder / "base", minilm)
    train(make_recipe(table(base, questions, optimisation={"epochs": 0.2})), folder / "tuned", device="cpu")
    return folder


def test_the_simple_case(place, tmp_path, cli):
    run = ("prune", place / "tuned/model", *SHORT, "--keep", 0.7, "--keep", 0.9, "--data", place / "train.json")
    done = cli(*run, "--evaluate", place / "train.json", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    for name in ("unpruned", "keep-0.9", "keep-0.7", "exact"):
        assert name in done.stdout
    assert "gates by distillation, recovery by distillation; teacher: the unpruned model" in done.stdout
    assert "round 2 of 2: 0.700 of the parameters" in done.stderr
    assert "steps, loss: distillation" in done.stderr
    recipe = read_prune_recipe(tmp_path / "run/recipe.toml")
    assert recipe.data.max_length == 64  # the model's own windows
    assert (recipe.gates.floor, recipe.target.give_back, recipe.distillation.states_weight) == (0.1, True, 1.0)
    before, after = (
        load(folder).encoder.shape.total() for folder in (place / "tuned/model", tmp_path / "run/keep-0.7/model")
    )
    assert 0.45 * before < after < 0.71 * before  # sizes are multiples of 8, of the 32 hidden units too
    shape = load(tmp_path / "run/keep-0.7/model").encoder.shape
    assert {size % 8 for layer in shape.layers for size in (layer.key, layer.value, layer.ffn, shape.hidden)} == {0}
    again = cli(*run, "--evaluate", place / "train.json", "--out", tmp_path / "run", "--json")
    assert set(json.loads(again.stdout)["targets"]) == {"keep-0.9", "keep-0.7"}


def test_a_recipe(place, tmp_path, cli, monkeypatch):
    (tmp_path / "small.toml").write_text(
        f"""
        model = "{place / "tuned/model"}"
        method = "layers"
        [data]
        train = "{place / "train.json"}"
        max_length = 64
        step = 24
        max_query_length = 24
        [target]
        keep = 0.9
        embeddings = false
        [recovery]
        batch_size = 8
        """
    )
    monkeypatch.chdir(tmp_path)
    done = cli("prune", "small.toml", "target.keep=[0.6, 0.01]", "recovery.epochs=0.1", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert len(facts["targets"]["keep-0.6"]["shape"]["layers"]) == 1
    assert facts["loss"] == {"recovery": "task"}
    line = "target.keep = 0.01 cannot be reached: dropping layers as far as it goes leaves"
    assert facts["unreachable"]["keep-0.01"].startswith(line)
    assert line in done.stderr
    again = cli("prune", "small.toml", "target.keep=[0.6, 0.01]", "recovery.epochs=0.1")
    assert "recovery by the task's loss\n" in again.stdout
    assert line in again.stdout
    assert len(load(tmp_path / "runs/small/keep-0.6/model").encoder.shape.layers) == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--data", "x.json"), "--keep is missing"),
        (("--keep", 0.5), "--data is missing"),
        (("--keep", 1.5, "--data", "x.json"), "target.keep is 1.5"),
        (("--keep", 0.5, "--data", "x.json", "--by", "watts"), "target.by is 'watts'"),
        (("--keep", 0.5, "--data", "x.json", "gates.rates=1"), "did you mean gates.learning_rate?"),
        (("--keep", 0.001, "--data", "x.json"), "cannot be reached"),
        (("--keep", 0.5, "--data", "x.json", "--by", "latency", "target.device=tpu"), "latency cannot be measured"),
        (("--keep", 0.5, "--data", "x.json"), "x.json: no such file"),
    ],
)
def test_mistakes_are_one_line(place, words, line, tmp_path, cli):
    done = cli("prune", place / "tuned/model", *words, "--out", tmp_path / "run")
    assert done.returncode == 2
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_recipe_that_ships_says_what_it_needs(tmp_path, cli):
    done = cli("prune", "prune.toml", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "model is ''; it must be a folder or hub id of a model with a head for data.task 'span'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_inspect_draws_sizes(tmp_path, cli):
    layers = (LayerShape(4, 8, 6, 20), LayerShape(3, 8, 4, 30), LayerShape(1, 2, 2, 40))
    save(Model(Encoder(Shape(23, 16, 2, 12, 12, layers))), tmp_path / "model")
    done = cli("inspect", tmp_path / "model", "--plot", tmp_path / "sizes.svg")
    assert done.returncode == 0, done.stderr
    drawn = (tmp_path / "sizes.svg").read_text()
    for word in ("feed-forward size", "heads", "key size", "value size", "hidden 12"):
        assert word in drawn

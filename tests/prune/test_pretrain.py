"""Pruning under the loss of pre-training, of an encoder that comes without heads for it."""

from functools import partial
from types import SimpleNamespace

import pytest

from quoth.errors import QuothError
from quoth.model.loading import load
from quoth.prune.recipe import make_prune_recipe
from quoth.train.warm_up import warm_up
from train.material import FACTS, make_model, prune


@pytest.fixture(scope="module")
def material(minilm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    paragraphs = [" ".join(FACTS[(i + j) % len(FACTS)][0] for j in range(3)) for i in range(30)]
    (folder / "text.txt").write_text("\n\n".join(paragraphs))
    return SimpleNamespace(model=make_model(folder / "base", minilm, pooler=False), text=folder / "text.txt")


def recipe(material, held_out=0.2):
    return make_prune_recipe(
        {
            "model": str(material.model),
            "data": {"train": str(material.text), "task": "pretrain", "max_length": 48, "held_out": held_out},
            "target": {"keep": [0.6], "embeddings": False},
            "gates": {"steps": 3, "batch_size": 4, "task_weight": 1.0},
            "recovery": {"epochs": 0.3, "batch_size": 4, "learning_rate": 1e-3},
            "distillation": {"task_weight": 1.0, "states_weight": 0.1},
        }
    )


def test_heads_are_fitted_first_and_follow_the_cut(material, tmp_path, monkeypatch):
    monkeypatch.setattr("quoth.prune.schedule.warm_up", partial(warm_up, every=2, most=4))
    told = []
    facts = prune(recipe(material), tmp_path / "run", device="cpu", tell=told.append)
    assert any(isinstance(news, str) and news.startswith("heads: 4 steps, held-out loss") for news in told)
    assert load(tmp_path / "run/unpruned").head.task == "mlm"
    target = facts["targets"]["keep-0.6"]
    assert (facts["losses_on"], set(target["losses"])) == ("evaluate", {"before", "gated", "cut", "recovered"})
    assert target["losses"]["recovered"] < target["losses"]["cut"]
    assert target["quality"]["mlm_loss"] > 0
    small = load(tmp_path / "run/keep-0.6/model")
    assert small.head.dense.weight.shape == (small.encoder.shape.hidden,) * 2
    assert small.pooler.weight.shape == (small.encoder.shape.hidden,) * 2


def test_without_a_held_out_part_heads_cannot_be_fitted(material, tmp_path):
    with pytest.raises(QuothError, match=r"data.held_out is 0"):
        prune(recipe(material, 0.0), tmp_path / "run", device="cpu")

from types import SimpleNamespace

import pytest
import torch

from quoth.train.recipe import make_recipe
from train.cache_material import recipe
from train.heads_material import HEADS, frozen_table
from train.material import make_model, make_questions, train


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As the processes that these tests start; small models gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def material(minilm, tmp_path_factory):
    """A small model (hidden 32) and questions to train (60) and to evaluate (20) it on."""
    folder = tmp_path_factory.mktemp("material")
    return SimpleNamespace(
        model=make_model(folder / "small", minilm),
        train=make_questions(folder / "train.json", seed=1),
        dev=make_questions(folder / "dev.json", seed=2, passages=2),
    )


@pytest.fixture(scope="session")
def lively(material, minilm, tmp_path_factory):
    """The same with wide weights (σ = 0.3), so that states and answers differ by far more than rounding."""
    model = make_model(tmp_path_factory.mktemp("lively") / "small", minilm, initializer_range=0.3)
    return SimpleNamespace(model=model, train=material.train, dev=material.dev)


@pytest.fixture(scope="session")
def staged(lively, tmp_path_factory):
    """A run of seven heads at three moments of the encoder, in one command."""
    folder = tmp_path_factory.mktemp("frozen") / "run"
    told = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a fixture of the session comes before `one_thread`
    facts = train(make_recipe(frozen_table(lively, HEADS)), folder, device="cpu", tell=told.append)
    torch.set_num_threads(threads)
    return SimpleNamespace(folder=folder, facts=facts, told=told, frozen=folder / "frozen")


@pytest.fixture(scope="session")
def cached(lively, tmp_path_factory):
    """A cached stage that was not interrupted."""
    folder, told = tmp_path_factory.mktemp("cached") / "run", []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as above
    facts = train(make_recipe(recipe(lively)), folder, device="cpu", tell=told.append)
    torch.set_num_threads(threads)
    return SimpleNamespace(folder=folder, stage=folder / "frozen/epoch-0", facts=facts, told=told)

"""What tests of `quoth advise` are made of: a table of four candidates, questions, and results without times."""

import json
from types import SimpleNamespace

import pytest
import torch

from quoth.experiments import advise_candidates
from quoth.experiments.advise import Ask, advise
from quoth.experiments.advise_limits import Limits
from train.material import make_model, make_questions

TABLE = """
recipe = "hulburd/l12"
[override]
data.max_length = 64
data.step = 24
data.max_query_length = 24
optimisation.batch_size = 6
[runs."full 1e-3"]
tuning = { kind = "full" }
optimisation.learning_rate = 1e-3
[runs."full 1e-2"]
tuning = { kind = "full" }
optimisation.learning_rate = 1e-2
[runs."LoRA 1e-2"]
tuning = { kind = "lora", rank = 4, alpha = 8 }
optimisation.learning_rate = 1e-2
[runs."half depth 1e-2"]
tuning = { kind = "full" }
head = "layer(half) > linear"
optimisation.learning_rate = 1e-2
"""
DIVERGES = """
[runs."full 1e30"]
tuning = { kind = "full" }
optimisation.learning_rate = 1e30
optimisation.max_grad_norm = 0
"""
TIMES = ("seconds", "train_seconds", "wall_seconds", "wall", "latency")


@pytest.fixture(scope="module")
def given(minilm, tmp_path_factory):
    """A random BERT of 2 layers and 100 questions about 10 passages."""
    folder = tmp_path_factory.mktemp("advise")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield SimpleNamespace(
        model=make_model(folder / "small", minilm), data=make_questions(folder / "my.json", 3, passages=10)
    )
    torch.set_num_threads(before)


@pytest.fixture
def four(monkeypatch, tmp_path):
    """The table of four candidates in the place of the real one."""
    return use_table(monkeypatch, tmp_path, TABLE)


def use_table(monkeypatch, folder, text):
    path = folder / "table.toml"
    path.write_text(text)
    monkeypatch.setattr(advise_candidates, "TABLE", path)
    return path


def search(given, out, limits=None, tell=None, **more):
    ask = Ask(str(given.data), str(given.model), limits or Limits(), device="cpu", **more)
    return advise(ask, out, tell=tell)


def timeless(value):
    """The same without what a clock says."""
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [timeless(inner) for inner in value]
    return value


def scores(out):
    """The scores of every round, by candidate and round."""
    return {
        f"{path.parent.name}/{path.name}": timeless(json.loads(path.read_text()))
        for path in sorted(out.glob("candidates/*/round-*.json"))
    }

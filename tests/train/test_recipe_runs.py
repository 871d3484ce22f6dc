"""Every recipe of the papers runs from its first step to its last, on a tiny model with few questions, offline.

Nothing of a recipe is changed but the model, the data and their length. A fifth of 60 questions makes an epoch of a few
steps.
"""

import json
import re
import shlex
from types import SimpleNamespace

import pytest
import torch
import transformers

from quoth.data import read
from quoth.recipes import find_recipe, recipe_names
from quoth.train.recipe import read_recipe
from train.material import TOKENIZER, make_model
from train.test_classes import tables

NAMES = [name for name in recipe_names() if name.partition("/")[0] in ("hulburd", "bertvision", "silva")]
TABLES = {"mrpc": "MRPC", "sst2": "SST-2", "cola": "CoLA", "rte": "MRPC"}  # pairs for pairs


@pytest.fixture(scope="module")
def place(material, minilm, tmp_path_factory):
    """Tiny models of the recipes' families, and all their data as files."""
    folder = tmp_path_factory.mktemp("recipes")
    tables(folder, "train", 0)
    tables(folder, "dev", 3)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.AlbertConfig(**sizes, vocab_size=30522, embedding_size=16, pad_token_id=0)
    transformers.AlbertModel(config).save_pretrained(folder / "albert")
    for name in TOKENIZER:
        if (minilm / name).exists():
            (folder / "albert" / name).write_bytes((minilm / name).read_bytes())
    twelve = make_model(folder / "bert-12", minilm, num_hidden_layers=12)  # for recipes that count layers
    return SimpleNamespace(
        folder=folder,
        bert=material.model,
        deep=twelve,
        albert=folder / "albert",
        train=material.train,
        dev=material.dev,
    )


def changes(name, recipe, place):
    """What brings a recipe here: overrides of its model and its data."""
    paper, stem = name.split("/")
    model = place.albert if "albert" in recipe.model else place.deep if paper == "hulburd" else place.bert
    data = {"max_length": 64, "fraction": 0.2}
    if recipe.data.task == "glue":
        folder = place.folder / TABLES[stem]
        data |= {"train": folder / "train.tsv", "evaluate": folder / "dev.tsv"}
    else:
        data |= {"train": place.train, "evaluate": place.dev, "step": 24, "max_query_length": 24}
    return [f"model={model}", *(f"data.{key}={value}" for key, value in data.items())]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_runs(name, place, tmp_path, cli):
    recipe = read_recipe(find_recipe(name))
    run = tmp_path / "run"
    result = cli("train", name, *changes(name, recipe, place), "--out", run, "--device", "cpu", "--json")
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    count = len(facts["evaluations"])
    assert 1 <= count <= len(recipe.evaluation.at) + 1  # some of its epochs are the same step here
    assert (facts["evaluations"][0]["step"] == 0) == (0 in recipe.evaluation.at)
    assert facts["quality"]
    for epoch in recipe.frozen.at:
        stage = facts["frozen"][f"{epoch:g}"]
        own = {"encoder"} if epoch else set()  # before training it has no head
        assert stage["heads"].keys() == {*recipe.frozen.heads, *own}
        assert all(head["quality"] for head in stage["heads"].values())
        for curve in (stage["heads"][head].get("curve") for head in recipe.frozen.heads if recipe.frozen.evaluate):
            assert curve
    for line in find_recipe(name).read_text(encoding="utf-8").splitlines():
        if "quoth ensemble RUN" in line:
            ensemble(line, run, place, cli)


def ensemble(line, run, place, cli):
    """The command in the comment of a recipe makes a model that answers."""
    words = shlex.split(re.sub(r"RUN", str(run), line.lstrip("# ")))[1:]
    result = cli(*words)
    assert result.returncode == 0, result.stderr
    scored = cli("evaluate", place.dev, "--model", words[-1], "--rule", "bertvision", "--json", "--device", "cpu")
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["total"] == len(read(place.dev).questions)

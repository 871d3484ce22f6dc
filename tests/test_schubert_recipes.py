"""Recipes of schuBERT: the paper's loss, its published sizes, and a dry run of each on a tiny model."""

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.heads import build_head
from quoth.heads.mlm import mlm_table
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.prune.allocate import allocate
from quoth.prune.baselines import layers_for
from quoth.prune.cost import Parameters
from quoth.prune.dimensions import sizes, with_sizes
from quoth.prune.latency import Latency
from quoth.prune.plan import plan_rounds, start_shape, unreachable
from quoth.prune.recipe import read_prune_recipe
from quoth.recipes import find_recipe, recipe_names
from quoth.train.warm_up import warm_up
from train.material import FACTS, copy_tokenizer, prune

NAMES = ("a", "albert-e", "all", "f", "h", "layers", "uniform")
BASE = Shape.uniform(layers=12, hidden=768, heads=12)
COST = Parameters(pooler=True)
LARGE, SMALL = "keep-0.8115", "keep-0.304"
# Layers of table 12 (99M) and table 7 (88M), first to last; where cells cannot be read a = 12 and k = 64 are taken.
F99 = (2022, 2222, 2344, 2478, 2576, 2530, 2638, 2660, 2748, 2792, 2852, 2974)
V99 = (54, 54, 46, 58, 52, 60, 64, 64, 64, 64, 64, 62)
F88 = (1382, 1550, 1672, 1956, 2052, 2030, 2210, 2314, 2474, 2556, 2668, 2938)
V88 = (46, 48, 42, 52, 46, 54, 64, 62, 64, 64, 64, 40)
H = {0.7075: 544, 0.606: 466, 0.507: 390, 0.395: 304, 0.304: 234}  # table 10, from 77M to 33M


def recipe(name, *overrides):
    return read_prune_recipe(find_recipe(f"schubert/{name}"), overrides)


def layered(hidden, ffn, value, eleven=()):
    layers = (LayerShape(11 if i in eleven else 12, 64, v, f) for i, (f, v) in enumerate(zip(ffn, value)))
    return replace(BASE, hidden=hidden, embedding=hidden, layers=tuple(layers))


def test_every_row_has_a_recipe():
    assert tuple(name.removeprefix("schubert/") for name in recipe_names() if name.startswith("schubert/")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_says_what_the_paper_says(name):
    made = recipe(name)
    with torch.device("meta"):
        encoder = Encoder(BASE)
        model = Model(encoder, build_head(mlm_table(BASE, encoder.style), 768, 12), pooler=True)
    assert made.model == "bert-base-uncased"
    assert sum(value.numel() for value in model.parameters()) == 110_106_428  # BertForPreTraining, tied
    assert COST(BASE) == 109_482_240  # BertModel
    assert made.losses == ({"recovery": "task"} if name == "layers" else {"gates": "task", "recovery": "task"})
    assert (made.data.task, made.teacher, made.target.by, made.target.embeddings) == (
        "pretrain",
        (),
        "parameters",
        True,
    )
    assert (made.gates.floor, made.gates.fold, made.target.give_back, made.target.per_cost) == (0, True, False, False)
    assert made.gates.penalty == "l1"
    assert len(made.target.keep) == 7
    millions = [keep * COST(BASE) / 1e6 for keep in made.target.keep]
    allowed = 3 if name == "layers" else 1  # BERT-3 has 45.7M, beside 43M
    assert all(0 <= found - size < allowed for found, size in zip(millions, (98.3, 88, 77, 66, 55, 43, 33)))


def test_the_shapes_of_the_paper_fit_the_sizes():
    """Tables 7 and 12, whose totals without pooler name the rows; table 10 is what a cut of h alone gives."""
    made = recipe("all")
    shapes = [layered(768, F99, V99, eleven=(4,)), layered(756, F88, V88, eleven=(11,))]
    shapes += [with_sizes(BASE, {"h": size}) for size in H.values()]
    for keep, shape in zip(made.target.keep, shapes):
        assert 0.997 * keep * COST(BASE) < COST(shape) <= keep * COST(BASE)
    scores = {"h": torch.arange(768.0)}
    for keep, size in H.items():
        assert int(allocate(scores, BASE, COST, keep * COST(BASE))["h"].sum()) == size


@pytest.mark.parametrize(
    ("name", "missed", "floor"),
    [
        ("all", (), 0),
        ("h", (), 0),
        ("uniform", (), 0),
        ("layers", (), 0),
        ("f", (0.395, 0.304), 52.3),
        ("a", (0.7075, 0.606, 0.507, 0.395, 0.304), 82.9),
        ("albert-e", (0.904, 0.8115), 0),
    ],
)
def test_sizes_that_no_shape_satisfies(name, missed, floor):
    """FACTS: one head a layer is 82.9M, f = 1 is 52.3M, both without the pooler."""
    made = recipe(name)
    found = unreachable(made, BASE, COST)
    assert tuple(found) == tuple(f"keep-{keep:g}" for keep in missed)
    targets = [now.target for now in plan_rounds(made, BASE, COST) if now.target.startswith("keep-")]
    assert targets == [f"keep-{keep:g}" for keep in made.target.keep if keep not in missed]
    if floor:
        least = with_sizes(BASE, dict.fromkeys(sizes(BASE, name), 1))
        assert round(least.total() / 1e6, 1) == floor
        assert all(f"leaves {COST(least) / COST(BASE):.3f} of the parameters" in line for line in found.values())


def test_fewer_layers_are_those_of_the_paper():
    """BERT-9, BERT-6 and BERT-3 beside 88M, 66M and 43M."""
    keep = recipe("layers").target.keep
    assert [layers_for(BASE, COST, part * COST(BASE)) for part in keep] == [10, 9, 7, 6, 4, 3, 1]


def test_albert_e_has_88_million():
    shape = start_shape(recipe("albert-e"), BASE)
    assert (shape.embedding, shape.projection) == (64, True)
    assert round(COST(shape) / 1e6) == 88


@pytest.fixture(scope="module")
def tiny(minilm, tmp_path_factory):
    """A model in which embeddings, attention and feed-forward layers have about a third of the parameters each."""
    folder = tmp_path_factory.mktemp("schubert")
    shape = Shape(30522, 64, 2, 32, 32, (LayerShape(16, 64, 64, 2048),) * 4)
    torch.manual_seed(0)
    encoder = Encoder(shape)
    save(Model(encoder, build_head(mlm_table(shape, encoder.style), 32, 4), pooler=True), folder / "model")
    copy_tokenizer(minilm, folder / "model")
    paragraphs = [" ".join(FACTS[(i + j) % len(FACTS)][0] for j in range(3)) for i in range(16)]
    (folder / "text.txt").write_text("\n\n".join(paragraphs))
    return SimpleNamespace(model=folder / "model", text=folder / "text.txt", shape=shape)


SHORT = ("data.max_length=48", "data.held_out=0.3", "gates.steps=2", "gates.batch_size=8", "recovery.epochs=0.3")
SHORT += ("recovery.batch_size=8", "target.keep=[0.8115, 0.304]")


@pytest.mark.parametrize("name", NAMES)
def test_a_dry_run(tiny, name, tmp_path, monkeypatch):
    """Largest and smallest size; one that no shape of the tiny model has is told in one line, and the other is done."""
    monkeypatch.setattr("quoth.prune.schedule.warm_up", partial(warm_up, every=2, most=4))
    more = ("start.embedding=8",) if name == "albert-e" else ()
    made, told = recipe(name, f"model={tiny.model}", f"data.train={tiny.text}", *SHORT, *more), []
    facts = prune(made, tmp_path / "run", device="cpu", tell=told.append)
    missed = {"f": {SMALL}, "a": {SMALL}, "layers": {SMALL}, "albert-e": {LARGE}}.get(name, set())
    assert set(facts.get("unreachable", {})) == missed
    assert all(facts["unreachable"][key] in told for key in missed)
    assert set(facts["targets"]) - {"start"} == {LARGE, SMALL} - missed
    full = COST(tiny.shape)
    for key, target in facts["targets"].items():
        model = load(tmp_path / "run" / key / "model")
        assert target["quality"]["loss"] > 0
        if key != "start":
            part = float(key.removeprefix("keep-"))
            assert COST(model.encoder.shape) <= part * full
            changed = {one[0] for one, size in sizes(model.encoder.shape).items() if size != sizes(tiny.shape).get(one)}
            assert changed <= set("hakvf" if name in ("all", "uniform", "albert-e") else name)
        if name == "albert-e":
            assert model.head.down.out_features == model.encoder.shape.embedding == 8
    assert facts["loss"]["recovery"] == "task"


def operations(shape, length):
    """Multiplications and additions a token of every matrix product, counted by hand: 2 for each pair."""
    total = 0
    for layer in shape.layers:
        projected = 2 * shape.hidden * layer.heads * (layer.key + layer.value)  # Q and K; V and P
        mixed = length * layer.heads * (layer.key + layer.value)  # scores and weighted values
        total += 2 * (projected + mixed + 2 * shape.hidden * layer.ffn)
    return total


@pytest.mark.parametrize("by", ["flops", "latency"])
def test_other_objectives(tiny, by, tmp_path):
    """FLOPs, and a latency whose table is there already: seconds that grow with attention and feed-forward layers."""
    clock = Latency("cpu", 512, 48, (0, 0, 0, 1e-6, 1e-6, 0, 0), (0, 0, 0, 1e-6), 0.0)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/latency.json").write_text(json.dumps(clock.to_json()))
    made = recipe("all", f"model={tiny.model}", f"data.train={tiny.text}", *SHORT, f"target.by={by}", "target.keep=0.5")
    facts = prune(made, tmp_path / "run", device="cpu", tell=lambda _: None)
    small = load(tmp_path / "run/keep-0.5/model").encoder.shape
    before, after = (clock(s) if by == "latency" else operations(s, 48) for s in (tiny.shape, small))
    assert 0.4 * before < after <= 0.5 * before
    assert facts["by"] == by
    assert facts["targets"]["keep-0.5"]["cost"] == pytest.approx(after / before)
    assert facts["loss"] == {"gates": "task", "recovery": "task"}

"""Layer weights in metrics.json: those of the saved heads, window by window and formula by formula."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from quoth.data import read
from quoth.heads import build_head
from quoth.heads.layer_weights import LayerWeights
from quoth.heads.step import Here
from quoth.model.loading import load
from quoth.train.recipe import make_recipe
from quoth.windows.questions import make_windows
from quoth.windows.tokenizer import Tokenizer
from train.heads_material import as_it_is
from train.material import make_model, table, train

HEADS = {
    "lp": "pool(learned) > linear",
    "two pools": "(pool(learned) + compress(8) > pool(learned) + pool(average)) > linear",
    "last 2": "last(2) > pool(learned) > compress(4) > skip > linear",
    "weighted": "attend(weighted)",
    "dot": "attend(dot)",
    "late dot": "last(2) > compress(8) > attend(dot)",
    "multiplicative": "attend(multiplicative)",
    "encoder block": "attend(encoder)",
    "none": "compress(8) > linear",
}
CLASSES = {
    "lp": {"kind": "chain", "line": "pool(learned) > linear", "labels": 2, "pooled": True},
    "dot": {"kind": "chain", "line": "attend(dot)", "labels": 2},
    "pooled dot": {"kind": "chain", "line": "last(2) > attend(dot)", "labels": 2, "pooled": True},
    "one layer": {"kind": "chain", "line": "layer(1) > pool(learned) > linear", "labels": 2, "pooled": True},
    "plain": {"kind": "class", "labels": 2},
}
SETTINGS = {"learning_rate": 3e-2, "batch_size": 6, "at": [0]}  # far from where the weights begin
LAYERS = 3


@pytest.fixture(scope="module")
def deep(lively, minilm, tmp_path_factory):
    """An encoder of three layers, so that some can be left out."""
    folder = tmp_path_factory.mktemp("deep") / "small"
    model = make_model(folder, minilm, initializer_range=0.3, num_hidden_layers=LAYERS)
    return SimpleNamespace(model=model, train=lively.train, dev=lively.dev, tokens=Tokenizer.load(minilm))


def windows_of(place):
    return make_windows(read(str(place.dev)).questions, place.tokens, max_length=64, step=24, max_query_length=24)


def softmax(rows):
    """Over the first axis, written out."""
    high = [max(column) for column in zip(*rows, strict=True)]
    powers = [[math.exp(value - top) for value, top in zip(row, high, strict=True)] for row in rows]
    sums = [sum(column) for column in zip(*powers, strict=True)]
    return [[value / total for value, total in zip(row, sums, strict=True)] for row in powers]


def by_hand(step, states):
    """The weights of the layers for one token, a list of queries for each layer. states: (L, f)."""
    kind = type(step).__name__
    if kind == "Weighted":
        weights = step.weight.view(len(step.query), -1)
        return [[float(weights[q, i] * step.scale[q]) for q in range(len(step.query))] for i in range(len(states))]
    if kind == "EncoderBlock":
        size = states.shape[1] // step.heads
        query, key = step.to_query(step.query), step.to_key(states)
        of_heads = [
            softmax([[float(q[part] @ k[part]) / math.sqrt(size) for q in query] for k in key])
            for part in (slice(size * n, size * (n + 1)) for n in range(step.heads))
        ]
        return np.mean(of_heads, 0).tolist()
    keys = [step.weight @ state for state in states] if kind == "Multiplicative" else states
    return softmax([[float(query @ key) for query in step.query] for key in keys])


@torch.no_grad()
def means_by_hand(folder, windows, first_only):
    """The mean weight of each layer over the tokens, (L, queries), and the layers, from a model folder."""
    model = load(folder)
    head, end = model.head, model.head.steps[-1]
    total, tokens = 0.0, 0
    for number in range(len(windows)):
        packed = windows.packed([number]).map(torch.from_numpy)
        states = list(model.encoder(packed, head.reads))
        if first_only:
            states = [state[:1] for state in states]
            if head.pooled:
                states.append(torch.tanh(model.pooler(states[-1])))
        x = torch.stack(states)
        for step in head.steps[:-1]:
            x = step(x, Here(x[-1], None))
        for token in range(x.shape[1]):
            total = total + np.array(by_hand(end, x[:, token]))
            tokens += 1
    return total / tokens


@pytest.fixture(scope="module")
def spans(deep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights") / "run"
    facts = train(make_recipe(as_it_is(deep, HEADS, **SETTINGS)), folder, device="cpu")
    return folder / "frozen/epoch-0", facts["frozen"]["0"]["heads"]


class TestSpans:
    def test_pools(self, spans):
        folder, heads = spans
        model = load(folder / "lp/model")
        assert heads["lp"]["layer_weights"] == {"pool": model.head.steps[0].weight.softmax(0).tolist()}
        assert len(heads["lp"]["layer_weights"]["pool"]) == LAYERS + 1
        assert max(heads["lp"]["layer_weights"]["pool"]) > 0.26  # it was trained
        both = load(folder / "two pools/model").head.steps[0].branches
        assert heads["two pools"]["layer_weights"] == {
            "pool": both[0][0].weight.softmax(0).tolist(),
            "pool-2": both[1][1].weight.softmax(0).tolist(),
        }
        found = heads["last 2"]["layer_weights"]["pool"]
        assert found == [0.0, 0.0, *load(folder / "last 2/model").head.steps[0].weight.softmax(0).tolist()]
        assert "layer_weights" not in heads["none"]

    @pytest.mark.parametrize("name", ["weighted", "dot", "late dot", "multiplicative", "encoder block"])
    def test_attention_is_the_mean_over_all_tokens(self, spans, deep, name):
        folder, heads = spans
        found = heads[name]["layer_weights"]
        assert json.loads((folder / name / "metrics.json").read_text())["layer_weights"] == found
        assert found.keys() == {"start", "end"}
        expected = means_by_hand(folder / name / "model", windows_of(deep), first_only=False)
        absent = LAYERS + 1 - len(expected)
        for query, values in enumerate(found.values()):
            assert values[:absent] == [0.0] * absent
            np.testing.assert_allclose(values[absent:], expected[:, query], atol=1e-6)
            assert len(set(values)) > 1
        if name not in ("weighted",):
            assert sum(found["start"]) == pytest.approx(1)
        assert found["start"] != found["end"]

    def test_the_verb_shows_them(self, spans, tmp_path, cli):
        folder, heads = spans
        names = ("lp", "dot")
        result = cli("analyse", *(folder / name for name in names), "--json", "--plots", tmp_path)
        assert result.returncode == 0, result.stderr
        runs = json.loads(result.stdout)["runs"]
        assert [run["layer_weights"] for run in runs] == [heads[name]["layer_weights"] for name in names]
        assert (tmp_path / "layer-weights.svg").exists()
        shown = cli("analyse", *(folder / name for name in names)).stdout
        assert f"{heads['dot']['layer_weights']['end'][2]:.4f}" in shown


class TestClasses:
    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, deep, tmp_path_factory):
        folder = tmp_path_factory.mktemp("classes") / "run"
        made = as_it_is(deep, CLASSES, **SETTINGS)
        made["data"]["task"], made["head"] = "answerable", CLASSES["plain"]
        facts = train(make_recipe(made), folder, device="cpu")
        return folder / "frozen/epoch-0", facts["frozen"]["0"]["heads"]

    def test_the_pooler_is_one_more(self, run):
        folder, heads = run
        shares = load(folder / "lp/model").head.steps[0].weight.softmax(0).tolist()
        assert heads["lp"]["layer_weights"] == {"pool": shares}
        assert len(shares) == LAYERS + 2
        shares = load(folder / "one layer/model").head.steps[0].weight.softmax(0).tolist()
        assert heads["one layer"]["layer_weights"] == {"pool": [0.0, shares[0], 0.0, 0.0, shares[1]]}
        assert "layer_weights" not in heads["plain"]

    @pytest.mark.parametrize("name", ["dot", "pooled dot"])
    def test_a_list_a_class(self, run, deep, name):
        folder, heads = run
        expected = means_by_hand(folder / name / "model", windows_of(deep), first_only=True)
        found = heads[name]["layer_weights"]
        assert found.keys() == {"class 0", "class 1"}
        absent = 2 if name == "pooled dot" else 1
        for query, values in enumerate(found.values()):
            assert len(values) == LAYERS + 1 + (name == "pooled dot")
            assert values[:absent] == [0.0] * absent
            np.testing.assert_allclose(values[absent:], expected[:, query], atol=1e-6)


class TestJoint:
    @pytest.mark.parametrize(
        "line", ["attend(dot)", "pool(learned) > linear", pytest.param("attend(weighted)", marks=pytest.mark.slow)]
    )
    def test_a_model_whose_own_head_is_a_chain(self, deep, tmp_path, line, cli):
        made = table(deep.model, deep.train, deep.dev, head=line, evaluation={"at": [0.5]})
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        found = facts["layer_weights"]
        if "pool" in line:
            assert found == {"pool": load(tmp_path / "run/model").head.steps[0].weight.softmax(0).tolist()}
        else:
            expected = means_by_hand(tmp_path / "run/model", windows_of(deep), first_only=False)
            for query, values in enumerate(found.values()):
                np.testing.assert_allclose(values, [0.0, *expected[:, query]], atol=1e-6)
        result = cli("analyse", tmp_path / "run", "--json")
        assert json.loads(result.stdout)["runs"][0]["layer_weights"] == found

    def test_and_as_the_encoders_own_beside_others(self, deep, tmp_path):
        made = table(deep.model, deep.train, deep.dev, head="attend(dot)")
        made["frozen"] = {"heads": {"span": {"kind": "span"}}, "batch_size": 6}
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        for name, values in facts["frozen"]["1"]["heads"]["encoder"]["layer_weights"].items():
            np.testing.assert_allclose(values, facts["layer_weights"][name], atol=1e-6)
        assert "layer_weights" not in facts["frozen"]["1"]["heads"]["span"]

    def test_a_plain_head_has_none(self, deep, tmp_path):
        facts = train(make_recipe(table(deep.model, deep.train, deep.dev)), tmp_path / "run", device="cpu")
        assert "layer_weights" not in facts


class TestWatching:
    def test_nothing_stays(self):
        """Hooks are gone after the block, and what was added up does not grow with the tokens."""
        head = build_head("attend(dot)", 8, 2)
        with LayerWeights({"it": head}, 2) as weights:
            for tokens in (3, 500):
                head(torch.randn(2, tokens, 8), None)
        before = weights.of("it")
        head(torch.randn(2, 4, 8), None)
        assert weights.of("it") == before
        (total, tokens) = weights._sums["it"]
        assert (total.shape, tokens) == ((2, 2), 503)

    def test_without_evaluation_pools_are_known(self, deep, tmp_path):
        made = as_it_is(deep, {name: HEADS[name] for name in ("lp", "dot")}, **SETTINGS)
        made["data"]["evaluate"] = ""
        heads = train(make_recipe(made), tmp_path / "run", device="cpu")["frozen"]["0"]["heads"]
        assert heads["lp"]["layer_weights"].keys() == {"pool"}
        assert "layer_weights" not in heads["dot"]

"""Linear heads on a packed batch through `Model`, against loops over unpacked windows; what `build_head` refuses."""

import math

import numpy as np
import pytest
import torch

from quoth import QuothError
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.encoder.style import Style
from quoth.heads import build_head
from quoth.heads.linear import ClassHead, SpanHead
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save
from tiny import batch, random_windows

LENGTHS = (1, 30, 2, 17, 3)
SHAPE = Shape.uniform(layers=2, hidden=24, heads=3, vocab=97)


def model_with(head, pooler=False):
    """A tiny model with every tensor random and wide, biases too."""
    model = Model(Encoder(SHAPE, Style(dropout=0.0, attention_dropout=0.0)), head, pooler=pooler).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            gain = "norm" in name and name.endswith("weight")
            value.normal_(1.0 if gain else 0.0, 0.3, generator=generator)
    return model


def states_alone(model):
    """The last layer's states of each window encoded alone, (n, h) in float64."""
    ids, types = random_windows(LENGTHS)
    return [model.encoder(batch([i], [t]))[0].double().numpy() for i, t in zip(ids, types)]


def logits(model):
    return model(batch(*random_windows(LENGTHS)))


def dense(weights, name, x):
    """W·x + b, one output at a time."""
    rows = zip(weights[f"{name}.weight"], weights[f"{name}.bias"])
    return np.array([sum(float(w) * float(v) for w, v in zip(row, x)) + float(bias) for row, bias in rows])


ACTIVATIONS = {
    "tanh": math.tanh,
    "relu": lambda v: max(v, 0.0),
    "gelu": lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))),
}


@torch.no_grad()
def test_span_head_equals_a_loop():
    model = model_with(SpanHead(24))
    start, end = logits(model)
    expected = [dense(model.state_dict(), "head.linear", token) for window in states_alone(model) for token in window]
    assert start.shape == end.shape == (sum(LENGTHS),)
    assert np.abs(torch.stack([start, end], 1).numpy() - np.array(expected)).max() < 1e-4
    assert sum(value.numel() for value in model.head.parameters()) == 2 * (24 + 1)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@torch.no_grad()
def test_class_head_with_its_own_dense_equals_a_loop(activation):
    model = model_with(ClassHead(24, 5, activation))
    weights = model.state_dict()
    expected = []
    for window in states_alone(model):
        inner = [ACTIVATIONS[activation](value) for value in dense(weights, "head.dense", window[0])]
        expected.append(dense(weights, "head.linear", inner))
    found = logits(model)
    assert found.shape == (len(LENGTHS), 5)
    assert np.abs(found.numpy() - np.array(expected)).max() < 1e-4


@torch.no_grad()
def test_class_head_through_the_pooler_equals_a_loop():
    model = model_with(ClassHead(24, 3, pooled=True), pooler=True)
    weights = model.state_dict()
    expected = []
    for window in states_alone(model):
        inner = [math.tanh(value) for value in dense(weights, "pooler", window[0])]
        expected.append(dense(weights, "head.linear", inner))
    assert np.abs(logits(model).numpy() - np.array(expected)).max() < 1e-4


@pytest.mark.parametrize("pooler", [False, True])
@torch.no_grad()
def test_class_head_on_the_bare_state_equals_a_loop(pooler):
    """A pooler that the head does not ask for is not used."""
    model = model_with(ClassHead(24, 2), pooler=pooler)
    expected = [dense(model.state_dict(), "head.linear", window[0]) for window in states_alone(model)]
    assert np.abs(logits(model).numpy() - np.array(expected)).max() < 1e-4


@pytest.mark.parametrize(
    ("table", "pooler"),
    [
        ({"kind": "span"}, False),
        ({"kind": "class", "labels": 2, "activation": None, "pooled": False}, False),
        ({"kind": "class", "labels": 5, "activation": "gelu", "pooled": False}, False),
        ({"kind": "class", "labels": 3, "activation": None, "pooled": True}, True),
    ],
)
@torch.no_grad()
def test_a_table_makes_the_head_and_comes_back(table, pooler, tmp_path):
    head = build_head(table, 24, 2)
    assert head.to_json() == table
    model = model_with(head, pooler)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.head.to_json() == table
    found, expected = logits(loaded), logits(model)
    assert all(torch.equal(a, b) for a, b in zip(found, expected))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "crf"}, "kind 'crf' is unknown; one of .*span, class, .* is wanted"),
        ({}, "kind None is unknown; one of .*span, class, .* is wanted"),
        ({"kind": "span", "size": 3}, "head: span has no settings; leave out size"),
        ({"kind": "class"}, "head: class: labels is missing"),
        ({"kind": "class", "labels": 2, "lables": 3}, "head: class: unknown key lables; did you mean labels"),
        ({"kind": "span", "hidden": 3}, "head: span has no settings; leave out hidden"),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(table, message):
    with pytest.raises(QuothError, match=message) as error:
        build_head(table, 24, 2)
    assert "\n" not in str(error.value)

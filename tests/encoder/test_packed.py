"""A packed batch: windows do not see each other, and any shape computes what a plain loop computes."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from quoth import QuothError
from quoth.encoder.attention import SLACK, buckets_by_length
from quoth.encoder.encoder import Encoder
from quoth.encoder.relative import buckets_of_distances
from quoth.encoder.shape import LayerShape, Shape
from quoth.encoder.style import Style
from quoth.model.loading import load
from tiny import batch, hugging_face, random_windows, split

IRREGULAR = Shape(
    97,
    512,
    2,
    10,
    21,
    (LayerShape(3, 5, 9, 17), LayerShape(1, 8, 2, 33), LayerShape(4, 3, 3, 1), LayerShape(2, 16, 7, 8)),
)
TIED = Shape(97, 512, 2, 10, 24, (LayerShape(3, 8, 8, 30),) * 4, tied=True)
PLAIN = Shape.uniform(layers=3, hidden=24, heads=3, vocab=97)
SHARED = replace(PLAIN, relative_buckets=32)
APART = replace(IRREGULAR, relative_buckets=12, relative_per_layer=True)
SHAPES = pytest.mark.parametrize(
    "shape", [PLAIN, TIED, IRREGULAR, SHARED, APART], ids=["plain", "tied", "irregular", "shared biases", "own biases"]
)


def wide(shape, style=None, seed=0):
    """An encoder with every tensor random and wide."""
    encoder = Encoder(shape, style).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in encoder.named_parameters():
            gain = "norm" in name and name.endswith("weight")
            value.normal_(1.0 if gain else 0.0, 0.3, generator=generator)
    return encoder


def relative_buckets(length, buckets):
    """Of every query and key, by transformers: (length, length)."""
    steps = torch.arange(length)
    return MPNetEncoder.relative_position_bucket(steps[None, :] - steps[:, None], buckets).numpy()


def loop(encoder, ids, types):
    """One window by the formulas, token by token and head by head, in float64: the states of all layers."""
    weights = {name: value.detach().double().numpy() for name, value in encoder.named_parameters()}
    shape, style = encoder.shape, encoder.style

    def norm(x, name):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + style.eps) * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def gelu(x):
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))

    positions = np.arange(len(ids)) + style.first_position
    x = weights["embeddings.words.weight"][ids] + weights["embeddings.positions.weight"][positions]
    x = norm(x + weights["embeddings.types.weight"][types], "embeddings.norm")
    if shape.projection:
        x = linear(x, "embeddings.projection")
    states = [x]
    for number, layer in enumerate(shape.layers):
        at = f"layers.{0 if shape.tied else number}"
        q, k, v = (linear(x, f"{at}.attention.{name}") for name in ("query", "key", "value"))
        mixed = np.zeros((len(ids), layer.heads * layer.value))
        for head in range(layer.heads):
            keys = slice(head * layer.key, (head + 1) * layer.key)
            values = slice(head * layer.value, (head + 1) * layer.value)
            scores = q[:, keys] @ k[:, keys].T / math.sqrt(layer.key)
            if shape.relative_buckets:
                own = weights[f"{at}.attention.relative.weight" if shape.relative_per_layer else "relative.weight"]
                scores = scores + own[relative_buckets(len(ids), shape.relative_buckets), head]
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            mixed[:, values] = shares / shares.sum(-1, keepdims=True) @ v[:, values]
        x = norm(x + linear(mixed, f"{at}.attention.output"), f"{at}.attention_norm")
        x = norm(x + linear(gelu(linear(x, f"{at}.up")), f"{at}.down"), f"{at}.ffn_norm")
        states.append(x)
    return states


@SHAPES
def test_any_shape_equals_a_loop(shape):
    encoder = wide(shape)
    lengths = (1, 60, 7, 58, 3)
    ids, types = random_windows(lengths)
    layers = range(len(shape.layers) + 1)
    with torch.no_grad():
        states = encoder(batch(ids, types), layers)
    for window in range(len(lengths)):
        for found, expected in zip(states, loop(encoder, ids[window], types[window])):
            assert np.abs(split(found, lengths)[window].numpy() - expected).max() < 1e-4


@SHAPES
def test_a_window_does_not_depend_on_its_neighbours(shape):
    encoder = wide(shape)
    lengths = (40, 512, 1, 39, 300, 38)
    layers = range(len(shape.layers) + 1)
    ids, types = random_windows(lengths)
    others, other_types = random_windows(lengths, seed=1)
    with torch.no_grad():
        states = encoder(batch(ids, types), layers)
        for window in range(len(lengths)):
            replaced = [*others[:window], ids[window], *others[window + 1 :]]
            kinds = [*other_types[:window], types[window], *other_types[window + 1 :]]
            beside = encoder(batch(replaced, kinds), layers)
            alone = encoder(batch([ids[window]], [types[window]]), layers)
            for with_these, with_those, single in zip(states, beside, alone):
                mine = split(with_these, lengths)[window]
                assert torch.equal(mine, split(with_those, lengths)[window])
                assert (mine - single).abs().max() < 1e-5


def test_alone_and_packed_agree_on_real_weights(minilm):
    encoder = load(minilm).encoder
    lengths = (12, 181, 170, 64)
    ids, types = random_windows(lengths, vocab=30522)
    with torch.no_grad():
        packed = split(encoder(batch(ids, types))[0], lengths)
        for window, state in enumerate(packed):
            assert (state - encoder(batch(ids[window : window + 1], types[window : window + 1]))[0]).abs().max() < 1e-5


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
def test_order_of_windows_does_not_matter(lengths, seed):
    encoder = wide(IRREGULAR)
    ids, types = random_windows(lengths, seed=seed)
    order = np.random.default_rng(seed).permutation(len(lengths))
    with torch.no_grad():
        states = split(encoder(batch(ids, types))[0], lengths)
        shuffled = encoder(batch([ids[i] for i in order], [types[i] for i in order]))[0]
    for place, state in zip(order, split(shuffled, [lengths[i] for i in order])):
        assert (state - states[place]).abs().max() < 1e-5


@given(st.lists(st.integers(1, 600), min_size=1, max_size=60))
def test_buckets_hold_every_window_once_within_the_slack(lengths):
    groups = buckets_by_length(lengths)
    assert sorted(w for group in groups for w in group) == list(range(len(lengths)))
    for group in groups:
        sizes = [lengths[w] for w in group]
        assert min(sizes) >= (1 - SLACK) * max(sizes)
        assert sizes[0] == max(sizes)


@pytest.mark.parametrize("buckets", [4, 8, 12, 32, 64, 256])
def test_buckets_of_distances_are_those_of_transformers(buckets):
    expected = MPNetEncoder.relative_position_bucket(torch.arange(-599, 600), buckets)
    assert buckets_of_distances(600, buckets).tolist() == expected.tolist()


def test_layers_are_returned_as_asked():
    encoder = wide(PLAIN)
    ids, types = random_windows((5, 9))
    packed = batch(ids, types)
    with torch.no_grad():
        every = encoder(packed, range(4))
        some = encoder(packed, (-1, 0, 2, -2))
    for found, expected in zip(some, (every[3], every[0], every[2], every[2])):
        assert torch.equal(found, expected)
    with pytest.raises(QuothError, match="layer 4 does not exist"):
        encoder(packed, (4,))


def test_layers_above_the_highest_asked_for_are_not_computed():
    encoder = wide(PLAIN)
    with torch.no_grad():
        encoder.layers[2].up.weight.fill_(float("nan"))
        ids, types = random_windows((5, 9))
        assert torch.isfinite(encoder(batch(ids, types), (0, 2))[1]).all()


class TestTraining:
    @SHAPES
    def test_checkpointing_changes_nothing(self, shape):
        ids, types = random_windows((30, 9, 31))
        gradients = []
        for checkpointing in (False, True):
            encoder = wide(shape, Style(dropout=0.3, attention_dropout=0.2)).train()
            encoder.checkpointing = checkpointing
            torch.manual_seed(7)
            encoder(batch(ids, types))[0].square().sum().backward()
            gradients.append([value.grad for value in encoder.parameters()])
        for plain, again in zip(*gradients):
            assert torch.equal(plain, again)

    def test_autocast_gives_states_of_its_type(self):
        encoder = wide(IRREGULAR)
        ids, types = random_windows((30, 9, 31))
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            states = encoder(batch(ids, types), (0, -1))
        assert all(state.dtype == torch.bfloat16 for state in states)
        with torch.no_grad():
            exact = encoder(batch(ids, types))[0]
        assert (states[1].float() - exact).norm() / exact.norm() < 0.05

    @pytest.mark.slow
    def test_compiled_equals_eager(self):
        encoder = wide(IRREGULAR)
        with torch.no_grad():
            expected = []
            batches = [batch(*random_windows(lengths, seed=i)) for i, lengths in enumerate(((30, 9), (5, 41, 44)))]
            expected = [encoder(packed)[0] for packed in batches]
            compiled = torch.compile(encoder, backend="aot_eager")
            for packed, state in zip(batches, expected):
                assert (compiled(packed)[0] - state).abs().max() < 1e-5

    def test_dropout_only_while_training(self):
        encoder = wide(PLAIN)
        packed = batch(*random_windows((30, 9)))
        assert torch.equal(encoder(packed)[0], encoder(packed)[0])
        encoder.train()
        torch.manual_seed(0)
        first = encoder(packed)[0]
        assert not torch.equal(first, encoder(packed)[0])
        torch.manual_seed(0)
        assert torch.equal(first, encoder(packed)[0])


class TestBadInput:
    def test_window_longer_than_the_position_table(self):
        ids, types = random_windows((4, 513))
        with pytest.raises(QuothError, match=r"window 1 has 513 tokens.* ends at 512"):
            wide(PLAIN)(batch(ids, types))

    def test_first_position_counts(self, tmp_path):
        hugging_face("roberta").save_pretrained(tmp_path)
        ids, types = random_windows((513,), types=1)
        with pytest.raises(QuothError, match="ends at 512"):
            load(tmp_path).encoder(batch(ids, types))

    @pytest.mark.parametrize("wrong", [97, -1, 10**6])
    def test_id_outside_the_vocabulary(self, wrong):
        ids, types = random_windows((4, 9))
        ids[1][3] = wrong
        with pytest.raises(QuothError, match=f"token id {wrong} is outside the vocabulary, which has 97"):
            wide(PLAIN)(batch(ids, types))

    def test_type_outside_the_table(self):
        ids, types = random_windows((4, 9))
        types[0][0] = 2
        with pytest.raises(QuothError, match="token type 2 is outside the type table"):
            wide(PLAIN)(batch(ids, types))

    def test_no_windows_and_an_empty_window(self):
        with pytest.raises(QuothError, match="no windows"):
            wide(PLAIN)(batch([], []))
        with pytest.raises(QuothError, match="window 1 is empty"):
            wide(PLAIN)(batch([[3], [], [4]], [[0], [], [0]]))

    def test_unknown_activation(self):
        with pytest.raises(QuothError, match="'swish' is not supported; known: gelu"):
            Encoder(PLAIN, Style(activation="swish"))

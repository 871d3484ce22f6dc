"""Chains on packed batches against loops over unpacked windows and tokens, float64: logits and all gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heads.loops import window_logits
from quoth.heads import build_head
from quoth.windows.packed import pack

HIDDEN, LAYERS = 11, 3
LINES = [
    "linear",
    "layer(1) > linear",
    "last(2) > linear",
    "layers(all) > linear",
    "pool(learned) > linear",
    "pool(average) > linear",
    "last(2) > pool(learned) > skip > linear",
    "compress(5) > linear",
    "compress(8) > skip > linear",
    "compress(5, each) > linear",
    "compress(5, each) > skip > linear",
    "pool(learned) > compress(5) > skip > linear",
    "pool(average) > compress(5) > skip > linear",
    "compress(5) > pool(learned) > linear",
    "compress(5, each) > pool(average) > compress(3) > linear",
    "layer(0) > compress(4) > skip > linear",
    "(compress(5) + pool(learned) > compress(3)) > linear",
    "(compress(5) + pool(learned) > (compress(3) + skip)) > skip > linear",
    "cnn(1xN) > linear",
    "pool(learned) > cnn(1xN) > linear",
    "pool(average) > cnn(1xN, dropout=0) > skip > linear",
    "cnn(1xN, dilation=3) > linear",
    "pool(learned) > compress(70) > cnn(1xN, dilation=2) > linear",
    "cnn(NxN) > linear",
    "pool(learned) > compress(33) > cnn(NxN) > skip > linear",
    "attend(weighted)",
    "attend(dot)",
    "attend(multiplicative)",
    "attend(encoder)",
    "layers(all) > attend(dot)",
    "last(2) > compress(6) > attend(multiplicative)",
]
DEEP = ["pool(learned) > inception > linear", "xception > linear", "xception(short) > skip > linear"]


def shaken(head, seed=0):
    """The head with every tensor random and wide, biases too; filters as drawn, lest a deep network die."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in head.named_parameters():
            if value.ndim < 4:
                around = 1.0 if "norm.weight" in name or "scale" in name else 0.0
                value.copy_(around + 0.3 * torch.randn(value.shape, generator=generator))
    return head


def made(line, labels=None, pooled=False, hidden=HIDDEN, layers=LAYERS):
    classes = {} if labels is None else {"labels": labels, "pooled": pooled}
    torch.manual_seed(1)
    return shaken(build_head({"kind": "chain", "line": line, **classes}, hidden, layers)).double().eval()


def random_states(count, tokens, hidden=HIDDEN, seed=1):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(count, tokens, hidden, dtype=torch.float64, generator=generator)
    return [state.requires_grad_() for state in states]


def packed_of(lengths):
    return pack([[0] * n for n in lengths]).map(torch.from_numpy)


def assert_same(head, states, found, expected):
    weight = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    over = [*states, *head.parameters()]
    results = [
        torch.autograd.grad((logits * weight).sum(), over, materialize_grads=True) for logits in (found, expected)
    ]
    for a, b in zip([found, *results[0]], [expected, *results[1]]):
        assert a.shape == b.shape
        assert (a - b).abs().max() < 1e-9 * max(1.0, float(b.detach().abs().max()))


def check_spans(head, lengths, seed=1):
    states = random_states(len(head.reads), sum(lengths), seed=seed)
    start, end = head(states, packed_of(lengths))
    assert start.shape == end.shape == (sum(lengths),)
    windows = zip(*(state.split(lengths) for state in states))
    expected = torch.cat([window_logits(head, window) for window in windows])
    assert_same(head, states, torch.stack([start, end], 1), expected)


def check_classes(head, count=3):
    states = random_states(len(head.reads) + head.pooled, count)
    found = head(states)
    expected = torch.cat([window_logits(head, [s[i : i + 1] for s in states]) for i in range(count)])
    assert_same(head, states, found, expected)


@pytest.mark.parametrize("line", LINES)
def test_spans(line):
    check_spans(made(line), (1, 2, 6 if "NxN" in line else 30, 3))


@pytest.mark.parametrize("line", DEEP)
def test_spans_of_deep_networks(line):
    check_spans(made(line), (1, 3, 2))


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("line", LINES)
def test_classes(line, pooled):
    check_classes(made(line, 3, pooled))


@pytest.mark.parametrize("line", [DEEP[0], "xception(full) > linear"])
def test_classes_of_deep_networks(line):
    check_classes(made(line, 2, pooled=True), 2)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sampled_from(LINES), st.integers(0, 99))
def test_any_lengths(lengths, line, seed):
    check_spans(made(line), lengths, seed)


@pytest.mark.parametrize("line", ["pool(learned) > linear", "compress(5) > skip > linear", "attend(encoder)"])
def test_states_in_one_tensor_are_as_good_as_a_list(line):
    head = made(line)
    states = random_states(len(head.reads), 6)
    for found, expected in zip(head(torch.stack(states), packed_of((4, 2))), head(states, packed_of((4, 2)))):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)  # memory may lie otherwise


@pytest.mark.parametrize("how", ["weighted", "dot", "multiplicative", "encoder"])
def test_weights_of_layers_are_those_that_mix(how):
    """For analysis: (L, T or 1, outputs); those of a softmax sum to 1, and one layer far above the rest takes all."""
    head = made(f"attend({how})")
    end = head.steps[-1]
    weights = end.weights(torch.stack(random_states(LAYERS, 4)))
    assert weights.shape == (LAYERS, 1 if how == "weighted" else 4, 2)
    if how != "weighted":
        assert (weights.sum(0) - 1).abs().max() < 1e-12
    if how == "dot":
        states = torch.zeros(LAYERS, 4, HIDDEN, dtype=torch.float64)
        states[1] = 1e3 * end.query[0]
        assert (end.weights(states)[1, :, 0] > 0.999).all()
    if how == "weighted":
        assert torch.equal(weights[:, 0, 1], end.scale[1] * end.weight[LAYERS:])

"""What heads compute of the same states together, in float64, against each head alone by torch's autograd."""

import copy

import numpy as np
import pytest
import torch

from quoth.heads import build_head
from quoth.heads.convolution import FIRST, wide_patches, wide_weight
from quoth.heads.shared import Together
from quoth.heads.step import stack
from quoth.windows.packed import pack

LAYERS, HIDDEN, LENGTHS = 3, 64, (5, 1, 9)
LINES = [
    "pool(learned) > linear",
    "pool(average) > linear",
    "last(2) > pool(learned) > skip > linear",
    "compress(13) > linear",
    "compress(16, each) > skip > linear",
    "last(3) > compress(5, each) > linear",
    "pool(learned) > compress(21) > linear",
    "(compress(7) + pool(learned) > compress(9) + compress(3, each)) > linear",
    "compress(20) > pool(learned) > linear",
    "cnn(1xN, dropout=0) > linear",
    "cnn(1xN, dilation=2, dropout=0) > linear",
    "cnn(1xN, dilation=3, dropout=0) > linear",
    "last(2) > cnn(1xN, dropout=0) > linear",
    "pool(average) > cnn(1xN, dropout=0) > linear",
    "attend(weighted)",
    "attend(dot)",
    "attend(multiplicative)",
    "attend(encoder)",
    "linear",
    "layer(1) > linear",
]


def packed():
    rng = np.random.default_rng(0)
    batch = pack([rng.integers(5, 90, n) for n in LENGTHS], [np.zeros(n, int) for n in LENGTHS])
    return batch.map(lambda array: torch.from_numpy(np.ascontiguousarray(array)))


def material(lines):
    torch.manual_seed(0)
    heads = [build_head(line, HIDDEN, LAYERS).double() for line in lines]
    for head in heads:
        for value in head.parameters():
            torch.nn.init.normal_(value, std=0.3)
    states = stack([torch.randn(sum(LENGTHS), HIDDEN, dtype=torch.double) for _ in range(LAYERS + 1)])
    places = [slice(head.reads[0], head.reads[-1] + 1) for head in heads]
    return heads, places, states


def train(heads, places, states, together):
    """The logits of each head and the gradients of its parameters: those of a fixed sum of its logits."""
    found = []
    for number, (head, place) in enumerate(zip(heads, places)):
        logits = torch.stack(head(states[place], packed(), *([together.given] if together else [])))
        weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(number), dtype=torch.double)
        (logits * weights).sum().backward()
        found.append([logits.detach()])
    if together:
        together.backward()
    return [[*logits, *(value.grad for value in head.parameters())] for logits, head in zip(found, heads)]


@pytest.mark.parametrize("lines", [LINES, LINES[::-1], *([line] for line in LINES)], ids=str)
def test_together_against_alone(lines):
    heads, places, states = material(lines)
    alone, before = copy.deepcopy(heads), states.clone()
    expected = train(alone, places, states, None)
    found = train(heads, places, states, Together(heads, places, states))
    for line, mine, truth in zip(lines, found, expected):
        for value, true in zip(mine, truth, strict=True):
            torch.testing.assert_close(value, true, rtol=1e-9, atol=1e-11, msg=line)
    assert torch.equal(states, before)


def test_who_asks():
    """Steps that read several layers are given what they ask for; a filter with an odd dilation is not."""
    heads, places, states = material(LINES)
    given = Together(heads, places, states).given
    asked = {line for line, head in zip(LINES, heads) if any(step in given for step in head.modules())}
    assert set(LINES) - asked == {"linear", "layer(1) > linear", "cnn(1xN, dilation=3, dropout=0) > linear"}
    assert sum(step in given for step in heads[7].modules()) == 3  # each branch


@pytest.mark.parametrize(
    ("numbers", "given"),
    [(959, []), (960, [0]), (2 * 960, [0, 1]), (5 * 960, [0, 1, 2]), (5 * 960 + 6720, [0, 1, 2, 3])],
)
def test_a_limit(numbers, given):
    """The small parts first, in bytes; heads that are given nothing read the states themselves.

    Of 15 tokens: 64 features of a pool; 16 products of each of 4 layers; 48 of them; a copy of 4 layers and 48
    products for each 16 features.
    """
    lines = ["pool(learned) > linear", "compress(13) > linear", "compress(40) > linear", "cnn(1xN, dropout=0) > linear"]
    heads, places, states = material(lines)
    expected = train(copy.deepcopy(heads), places, states, None)
    together = Together(heads, places, states, limit=8 * numbers)
    assert [number for number, head in enumerate(heads) if head.steps[0] in together.given] == given
    for mine, truth in zip(train(heads, places, states, together), expected):
        for value, true in zip(mine, truth, strict=True):
            torch.testing.assert_close(value, true, rtol=1e-9, atol=1e-11)


def test_states_with_holes_are_left_to_the_head():
    heads, _, states = material(["pool(learned) > linear"])
    assert Together(heads, [[0, 2]], states).given == {}


@pytest.mark.parametrize(("dilation", "times"), [(1, 1), (1, 4), (2, 2), (2, 4), (4, 4)])
def test_wide_filters_see_what_narrow_ones_see(dilation, times):
    """Against a loop over places: place a·d + i begins at feature a·16·d + i and takes every d-th from there."""
    torch.manual_seed(0)
    x = torch.randn(3, 2, 128, dtype=torch.double)  # (T, L, f)
    weight = torch.randn(5, 2 * FIRST, dtype=torch.double)
    found = (wide_patches(x, times * FIRST) @ wide_weight(weight, dilation, times).T).reshape(3, -1, 5)
    for place in range(128 // FIRST):
        outer, inner = divmod(place, dilation)
        seen = x[:, :, outer * FIRST * dilation + inner :: dilation][:, :, :FIRST]
        torch.testing.assert_close(found[:, place], seen.flatten(1) @ weight.T)

"""Batches: every window once, under the budget, even, and the same wherever they are asked for."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.errors import QuothError
from quoth.windows.batches import Batches, by_length

lengths_and_budget = st.lists(st.integers(1, 50), max_size=80).flatmap(
    lambda lengths: st.tuples(st.just(lengths), st.integers(max(lengths, default=1), 400))
)


@given(given=lengths_and_budget, seed=st.integers(0, 2**40), epoch=st.integers(0, 5))
@settings(max_examples=200, deadline=None)
def test_training_batches(given, seed, epoch):
    lengths, budget = np.array(given[0], int), given[1]
    batches = Batches(lengths, budget, seed)
    found = [batches.batch(epoch, index) for index in range(batches.count())]
    assert sorted(window for batch in found for window in batch.tolist()) == list(range(len(lengths)))
    tokens = [int(lengths[batch].sum()) for batch in found]
    sizes = [len(batch) for batch in found]
    assert max(tokens, default=0) <= budget
    if found:
        assert max(tokens) - min(tokens) <= lengths.max()  # the last batch too
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1
    # No more batches than are needed if one window's space is left in each.
    if budget > lengths.max(initial=0):
        assert batches.count() <= np.ceil(lengths.sum() / (budget - lengths.max(initial=0)))


@given(given=lengths_and_budget, seed=st.integers(0, 9), data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_batch_is_a_function_of_its_place(given, seed, data):
    """Asked in any order, by a fresh object or an old one: the same batch. So resuming is exact."""
    lengths, budget = given
    old = Batches(lengths, budget, seed)
    places = [(epoch, index) for epoch in range(3) for index in range(old.count())]
    in_order = {place: old.batch(*place).tolist() for place in places}
    for place in data.draw(st.permutations(places)):
        assert old.batch(*place).tolist() == in_order[place]
    if places:
        place = data.draw(st.sampled_from(places))
        assert Batches(lengths, budget, seed).batch(*place).tolist() == in_order[place]


LENGTHS = [(i * 37) % 23 + 1 for i in range(40)]


def test_the_same_in_another_process():
    code = (
        "from quoth.windows import Batches\n"
        "b = Batches([(i * 37) % 23 + 1 for i in range(40)], 100, 7)\n"
        "print([b.batch(3, i).tolist() for i in range(b.count())])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    batches = Batches(LENGTHS, 100, 7)
    assert done.stdout.strip() == str([batches.batch(3, i).tolist() for i in range(batches.count())])


def test_the_same_as_ever():
    """The figures of the day this was written: a change here breaks the resuming of everybody's runs."""
    batches = Batches(LENGTHS, 100, 7)
    assert batches.count() == 6
    assert batches.batch(0, 0).tolist() == [18, 26, 6, 22, 30, 33, 0]
    assert batches.batch(5, 2).tolist() == [18, 34, 37, 27, 12, 10, 5]


def test_epochs_and_seeds_differ():
    lengths = np.random.default_rng(0).integers(20, 384, 500)
    a, b = Batches(lengths, 4096, 1), Batches(lengths, 4096, 2)
    assert a.batch(0, 0).tolist() != a.batch(1, 0).tolist()
    assert a.batch(0, 0).tolist() != b.batch(0, 0).tolist()
    # Companions change too, even where every length is unique and so the sorted order is fixed.
    unique = Batches(np.arange(1, 201), 1000, 0)
    mates = [{frozenset(unique.batch(epoch, i).tolist()) for i in range(unique.count())} for epoch in range(2)]
    assert not mates[0] & mates[1]


def test_every_window_meets_every_batch():
    """A window's batch is uniform over the epoch: chi-square over many epochs, far from suspicion."""
    lengths = np.arange(1, 31)
    batches = Batches(lengths, 150, 0)
    count = batches.count()
    where = np.zeros((len(lengths), count))
    epochs = 600
    for epoch in range(epochs):
        for index in range(count):
            where[batches.batch(epoch, index), index] += 1
    expected = epochs / count
    chi = ((where - expected) ** 2 / expected).sum(axis=1)
    assert chi.mean() == pytest.approx(count - 1, rel=0.35)


def test_cost_is_even_at_the_size_of_squad():
    """130,000 windows of SQuAD-like lengths: the spread of tokens, of windows and of squared lengths."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.gamma(6, 30, 130_000).astype(int) + 30, 384)
    batches = Batches(lengths, 12_288, 0)
    found = [batches.batch(0, index) for index in range(batches.count())]
    tokens = np.array([lengths[batch].sum() for batch in found])
    squares = np.array([(lengths[batch] ** 2).sum() for batch in found])
    assert tokens.max() - tokens.min() < 200
    assert tokens.mean() > 0.97 * 12_288
    assert squares.max() / squares.min() < 1.05


@given(given=lengths_and_budget)
@settings(max_examples=200, deadline=None)
def test_batches_for_inference(given):
    lengths, budget = np.array(given[0], int), given[1]
    found = by_length(lengths, budget)
    assert sorted(window for batch in found for window in batch.tolist()) == list(range(len(lengths)))
    assert all(len(batch) * lengths[batch].max() <= budget for batch in found)
    assert (np.diff([lengths[window] for batch in found for window in batch]) <= 0).all()
    # Greedy: the next window would not have fitted.
    for batch in found[:-1]:
        assert (len(batch) + 1) * lengths[batch].max() > budget


@pytest.mark.parametrize("make", [lambda n, b: Batches(n, b, 0), by_length])
def test_bad_lengths(make):
    with pytest.raises(QuothError, match="window 1 has 11 tokens, more than the budget of 10"):
        make([3, 11, 4], 10)
    with pytest.raises(QuothError, match="window 2 has no tokens"):
        make([3, 4, 0], 10)


def test_bad_places():
    batches = Batches([3, 4, 5], 5, 0)
    for epoch, index, says in ((0, 3, "batch 3 is not"), (0, -1, "batch -1 is not"), (-1, 0, "epoch is -1")):
        with pytest.raises(QuothError, match=says):
            batches.batch(epoch, index)
    with pytest.raises(QuothError, match="seed is -1"):
        Batches([1], 1, -1)
    assert Batches([], 10, 0).count() == 0
    assert by_length([], 10) == []

"""Latency as a cost: fitted to a table, never falling when a size grows."""

import itertools
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from quoth.encoder.shape import LayerShape, Shape
from quoth.errors import QuothError
from quoth.prune.allocate import allocate
from quoth.prune.cost import betas
from quoth.prune.dimensions import sizes, with_sizes
from quoth.prune.gates import Gates
from quoth.prune.latency import Latency, _fit, _grid, measure_latency

SHAPE = Shape(23, 64, 2, 32, 32, (LayerShape(2, 16, 16, 64), LayerShape(2, 8, 24, 48)))


@pytest.fixture(scope="module")
def latency():
    return measure_latency(SHAPE, "cpu", length=16)


def test_what_was_measured(latency):
    assert (latency.device, latency.tokens, latency.length) == ("cpu", 128, 16)
    kinds = [kind for kind, _, _ in latency.table]
    assert (kinds.count("attention"), kinds.count("ffn")) == (len(_grid((32, 2, 16, 24))), len(_grid((32, 64))))
    assert all(seconds > 0 for _, _, seconds in latency.table)
    assert latency(SHAPE) > 0
    assert latency.error < 1


def test_it_never_falls(latency):
    for name, size in sizes(SHAPE).items():
        costs = [latency(with_sizes(SHAPE, {name: n})) for n in range(1, size + 1)]
        assert costs == sorted(costs)


def test_it_can_be_kept(latency):
    assert Latency.from_json(json.loads(json.dumps(latency.to_json()))) == latency


def test_elements_can_be_chosen_by_it():
    """With coefficients given: 1 ms a unit of h·a·k and so on."""
    made = Latency("cpu", 1, 1, (0, 0, 0, 1e-3, 1e-3, 0, 0), (0, 0, 0, 1e-3), 0.0)
    assert made(SHAPE) == pytest.approx(1e-3 * (32 * 2 * 32 + 32 * 64 + 32 * 2 * 32 + 32 * 48))
    assert betas(made, SHAPE)["a0"] == pytest.approx(1)
    keep = allocate(Gates(SHAPE).scores(), SHAPE, made, 0.5 * made(SHAPE))
    left = with_sizes(SHAPE, {name: int(mask.sum()) for name, mask in keep.items()})
    assert made(left) <= 0.5 * made(SHAPE)


@given(st.integers(0, 100))
def test_the_fit_is_that_of_non_negative_least_squares(seed):
    rng = np.random.default_rng(seed)
    terms, seconds = rng.uniform(0.1, 1, (9, 4)), rng.uniform(0.5, 1, 9)
    found, errors = _fit(terms.tolist(), seconds.tolist())
    wanted, _ = nnls(terms / seconds[:, None], np.ones(9))
    assert np.allclose(found, wanted, atol=1e-6)
    assert np.allclose(errors, np.abs(terms @ wanted / seconds - 1), atol=1e-6)


def test_the_grid_reduces_each_size_alone_and_all_together():
    grid = _grid((8, 4))
    assert {(8, 4), (4, 4), (8, 2), (4, 2), (2, 1)} <= set(grid)
    assert all(h == 8 or f == 4 or h * 4 == f * 8 for h, f in grid)
    assert len(grid) == len(set(itertools.chain(grid)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_not_there():
    with pytest.raises(QuothError, match="latency cannot be measured: device 'cuda'"):
        measure_latency(SHAPE, "cuda")

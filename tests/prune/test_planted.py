"""The planted network is what it says: its useless elements do nothing, others do, and magnitude does not tell."""

import pytest
import torch

from prune.planted import plant
from prune.shapes import make_batch, outputs
from quoth.prune import cut
from quoth.prune.dimensions import axes, sizes

SEEDS = (0, 1, 2)
KINDS = "hakvf"


@pytest.fixture(params=SEEDS)
def planted(request):
    return plant(request.param)


def moved(model, keep, packed):
    """How far logits and kept states move when the rest is cut."""
    return (outputs(cut(model, keep), packed) - outputs(model, packed, keep.get("h"))).abs().max().item()


def only(keep, kind):
    return {name: mask for name, mask in keep.items() if name[0] == kind}


def magnitudes(model):
    """For every element of every dimension, the root of the sum of its squared weights in all tensors."""
    lengths = sizes(model.encoder.shape)
    squares = {name: torch.zeros(size) for name, size in lengths.items()}
    for name, found in axes(model).items():
        value = model.get_parameter(name).detach().square()
        for number, axis in enumerate(found):
            for place, part in enumerate(axis):
                apart = value.unflatten(number, [lengths[other] for other in axis])
                squares[part] += apart.movedim(number + place, 0).flatten(1).sum(1) if apart.ndim > 1 else apart
    return {name: value.sqrt() for name, value in squares.items()}


def test_cutting_the_useless_changes_nothing(planted):
    packed = make_batch(planted.model.encoder.shape)
    assert moved(planted.model, planted.keep, packed) < 1e-5
    assert outputs(planted.model, packed)[-2 * packed.tokens :].std() > 0.2  # and the logits are no constant


@pytest.mark.parametrize("kind", KINDS)
def test_nor_does_cutting_one_kind(planted, kind):
    keep, packed = only(planted.keep, kind), make_batch(planted.model.encoder.shape)
    assert moved(planted.model, keep, packed) < 1e-5
    assert all(0 < mask.sum() < len(mask) for mask in keep.values())


@pytest.mark.parametrize("kind", KINDS)
def test_every_other_element_matters(planted, kind):
    """One useful element more, whichever, and the outputs move: by a hundred times what the useless may do."""
    packed, model = make_batch(planted.model.encoder.shape, (20, 16, 12, 9)), planted.model
    for name, mask in only(planted.keep, kind).items():
        for element in mask.nonzero().flatten():
            less = mask.clone()
            less[element] = False
            assert moved(model, {name: less}, packed) > 1e-3


def test_half_of_a_pair_matters(planted):
    """A useless element alone is not useless: its twin then counts."""
    packed, model = make_batch(planted.model.encoder.shape), planted.model
    for name, mask in planted.useless.items():
        moves = []
        for element in mask.nonzero().flatten()[:8]:
            keep = torch.ones_like(mask)
            keep[element] = False
            moves.append(moved(model, {name: keep}, packed))
        assert max(moves) > 1e-2


def test_magnitude_does_not_find_them(planted):
    """In no dimension are the useless elements the ones with the smallest weights; most are not among them."""
    found = 0
    for name, size in magnitudes(planted.model).items():
        useless = planted.useless[name]
        lowest = torch.zeros_like(useless)
        lowest[size.argsort()[: useless.sum()]] = True
        assert not torch.equal(lowest, useless)
        assert size[useless].median() < 2 * size[~useless].median()
        found += int((lowest & useless).sum())
    assert found < 0.3 * sum(int(mask.sum()) for mask in planted.useless.values())

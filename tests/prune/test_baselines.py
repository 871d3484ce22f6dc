"""Baselines: fewer layers, all dimensions alike, factorised embeddings."""

import pytest
import torch

from prune.shapes import make_batch, make_model, outputs
from quoth.encoder.shape import LayerShape, Shape
from quoth.errors import QuothError
from quoth.model.loading import load
from quoth.model.saving import save
from quoth.prune import cut
from quoth.prune.baselines import begin, drop_layers, factorise, layers_for, layers_kept, magnitudes, uniform, untrained
from quoth.prune.cost import Flops, Parameters
from quoth.prune.dimensions import sizes
from quoth.prune.gates import Gates
from quoth.prune.recipe import Start

SHAPE = Shape(23, 16, 2, 12, 12, (LayerShape(2, 3, 4, 10), LayerShape(4, 2, 2, 8), LayerShape(2, 6, 6, 20)))


class TestLayers:
    def test_which_stay(self):
        assert layers_kept(12, 3) == [0, 1, 2]
        assert layers_kept(12, 3, "even") == [0, 6, 11]
        assert layers_kept(12, 12, "even") == list(range(12))
        assert layers_kept(5, 1, "even") == [0]
        with pytest.raises(QuothError, match="13 of 12 layers"):
            layers_kept(12, 13)

    def test_the_bottom_layers_compute_as_before(self):
        model, packed = make_model(SHAPE), make_batch(SHAPE)
        small = drop_layers(model, 2)
        with torch.no_grad():
            for ours, theirs in zip(small.encoder(packed, range(3)), model.encoder(packed, range(3))):
                assert torch.equal(ours, theirs)

    def test_even_layers_are_taken_with_their_shapes(self):
        small = drop_layers(make_model(SHAPE), 2, "even")
        assert small.encoder.shape.layers == (SHAPE.layers[0], SHAPE.layers[2])
        assert torch.equal(small.encoder.layers[1].up.weight, make_model(SHAPE).encoder.layers[2].up.weight)

    def test_as_many_as_the_budget_allows(self):
        cost = Parameters()
        for keep in (1, 2, 3):
            left = cost(drop_layers(make_model(SHAPE), keep).encoder.shape)
            assert layers_for(SHAPE, cost, left) == keep
            assert layers_for(SHAPE, cost, left + 1) == keep
        with pytest.raises(QuothError, match="cannot be met by dropping layers"):
            layers_for(SHAPE, cost, 10)

    def test_tied_layers_cost_operations_alone(self):
        shape = Shape(23, 16, 2, 5, 12, (LayerShape(2, 3, 4, 10),) * 3, tied=True)
        assert drop_layers(make_model(shape), 1).encoder.shape.total() == shape.total()
        assert layers_for(shape, Flops(16), 0.7 * Flops(16)(shape)) == 2


@torch.no_grad()
def test_another_activation_is_computed_with_and_saved(tmp_path):
    model, packed = make_model(SHAPE).eval(), make_batch(SHAPE)
    small = begin(model, Start(layers=2, activation="relu"))
    save(small, tmp_path / "model")
    assert model.encoder.style.activation == "gelu"
    for one in (small, load(tmp_path / "model").eval()):
        layer, mixed = one.encoder.layers[0], []
        handle = layer.attention_norm.register_forward_hook(lambda m, x, y, seen=mixed: seen.append(y))
        state = one.encoder(packed, range(2))[1]
        handle.remove()
        wanted = layer.ffn_norm(layer.down(layer.up(mixed[0]).relu()) + mixed[0])
        assert torch.allclose(state, wanted, atol=1e-6)


class TestUniform:
    @pytest.mark.parametrize("part", [0.9, 0.6, 0.3])
    def test_every_dimension_keeps_the_same_part(self, part):
        shape = Shape(23, 16, 2, 96, 96, (LayerShape(16, 32, 24, 200), LayerShape(8, 16, 64, 384)))
        cost = Parameters(embeddings=False)
        keep = uniform(Gates(shape).scores(), shape, cost, part * cost(shape))
        small = cut(make_model(shape), keep).encoder.shape
        assert 0.93 * part * cost(shape) < cost(small) <= part * cost(shape)
        shares = [int(keep[name].sum()) / size for name, size in sizes(shape).items() if size > 20]
        assert max(shares) - min(shares) < 0.05

    def test_the_highest_scores_stay_in_multiples(self):
        scores = {"f0": torch.arange(10.0), "f2": -torch.arange(20.0)}
        cost = Parameters()
        keep = uniform(scores, SHAPE, cost, cost(SHAPE) - 150, multiple=4)
        assert int(keep["f0"].sum()) in (4, 8)
        assert int(keep["f2"].sum()) % 4 == 0
        assert keep["f0"].tolist() == sorted(keep["f0"].tolist())
        assert keep["f2"].tolist() == sorted(keep["f2"].tolist(), reverse=True)

    def test_too_little(self):
        with pytest.raises(QuothError, match="shrinking all dimensions alike"):
            uniform({"f0": torch.ones(10)}, SHAPE, Parameters(), 10)


def test_magnitudes():
    """Of a hidden unit and of a key, against all weights that have them, gathered by hand."""
    model = make_model(SHAPE, head="span")
    found = magnitudes(model)
    assert {name: len(value) for name, value in found.items()} == sizes(SHAPE)
    attention = model.encoder.layers[0].attention
    rows = [3 * head + 1 for head in range(2)]
    parts = [x for linear in (attention.query, attention.key) for x in (linear.weight[rows], linear.bias[rows])]
    wanted = torch.cat([part.flatten() for part in parts]).square().mean().sqrt()
    assert found["k0"][1].item() == pytest.approx(wanted.item(), rel=1e-5)


def test_controls_without_training():
    model = make_model(SHAPE)
    assert untrained("first", model, "f", 0)["f0"].argsort().tolist() == list(range(9, -1, -1))
    one, other = (untrained("random", model, "all", seed) for seed in (0, 1))
    assert not torch.equal(one["h"], other["h"])
    assert torch.equal(one["h"], untrained("random", model, "all", 0)["h"])


class TestFactorise:
    @pytest.mark.parametrize("types", [0, 2])
    def test_the_full_size_changes_nothing(self, types, tmp_path):
        shape = Shape(23, 16, types, 12, 12, SHAPE.layers)
        model, packed = make_model(shape), make_batch(shape)
        same = factorise(model, 12)
        assert same.encoder.shape.projection
        assert (outputs(same, packed) - outputs(model, packed)).abs().max() < 1e-9
        save(same.float(), tmp_path / "model")
        loaded = load(tmp_path / "model")
        assert loaded.encoder.shape == same.encoder.shape
        assert torch.equal(outputs(loaded, packed), outputs(same, packed))

    def test_what_is_lost_falls_with_the_size(self):
        model, packed = make_model(SHAPE), make_batch(SHAPE)
        with torch.no_grad():
            whole = model.encoder(packed, (0,))[0]
            lost = [(factorise(model, size).encoder(packed, (0,))[0] - whole).norm() for size in (3, 6, 9, 12)]
        assert lost == sorted(lost, reverse=True)
        assert factorise(model, 3).encoder.shape.parameters()["embeddings"] == (23 + 16 + 2 + 2) * 3

    def test_it_can_be_cut_further(self):
        small = cut(factorise(make_model(SHAPE), 5), {"h": torch.arange(12) % 2 == 0})
        assert (small.encoder.shape.embedding, small.encoder.shape.hidden) == (5, 6)
        assert torch.isfinite(outputs(small, make_batch(SHAPE))).all()

    def test_refused(self):
        model = make_model(SHAPE)
        with pytest.raises(QuothError, match="cannot be factorised to 13"):
            factorise(model, 13)
        with pytest.raises(QuothError, match="factorised already"):
            factorise(factorise(model, 4), 3)

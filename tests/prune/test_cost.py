"""β against the paper's numbers and against counts over matrices; costs against built models."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prune.shapes import shapes
from quoth import QuothError
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.model.model import Model
from quoth.prune.cost import Flops, Parameters, betas
from quoth.prune.dimensions import axes, sizes, with_sizes

BASE = Shape.uniform(layers=12, hidden=768, heads=12)


def built(shape, pooler=True):
    with torch.device("meta"):
        return Model(Encoder(shape), pooler=pooler)


class TestBertBase:
    def test_beta_of_parameters(self):
        beta = betas(Parameters(pooler=True), BASE)
        assert len(beta) == 1 + 12 * 4
        for number in range(12):
            assert [beta[f"{kind}{number}"] for kind in "akvf"] == [1.0, 0.09375, 0.09375, 0.0078125]
        assert round(beta["h"], 3) == 0.728
        tables, layers, pooler = 30522 + 512 + 2, 12 * (4 * 768 + 2 * 3072), 768**2 - 767**2
        assert beta["h"] == (tables + layers + pooler) / 196_608

    def test_beta_without_pooler_and_embeddings(self):
        assert betas(Parameters(), BASE, "h")["h"] == (31_036 + 110_592) / 196_608
        assert betas(Parameters(embeddings=False), BASE, "h") == {"h": 110_592 / 196_608}

    def test_beta_of_flops(self):
        """Two a weight, and 2·length a neighbour: a head 2·(4·768·64) + 2·384·128, and so on."""
        beta, head = betas(Flops(384), BASE), 2 * 4 * 768 * 64 + 2 * 384 * 128
        assert beta["a5"] == 1.0
        assert beta["k5"] == beta["v5"] == 12 * (2 * 2 * 768 + 2 * 384) / head
        assert beta["f5"] == 4 * 768 / head
        assert beta["h"] == 2 * 110_592 / head

    def test_costs(self):
        assert Parameters()(BASE) == 108_891_648
        assert Parameters(pooler=True)(BASE) == sum(v.numel() for v in built(BASE).parameters())
        assert Parameters(embeddings=False)(BASE) == 12 * (7_084_800 + 4 * 768)
        assert Flops(384)(BASE) == BASE.flops(384)


@given(shapes(), st.booleans(), st.booleans(), st.booleans())
def test_parameters_equal_a_count_over_the_tensors(shape, embeddings, pooler, vectors):
    found = sum(
        value.numel()
        for name, value in built(shape, pooler).named_parameters()
        if (embeddings or "embeddings" not in name) and (vectors or value.ndim == 2) and "relative" not in name
    )
    assert Parameters(embeddings, pooler, vectors)(shape) == found


@given(shapes())
def test_beta_is_what_an_element_holds_in_the_matrices(shape):
    """For each dimension, the entries of matrices in one slice; the pooler has h twice, and their crossing once."""
    model, lengths = built(shape), sizes(shape)
    held = dict.fromkeys(lengths, 0.0)
    for name, found in axes(model).items():
        matrix = model.get_parameter(name)
        for axis in found if matrix.ndim == 2 else ():
            for part in axis:
                held[part] += matrix.numel() / lengths[part]
    held["h"] -= 1 if shape.hidden > 1 else -1
    heads = [held[name] for name in sizes(shape, "a")]
    beta = betas(Parameters(pooler=True), shape)
    assert beta == pytest.approx({name: value * len(heads) / sum(heads) for name, value in held.items()})


@given(shapes(), st.sampled_from([Parameters(), Parameters(embeddings=False, pooler=True), Flops(64)]))
def test_costs_grow_with_every_size(shape, cost):
    for name, size in sizes(shape).items():
        assert cost(with_sizes(shape, {name: size + 1})) > cost(shape)


def test_beta_is_that_of_the_current_shape():
    """Heads of different layers cost differently; their mean is 1."""
    shape = Shape(50, 16, 2, 10, 10, (LayerShape(4, 8, 8, 20), LayerShape(2, 4, 4, 20)))
    beta = betas(Parameters(), shape)
    assert beta["a0"] == 2 * beta["a1"]
    assert beta["a0"] + beta["a1"] == 2
    assert beta["k0"] == 2 * beta["k1"]


def test_a_cost_without_heads_has_no_unit():
    with pytest.raises(QuothError, match="gives an attention head no cost"):
        betas(lambda shape: shape.hidden, BASE)

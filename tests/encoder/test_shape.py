"""Exact counts (FACTS.md, ✓), by formula and on built models, and what a shape refuses."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quoth import QuothError
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape, read_shape
from quoth.heads.linear import SpanHead
from quoth.model.model import Model

BASE = Shape.uniform(layers=12, hidden=768, heads=12)
OPTBERT_99M = tuple(
    LayerShape(a, 64, v, f)
    for a, v, f in zip(
        (12, 12, 12, 12, 11, 12, 12, 12, 12, 12, 12, 12),
        (54, 54, 46, 58, 52, 60, 64, 64, 64, 64, 64, 62),
        (2022, 2222, 2344, 2478, 2576, 2530, 2638, 2660, 2748, 2792, 2852, 2974),
    )
)
sizes = st.integers(1, 9)
layer_shapes = st.builds(LayerShape, sizes, sizes, sizes, sizes)


def shapes():
    plain = st.builds(
        Shape,
        sizes,
        sizes,
        st.integers(0, 3),
        sizes,
        sizes,
        st.lists(layer_shapes, min_size=1, max_size=4),
        st.just(False),
    )
    tied = st.builds(
        lambda v, e, h, layer, n, p: Shape(v, 4, 2, e, h, (layer,) * n, True, p),
        sizes, sizes, sizes, layer_shapes, st.integers(1, 4), st.booleans(),
    )  # fmt: skip
    return plain | tied | (plain | tied).map(lambda s: replace(s, relative_buckets=12, relative_per_layer=True))


def built(shape, *, pooler=False, head=False):
    """Parameters of a built model, on the meta device: nothing is allocated."""
    with torch.device("meta"):
        model = Model(Encoder(shape), SpanHead(shape.hidden) if head else None, pooler=pooler)
    return sum(value.numel() for value in model.parameters())


def test_bert_base_cased_with_pooler_and_span_head():
    cased = Shape.uniform(layers=12, hidden=768, heads=12, vocab=28996)
    assert built(cased, pooler=True, head=True) == 108_311_810


def test_bert_large_uncased_with_pooler_and_span_head():
    large = Shape.uniform(layers=24, hidden=1024, heads=16)
    assert built(large, pooler=True, head=True) == 335_143_938


def test_bert_base_uncased():
    assert built(BASE) == BASE.total() == 108_891_648
    layer = BASE.layers[0]
    assert layer.attention_parameters(768) + layer.ffn_parameters(768) == 7_084_800


@pytest.mark.parametrize(("hidden", "millions"), [(544, 77.15), (466, 66.10), (390, 55.33), (304, 43.14), (234, 33.22)])
def test_optbert_shapes(hidden, millions):
    shape = Shape(30522, 512, 2, hidden, hidden, (LayerShape(12, 64, 64, 3072),) * 12)
    assert built(shape) == shape.total()
    assert round(shape.total() / 1e6, 2) == millions


def test_optbert_99m_of_table_12():
    assert round(Shape(30522, 512, 2, 768, 768, OPTBERT_99M).total() / 1e6, 2) == 98.30


@given(shapes())
def test_formula_equals_built(shape):
    assert shape.total() == built(shape)


def test_mpnet_base():
    shape = replace(
        Shape.uniform(layers=12, hidden=768, heads=12, vocab=30527, positions=514, types=0), relative_buckets=32
    )
    assert built(shape, pooler=True) == 109_486_464
    assert shape.parameters()["relative"] == 32 * 12
    assert replace(shape, relative_per_layer=True).parameters()["relative"] == 12 * 32 * 12
    with pytest.raises(QuothError, match="the same number of heads; set relative_per_layer"):
        replace(shape, layers=(*shape.layers, LayerShape(11, 64, 64, 3072)))


@given(shapes())
def test_json_there_and_back(shape):
    assert Shape.from_json(json.loads(json.dumps(shape.to_json()))) == shape


def test_flops_equal_a_count_over_the_matrices():
    """Two a weight of every matrix product, and 2·(k + v) a head and neighbour."""
    shape = Shape(30, 16, 2, 5, 7, (LayerShape(2, 3, 4, 6), LayerShape(1, 2, 2, 9)))
    with torch.device("meta"):
        encoder = Encoder(shape)
    weights = sum(
        value.numel()
        for name, value in encoder.named_parameters()
        if name.endswith("weight")
        and "norm" not in name
        and (".projection" in name or not name.startswith("embeddings"))
    )
    attention = sum(2 * 11 * layer.heads * (layer.key + layer.value) for layer in shape.layers)
    assert shape.flops(11) == 2 * weights + attention


def test_tied_layers_count_once_and_work_each_time():
    layer = LayerShape(2, 4, 4, 16)
    tied, plain = (Shape(50, 16, 2, 8, 8, (layer,) * 3, tied=t) for t in (True, False))
    assert plain.total() - tied.total() == 2 * (layer.attention_parameters(8) + layer.ffn_parameters(8) + 32)
    assert tied.flops(16) == plain.flops(16)


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        ({"hidden": 0}, "hidden is 0"),
        ({"hidden": "big"}, "hidden is 'big'"),
        ({"hidden": True}, "hidden is True"),
        ({"layers": []}, "layers is empty"),
        ({"layers": [{"heads": 1, "key": 1, "value": 1}]}, r"layers\[0\]: ffn is missing"),
        ({"layers": [{"heads": 1, "key": -1, "value": 1, "ffn": 1}]}, r"layers\[0\].key is -1"),
        ({"layers": 12}, "layers is a list"),
        ({"width": 3}, "unknown key width"),
        ({"vocab": None}, "vocab is None"),
        ({"relative_buckets": 30}, "relative_buckets is 30; it must be a multiple of 4"),
        ({"relative_buckets": -4}, "relative_buckets is -4"),
    ],
)
def test_a_wrong_shape_file_names_the_culprit(change, culprit, tmp_path):
    value = {"family": "bert", **Shape.uniform(layers=1, hidden=8, heads=2).to_json(), **change}
    (tmp_path / "shape.json").write_text(json.dumps(value))
    with pytest.raises(QuothError, match=culprit):
        read_shape(tmp_path / "shape.json")


def test_tied_layers_must_be_alike():
    with pytest.raises(QuothError, match="tied"):
        Shape(9, 9, 2, 8, 8, (LayerShape(1, 2, 2, 4), LayerShape(1, 2, 2, 5)), tied=True)

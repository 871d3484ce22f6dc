"""Outliers are found where they were planted; separated they change nothing in float32, and much in int8."""

import numpy as np
import onnx
import pytest
import torch

from quoth.data.dataset import Question
from quoth.encoder.shape import LayerShape
from quoth.export.build import build, open_subject
from quoth.export.export import export
from quoth.export.outliers import Outliers, find_outliers, outliers_of, random_questions
from quoth.export.quantise import quantise
from quoth.model.saving import save
from quoth.runtime.onnx_runner import OnnxRunner
from quoth.windows.questions import make_windows
from quoth.windows.tokenizer import Tokenizer
from support.exporting import make_folder, random_model, shape, torch_logits, windows

SIZES = {"hidden": 64, "embedding": 64, "vocab": 500, "positions": 512}
LAYERS = (LayerShape(4, 16, 16, 256), LayerShape(2, 17, 21, 100))


def planted(folder, layers=LAYERS, **sizes):
    """A model in which unit 17 and channel 5 of the first layer are outliers, and unit 99 of the second."""
    model = random_model(shape(layers, **SIZES, **sizes), {"kind": "span"})
    with torch.no_grad():
        first, last = model.encoder.layers[0], model.encoder.layers[-1]
        first.attention_norm.weight[5] *= 20
        first.up.weight[:, 5] /= 20
        for layer, unit in ((first, 17), (last, 99)):
            layer.up.bias[unit] += 60
            layer.down.bias -= 60 * layer.down.weight[:, unit]
    save(model, folder)
    return model


def test_the_rule():
    units = np.ones(100)
    units[[7, 3, 50]] = 9, 6, 1.9
    channels = np.linspace(1, 2, 64)
    assert outliers_of(channels, units).units.tolist() == [3, 7]
    assert outliers_of(channels, units).scale is None
    channels[[60, 2]] = 4, 16
    usual = np.sort(channels)[-5]
    np.testing.assert_allclose(outliers_of(channels, units).scale, np.maximum(1, channels / usual), rtol=1e-6)
    assert outliers_of(channels, np.ones(100)).units.size == 0
    assert outliers_of(channels[:16], units[:8]).scale is None, "too few to say what is usual"


@pytest.mark.parametrize("tied", [False, True])
def test_what_was_planted_is_found(tmp_path, tied):
    model = planted(tmp_path / "m", LAYERS[:1] * 2 if tied else LAYERS, tied=tied)
    found = find_outliers(model.encoder)
    assert [outliers.units.tolist() for outliers in found] == ([[17, 99]] if tied else [[17], [99]])
    assert found[0].scale.argmax() == 5
    assert not model.encoder.layers[0].up._forward_pre_hooks


def test_nothing_changes_in_float32_and_int8_comes_near(tmp_path):
    model = planted(tmp_path / "m")
    subject, packed = open_subject(tmp_path / "m"), windows((8, 300, 9, 100))
    wanted, apart = {}, [find_outliers(model.encoder)]
    true = torch_logits(model, packed)
    with torch.no_grad():
        graphs = {"plain": build(subject), "apart": build(subject, apart)}
    for name, graph in graphs.items():
        for kind, made in (("float", graph), ("int8", quantise(graph))):
            onnx.save(made, tmp_path / "model.onnx")
            wanted[name, kind] = np.abs(np.stack(OnnxRunner(tmp_path / "model.onnx")(packed)) - true).mean()
    assert max(wanted["plain", "float"], wanted["apart", "float"]) < 1e-5 * np.abs(true).max()
    assert wanted["apart", "int8"] < wanted["plain", "int8"] / 2
    assert export(tmp_path / "m", tmp_path / "small", int8=True).difference < 1e-4 * np.abs(true).max()


def test_small_products_stay_in_float32(tmp_path):
    """Those of outlier units, also where a hidden size of a thousand makes them long."""
    make_folder(tmp_path / "m", shape((LayerShape(1, 8, 8, 64),), hidden=1024, embedding=8, vocab=50), {"kind": "span"})
    with torch.no_grad():
        graph = quantise(build(open_subject(tmp_path / "m"), [[Outliers(np.array([3, 5]), None)]]))
    products = {node.op_type: 0 for node in graph.graph.node}
    for node in graph.graph.node:
        products[node.op_type] += 1
    assert products["MatMulInteger"] == 7, "the projection and six of the layer"
    assert products["MatMul"] == 3, "two of the outlier units, one of the head"


def test_windows_look_like_questions(minilm, tmp_path):
    tokens = Tokenizer.load(minilm)
    encoder = random_model(shape(vocab=30522, positions=200), {"kind": "span"}).encoder
    packed = random_questions(encoder, tokens)
    word = " ".join(["time"] * 300)
    real = make_windows([Question("1", " ".join(["time"] * 16), word, ())], tokens, max_length=160).packed([0])
    special = np.isin(real.ids, [101, 102])
    for start in packed.starts[:-1]:
        window = slice(start, start + 160)
        assert (packed.ids[window][special] == real.ids[special]).all()
        assert (packed.types[window] == real.types).all()
    assert len(packed.lengths) == 16
    assert random_questions(encoder, None).ids.max() < 30522

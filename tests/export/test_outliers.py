"""Outliers are found where they were planted; separated they change nothing in float32, and much in int8."""

from collections import Counter

import numpy as np
import onnx
import pytest
import torch

from quoth.encoder.shape import LayerShape
from quoth.export.build import build, open_subject
from quoth.export.export import export
from quoth.export.observe import find_ranges
from quoth.export.outliers import find_outliers, outliers_of
from quoth.export.quantise import quantise
from quoth.model.saving import save
from quoth.runtime.onnx_runner import OnnxRunner
from support.exporting import make_folder, random_model, shape, torch_logits, windows

SIZES = {"hidden": 64, "embedding": 64, "vocab": 500, "positions": 512}
LAYERS = (LayerShape(4, 16, 16, 256), LayerShape(2, 17, 21, 100))


def planted(folder, layers=LAYERS, **sizes):
    """A model in which unit 17 of the first layer and unit 99 of the second are outliers."""
    model = random_model(shape(layers, **SIZES, **sizes), {"kind": "span"})
    with torch.no_grad():
        first, last = model.encoder.layers[0], model.encoder.layers[-1]
        for layer, unit in ((first, 17), (last, 99)):
            layer.up.bias[unit] += 60
            layer.down.bias -= 60 * layer.down.weight[:, unit]
    save(model, folder)
    return model


def test_the_rule():
    units = np.ones(100)
    units[[7, 3, 50]] = 9, 6, 1.9
    assert outliers_of(units).tolist() == [3, 7]
    assert outliers_of(np.ones(100)).size == 0
    assert outliers_of(units[:8]).size == 0, "too few to say what is usual"


@pytest.mark.parametrize("tied", [False, True])
def test_what_was_planted_is_found(tmp_path, tied):
    model = planted(tmp_path / "m", LAYERS[:1] * 2 if tied else LAYERS, tied=tied)
    found = find_outliers(model.encoder, windows((8, 300, 9, 100)))
    assert [units.tolist() for units in found] == ([[17, 99]] if tied else [[17], [99]])
    assert not model.encoder.layers[0].down._forward_pre_hooks


def test_nothing_changes_in_float32_and_int8_comes_near(tmp_path):
    model = planted(tmp_path / "m")
    subject, packed = open_subject(tmp_path / "m"), windows((8, 300, 9, 100))
    wanted, apart = {}, [find_outliers(model.encoder, packed)]
    true = torch_logits(model, packed)
    with torch.no_grad():
        graphs = {"plain": build(subject), "apart": build(subject, apart)}
    for name, graph in graphs.items():
        path = tmp_path / "model.onnx"
        onnx.save(graph, path)
        wanted[name, "float"] = np.abs(np.stack(OnnxRunner(path)(packed)) - true).mean()
        onnx.save(quantise(graph, find_ranges(path, packed)), path)
        wanted[name, "int8"] = np.abs(np.stack(OnnxRunner(path)(packed)) - true).mean()
    assert max(wanted["plain", "float"], wanted["apart", "float"]) < 1e-5 * np.abs(true).max()
    assert wanted["apart", "int8"] < 0.75 * wanted["plain", "int8"], "there, channels are scaled"
    assert export(tmp_path / "m", tmp_path / "small", int8=True).difference < 1e-4 * np.abs(true).max()


def test_small_products_stay_in_float32(tmp_path):
    """Those of outlier units, also where a hidden size of a thousand makes them long."""
    make_folder(tmp_path / "m", shape((LayerShape(1, 8, 8, 64),), hidden=1024, embedding=8, vocab=50), {"kind": "span"})
    path = tmp_path / "model.onnx"
    with torch.no_grad():
        onnx.save(build(open_subject(tmp_path / "m"), [[np.array([3, 5])]]), path)
    graph = quantise(onnx.load(path), find_ranges(path, windows((8, 30, 7), vocab=50)))
    kinds = Counter(node.op_type for node in graph.graph.node)
    assert kinds["MatMulIntegerToFloat"] == 7, "the projection and six of the layer"
    assert kinds["MatMul"] == 3, "two of the outlier units, one of the head"

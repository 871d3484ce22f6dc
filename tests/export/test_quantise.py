"""int8: products and tables against the formula written in numpy, and whole models."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from quoth.encoder.shape import LayerShape
from quoth.export.export import export
from quoth.export.quantise import quantise
from quoth.runtime.onnx_runner import OnnxRunner
from support.exporting import RECTANGLES, make_folder, shape, torch_logits, windows

WIDE = (LayerShape(4, 16, 16, 256),) * 2
IRREGULAR = (LayerShape(4, 24, 16, 256), LayerShape(1, 17, 21, 100))  # key and value differ


def run(model, x):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


def one_node(operator, weight, kind, *inputs):
    """A model of one node, with a constant."""
    node = helper.make_node(operator, list(inputs), ["y"])
    given = helper.make_tensor_value_info("x", kind, [None, None])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", [given], [made], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_a_product():
    drawn = np.random.default_rng(0)
    weight = (drawn.normal(size=(48, 64)) * drawn.uniform(0.01, 3, 64)).astype(np.float32)
    weight[:, 5] = 0.0
    x = np.abs(drawn.normal(size=(7, 48))).astype(np.float32)
    x[:, 1::2] = 0.0  # CPUs without VNNI add products in pairs of 16 bits, which two large ones would overflow
    found = run(quantise(one_node("MatMul", weight, TensorProto.FLOAT, "x", "w")), x)
    # each column of the weights has its own scale; the activations have one, from 0 to their largest
    step = np.abs(weight).max(0) / 127
    whole = np.rint(weight / np.where(step > 0, step, 1))
    scale = x.max() / 255
    np.testing.assert_allclose(found, np.rint(x / scale) @ whole * scale * step, rtol=1e-5, atol=1e-5)
    assert np.abs(found - x @ weight).max() <= 0.02 * np.abs(x @ weight).max()
    assert (found[:, 5] == 0).all()


def test_a_table():
    drawn = np.random.default_rng(0)
    table = (drawn.normal(size=(90, 16)) * drawn.uniform(0.01, 3, (90, 1))).astype(np.float32)
    table[3] = 0.0
    ids = drawn.integers(0, 90, (2, 40))
    ids[0, 0] = 3
    made = quantise(one_node("Gather", table, TensorProto.INT64, "w", "x"))
    step = np.abs(table).max(1, keepdims=True) / 127
    assert (np.abs(run(made, ids) - table[ids]) <= 0.5001 * step[ids]).all()
    assert [t.data_type for t in made.graph.initializer] == [TensorProto.INT8, TensorProto.FLOAT]


@pytest.mark.parametrize(
    ("layers", "tied"), [(WIDE, False), (WIDE, True), (IRREGULAR, False)], ids=["plain", "tied", "irregular"]
)
@pytest.mark.parametrize("head", [{"kind": "span"}, {"kind": "cacnn", "filters": 4, "maps": 2}], ids=str)
def test_a_model_at_lengths_of_8_to_512(tmp_path, layers, tied, head):
    sizes = shape(layers, hidden=64, embedding=64, vocab=500, positions=512, tied=tied)
    model = make_folder(tmp_path / "m", sizes, head)
    result = export(tmp_path / "m", tmp_path / "onnx", int8=True)
    made = onnx.load(tmp_path / "onnx/model.onnx")
    assert sum(node.op_type == "MatMulInteger" for node in made.graph.node) == 12, "six products a layer"
    floats = [tuple(t.dims) for t in made.graph.initializer if t.data_type == TensorProto.FLOAT]
    assert all(len(dims) != 2 or np.prod(dims) < 1024 for dims in floats), "convolutions and small ones stay"
    assert result.int8_bytes < result.bytes / 2
    runner = OnnxRunner(tmp_path / "onnx/model.onnx")
    packed = windows((8, 512, 9, 100, 8, 470, 100))
    wanted = torch_logits(model, packed)
    for runner.rectangle in RECTANGLES:
        found = np.stack(runner(packed))
        assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.99
        assert np.abs(found - wanted).max() <= 3 * result.int8_difference
    assert result.difference < 1e-4 * max(1, result.largest_logit) < result.int8_difference < result.largest_logit

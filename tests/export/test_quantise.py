"""int8: products and tables against the formula written in numpy, whole models, and windows that stay their own."""

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from quoth.encoder.shape import LayerShape
from quoth.export.export import export
from quoth.export.quantise import quantise
from quoth.export.ranges import Observed, Range, choose_range, round_weight
from quoth.runtime.onnx_runner import OnnxRunner
from quoth.windows import pack
from support.exporting import RECTANGLES, make_folder, shape, torch_logits, windows

WIDE = (LayerShape(4, 16, 16, 256),) * 2
IRREGULAR = (LayerShape(4, 24, 16, 256), LayerShape(1, 17, 21, 100))  # key and value differ


def run(model, x):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


def one_model(nodes, kind, **constants):
    """A model of a few nodes from x to y, with constants."""
    given = helper.make_tensor_value_info("x", kind, [None, None])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "one", [given], [made], weights)
    domains = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=9)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_product(scaled, with_bias):
    drawn = np.random.default_rng(0)
    weight = (drawn.normal(size=(48, 64)) * drawn.uniform(0.01, 3, 64)).astype(np.float32)
    weight[:, 5] = 0.0
    x = drawn.normal(size=(7, 48)).astype(np.float32)
    x[:, 1::2] = 0.0  # CPUs without VNNI add products in pairs of 16 bits, which two large ones would overflow
    bias = drawn.normal(size=64).astype(np.float32) if with_bias else np.zeros(64, np.float32)
    scale = drawn.uniform(1, 4, 48).astype(np.float32) if scaled else None
    how = Range(np.float32(0.017), np.uint8(140), scale)
    if with_bias:
        nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], "p"), helper.make_node("Add", ["p", "b"], ["y"], "y")]
    else:
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "y")]
    made = quantise(one_model(nodes, TensorProto.FLOAT, w=weight, b=bias), {"x": how})
    assert [node.op_type for node in made.graph.node] == [
        *(["Mul"] if scaled else []),
        "QuantizeLinear",
        "MatMulIntegerToFloat",
    ]
    # each column of the weights has its own scale; the activations have one, and are clipped to what 8 bits hold
    divided, times = (x / scale, weight * scale[:, None]) if scaled else (x, weight)
    step = np.abs(times).max(0) / 127
    whole = np.rint(times / np.where(step > 0, step, 1))
    rounded = np.clip(np.rint(divided / 0.017), -140, 115)
    np.testing.assert_allclose(run(made, x), rounded @ whole * 0.017 * step + bias, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(how.rounded(x), rounded * 0.017, atol=1e-6)


@pytest.mark.parametrize("scaled", [False, True])
def test_relu_and_scales_between_two_products_cost_nothing(scaled):
    drawn = np.random.default_rng(0)
    up, down = (drawn.normal(size=size).astype(np.float32) for size in ((32, 64), (64, 32)))
    bias = drawn.normal(size=64).astype(np.float32)
    x = np.zeros((9, 32), np.float32)
    x[:, ::2] = drawn.integers(-20, 20, (9, 16)) / 8  # exact in 8 bits
    nodes = [
        helper.make_node("MatMul", ["x", "up"], ["p"], "p"),
        helper.make_node("Add", ["p", "bias"], ["wide"], "wide"),
        helper.make_node("Relu", ["wide"], ["r"], "r"),
        helper.make_node("MatMul", ["r", "down"], ["y"], "y"),
    ]
    scale = drawn.uniform(1, 4, 64).astype(np.float32) if scaled else None
    ranges = {"x": Range(np.float32(0.125), np.uint8(128), None), "r": Range(np.float32(0.05), np.uint8(0), scale)}
    made = quantise(one_model(nodes, TensorProto.FLOAT, up=up, down=down, bias=bias), ranges)
    assert [node.op_type for node in made.graph.node] == ["QuantizeLinear", "MatMulIntegerToFloat"] * 2
    by = np.ones(64, np.float32) if scale is None else scale
    wide = np.maximum(x @ round_weight(up) + bias, 0)
    wanted = np.clip(np.rint(wide / by / 0.05), 0, 255) * 0.05 @ round_weight(down * by[:, None])
    np.testing.assert_allclose(run(made, x), wanted, atol=0.05 * 4 * np.abs(down).max() * 1.01)  # ties may round apart
    assert np.abs(run(made, x) - wanted).mean() < 0.01


def test_a_relu_that_others_read_stays():
    drawn = np.random.default_rng(0)
    weight = drawn.normal(size=(48, 48)).astype(np.float32)
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "r"),
        helper.make_node("MatMul", ["r", "w"], ["p"], "p"),
        helper.make_node("Add", ["p", "r"], ["y"], "y"),
    ]
    made = quantise(one_model(nodes, TensorProto.FLOAT, w=weight), {"r": Range(np.float32(0.1), np.uint8(0), None)})
    assert [node.op_type for node in made.graph.node] == ["Relu", "QuantizeLinear", "MatMulIntegerToFloat", "Add"]
    x = drawn.normal(size=(7, 48)).astype(np.float32)
    assert np.abs(run(made, x) - (np.maximum(x, 0) @ weight + np.maximum(x, 0))).max() < 1.5


def test_the_scale_of_an_attention_goes_into_its_values():
    drawn = np.random.default_rng(0)
    weights = {name: (drawn.normal(size=(32, 32)) / 6).astype(np.float32) for name in ("q", "k", "v", "o")}
    scale = drawn.uniform(1, 4, 32).astype(np.float32)
    nodes = [
        helper.make_node("Unsqueeze", ["x", "zero"], ["x3"], "x3"),
        *(helper.make_node("MatMul", ["x3", name], [f"{name}.p"], f"{name}.p") for name in ("q", "k", "v")),
        helper.make_node("MultiHeadAttention", ["q.p", "k.p", "v.p"], ["a"], "a", domain="com.microsoft", num_heads=2),
        helper.make_node("MatMul", ["a", "o"], ["y"], "y"),
    ]
    model = one_model(nodes, TensorProto.FLOAT, zero=np.array([0], np.int64), **weights)
    x = drawn.normal(size=(9, 32)).astype(np.float32)
    wanted = run(model, x)
    ranges = {"x3": Range(np.float32(0.03), np.uint8(128), None), "a": Range(np.float32(0.02), np.uint8(128), scale)}
    made = quantise(model, ranges)
    assert "Mul" not in [node.op_type for node in made.graph.node]
    assert np.abs(run(made, x) - wanted).max() < 0.1
    assert np.corrcoef(run(made, x).ravel(), wanted.ravel())[0, 1] > 0.99


def test_products_of_one_input_share_it():
    weights = {name: np.random.default_rng(0).normal(size=(48, 64)).astype(np.float32) for name in ("w", "v")}
    nodes = [helper.make_node("MatMul", ["x", name], [f"{name}.p"], f"{name}.p") for name in weights]
    nodes.append(helper.make_node("Add", ["w.p", "v.p"], ["y"], "y"))
    made = quantise(one_model(nodes, TensorProto.FLOAT, **weights), {"x": Range(np.float32(0.1), np.uint8(128), None)})
    kinds = [node.op_type for node in made.graph.node]
    assert kinds == ["QuantizeLinear", "MatMulIntegerToFloat", "MatMulIntegerToFloat", "Add"]


def test_a_table():
    drawn = np.random.default_rng(0)
    table = (drawn.normal(size=(90, 16)) * drawn.uniform(0.01, 3, (90, 1))).astype(np.float32)
    table[3] = 0.0
    ids = drawn.integers(0, 90, (2, 40))
    ids[0, 0] = 3
    made = quantise(one_model([helper.make_node("Gather", ["w", "x"], ["y"], "y")], TensorProto.INT64, w=table), {})
    step = np.abs(table).max(1, keepdims=True) / 127
    assert (np.abs(run(made, ids) - table[ids]) <= 0.5001 * step[ids]).all()
    assert [t.data_type for t in made.graph.initializer] == [TensorProto.INT8, TensorProto.FLOAT]


class TestRanges:
    def test_an_even_input_is_taken_whole_and_as_it_is(self):
        drawn = np.random.default_rng(0)
        rows = drawn.uniform(-1, 3, (400, 64)).astype(np.float32)
        found = choose_range(Observed(rows.min(0), rows.max(0), rows), [drawn.normal(size=(64, 32)).astype(np.float32)])
        assert found.scale is None
        assert found.step == pytest.approx(4 / 255, rel=0.01)
        assert found.zero in (63, 64)

    def test_a_channel_far_above_all_others_is_scaled(self):
        drawn = np.random.default_rng(0)
        rows = drawn.uniform(-1, 1, (400, 64)).astype(np.float32)
        rows[:, 9] *= 30
        found = choose_range(Observed(rows.min(0), rows.max(0), rows), [drawn.normal(size=(64, 32)).astype(np.float32)])
        assert found.scale is not None
        assert found.scale.argmax() == 9
        assert found.scale[9] == pytest.approx(30, rel=0.1)
        assert found.step == pytest.approx(2 / 255, rel=0.1)

    def test_a_few_large_values_are_clipped(self):
        drawn = np.random.default_rng(0)
        rows = drawn.laplace(size=(4000, 16)).astype(np.float32)
        found = choose_range(Observed(rows.min(0), rows.max(0), rows), [drawn.normal(size=(16, 32)).astype(np.float32)])
        assert found.step * 255 < 0.95 * (rows.max() - rows.min())

    def test_nothing_but_zeros(self):
        zeros = np.zeros((9, 16), np.float32)
        found = choose_range(Observed(zeros[0], zeros[0], zeros), [np.ones((16, 8), np.float32)])
        assert (found.step, found.zero, found.scale) == (1, 0, None)


@pytest.mark.parametrize(
    ("layers", "tied"), [(WIDE, False), (WIDE, True), (IRREGULAR, False)], ids=["plain", "tied", "irregular"]
)
@pytest.mark.parametrize("head", [{"kind": "span"}, {"kind": "cacnn", "filters": 4, "maps": 2}], ids=str)
def test_a_model_at_lengths_of_8_to_512(tmp_path, layers, tied, head):
    sizes = shape(layers, hidden=64, embedding=64, vocab=500, positions=512, tied=tied)
    model = make_folder(tmp_path / "m", sizes, head)
    result = export(tmp_path / "m", tmp_path / "onnx", int8=True)
    made = onnx.load(tmp_path / "onnx/model.onnx")
    assert sum(node.op_type == "MatMulIntegerToFloat" for node in made.graph.node) == 12, "six products a layer"
    assert sum(node.op_type == "QuantizeLinear" for node in made.graph.node) == 8, "one for q, k and v"
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


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    place = tmp_path_factory.mktemp("alone")
    make_folder(place / "m", shape(WIDE, hidden=64, embedding=64, vocab=97, positions=64), {"kind": "span"})
    export(place / "m", place / "onnx", int8=True)
    return OnnxRunner(place / "onnx/model.onnx")


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 64), min_size=1, max_size=12), st.integers(0, 9), st.sampled_from([64, 512, 4096]))
def test_a_window_does_not_depend_on_its_neighbours(runner, lengths, seed, rectangle):
    """Alone, and in a batch of others in any order, in rectangles of any size."""
    packed = windows(tuple(lengths), seed=seed)
    runner.rectangle = rectangle
    together = np.stack(runner(packed))
    for i, (low, high) in enumerate(zip(packed.starts[:-1], packed.starts[1:])):
        alone = windows_of(packed, [i])
        np.testing.assert_allclose(np.stack(runner(alone)), together[:, low:high], rtol=0, atol=1e-4)


def windows_of(packed, places):
    ranges = [slice(packed.starts[i], packed.starts[i + 1]) for i in places]
    return pack([packed.ids[one] for one in ranges], [packed.types[one] for one in ranges])

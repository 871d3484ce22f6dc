"""int8 for onnxruntime: weights signed and per channel, embeddings included; activations by the range they have.

    W·x ≈ s_x·s_W·(Ŵ·(x̂ − z))        Ŵ: int8, one s_W for each output; x̂: uint8, s_x and z from each batch's own range
    E[i] ≈ s_i·Ê[i]                   Ê: int8, one s_i for each row of a table

These are the nodes that onnxruntime's `quantize_dynamic` writes (and its optimiser fuses when a file is loaded), but
for embeddings, to which it gives one scale a table. Products with a constant matrix and tables are converted, all else
stays. The input of a product has one range, which is why outliers are best separated (`quoth.export.outliers`).
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

SMALL, NARROW = 1024, 8  # numbers, and rows or columns; constants below either are not worth it


def quantise(model: onnx.ModelProto) -> onnx.ModelProto:
    """The int8 model of a float32 one that `quoth.export.build` made."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    weights = {tensor.name: tensor for tensor in made.graph.initializer}
    nodes: list[NodeProto] = []
    added: dict[str, TensorProto] = {}
    for node in made.graph.node:
        table, axis = _constant_of(node)
        tensor = weights.get(table)
        if (
            tensor is None
            or len(tensor.dims) != 2
            or np.prod(tensor.dims) < SMALL
            or min(tensor.dims) < NARROW
            or tensor.data_type != TensorProto.FLOAT
        ):
            nodes.append(node)
            continue
        if f"{table}.int8" not in added:
            for name, array in zip(("int8", "scale"), _rounded(numpy_helper.to_array(tensor), axis)):
                added[f"{table}.{name}"] = numpy_helper.from_array(array, f"{table}.{name}")
        nodes += _product(node, table) if node.op_type == "MatMul" else _lookup(node, table)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in made.graph.initializer if tensor.name in used]
    del made.graph.node[:], made.graph.initializer[:]
    made.graph.node.extend(nodes)
    made.graph.initializer.extend([*kept, *added.values()])
    return made


def _constant_of(node: NodeProto) -> tuple[str, int]:
    """The input that may be a constant matrix, and the axis over which a scale is shared."""
    if node.op_type == "MatMul":
        return node.input[1], 0
    return (node.input[0], 1) if node.op_type == "Gather" else ("", 0)


def _rounded(weight: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """int8 and its scale: that of a product's outputs (out,), or that of a table's rows (rows, 1)."""
    scale = np.abs(weight).max(axis, keepdims=True) / 127
    scale = np.where(scale > 0, scale, 1).astype(np.float32)
    return np.rint(weight / scale).astype(np.int8), scale if axis == 1 else scale[0]


def _product(node: NodeProto, table: str) -> list[NodeProto]:
    """MatMul → DynamicQuantizeLinear, MatMulInteger, and the scales of both."""
    x, out = node.input[0], node.output[0]
    ranged = [f"{out}.x", f"{out}.x_scale", f"{out}.x_zero"]
    return [
        helper.make_node("DynamicQuantizeLinear", [x], ranged, f"{out}.range"),
        helper.make_node("MatMulInteger", [ranged[0], f"{table}.int8", ranged[2]], [f"{out}.whole"], f"{out}.product"),
        helper.make_node("Cast", [f"{out}.whole"], [f"{out}.float"], f"{out}.cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", [ranged[1], f"{table}.scale"], [f"{out}.scale"], f"{out}.scales"),
        helper.make_node("Mul", [f"{out}.float", f"{out}.scale"], [out], f"{out}.scaled"),
    ]


def _lookup(node: NodeProto, table: str) -> list[NodeProto]:
    """Gather → rows of int8, times their scales."""
    index, out = node.input[1], node.output[0]
    return [
        helper.make_node("Gather", [f"{table}.int8", index], [f"{out}.rows"], f"{out}.int8"),
        helper.make_node("Gather", [f"{table}.scale", index], [f"{out}.scale"], f"{out}.scales"),
        helper.make_node("Cast", [f"{out}.rows"], [f"{out}.float"], f"{out}.cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", [f"{out}.float", f"{out}.scale"], [out], f"{out}.scaled"),
    ]

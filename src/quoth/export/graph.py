"""A `quoth.encoder.graph.Graph` as a model of onnx."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from quoth.encoder.graph import ONNXRUNTIME, Graph

OPSET = 20  # the first with Gelu; onnxruntime 1.17 and later run it
IR = 9  # of the file format, as old as this opset allows
KEY = "quoth"  # of what the runner needs to know, as JSON among the file's metadata


def onnx_model(
    g: Graph, inputs: Sequence[str], outputs: dict[str, list[str | int]], facts: dict[str, Any]
) -> onnx.ModelProto:
    """The whole: inputs of (batch, length) int64, outputs of these shapes, float32, and `facts` in the metadata."""
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in inputs]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
    weights = [numpy_helper.from_array(value, name) for name, value in g.constants.items()]
    graph = helper.make_graph(onnx_nodes(g), "quoth", given, made, weights)
    domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(ONNXRUNTIME, 1)]
    model = helper.make_model(graph, opset_imports=domains, producer_name="quoth")
    model.ir_version = IR
    helper.set_model_props(model, {KEY: json.dumps(facts)})
    return model


def onnx_nodes(g: Graph) -> list[onnx.NodeProto]:
    """The nodes of a graph, each with one output of its own name."""
    return [helper.make_node(n.operator, n.inputs, [n.name], n.name, **n.attributes) for n in g.nodes]

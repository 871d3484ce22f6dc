"""int8 for onnxruntime: weights signed and per channel, embeddings included; activations by ranges that are fixed.

    W·x ≈ s_x·s_W·(Ŵ·(x̂ − z))        Ŵ: int8, one s_W for each output; x̂: uint8, s_x and z: `quoth.export.ranges`
    E[i] ≈ s_i·Ê[i]                   Ê: int8, one s_i for each row of a table

Products with a constant matrix become onnxruntime's operator for this, MatMulIntegerToFloat, their bias in it; products
of the same input share x̂. Tables are looked up in int8. All else stays, but for two things that cost nothing:

    x = relu(y), z = 0    x̂ is made of y: what is below 0 is rounded to 0 anyway
    x/c                   where each channel of x is one of a product below (through relu, or as the values of an
                          attention), the product's own s_W and bias are divided by c
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from quoth.encoder.graph import ONNXRUNTIME
from quoth.export.ranges import Range, integers

SMALL, NARROW = 1024, 8  # numbers, and rows or columns; constants below either are not worth it


def quantise(model: onnx.ModelProto, ranges: Mapping[str, Range]) -> onnx.ModelProto:
    """The int8 model of a float32 one that `quoth.export.build` made. ranges: of each product's input, by its name."""
    writer = _Writer(model, ranges)
    for node in model.graph.node:
        writer.add(node)
    return writer.model(model)


def products(model: onnx.ModelProto) -> list[NodeProto]:
    """The products with a constant matrix that are worth it; the matrix is their second input."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    return [node for node in model.graph.node if node.op_type == "MatMul" and _worth_it(weights.get(node.input[1]))]


def _worth_it(tensor: TensorProto | None) -> bool:
    return (
        tensor is not None
        and tensor.data_type == TensorProto.FLOAT
        and len(tensor.dims) == 2
        and bool(np.prod(tensor.dims) >= SMALL)
        and min(tensor.dims) >= NARROW
    )


class _Writer:
    """Nodes and constants of the int8 model, as they are added."""

    def __init__(self, model: onnx.ModelProto, ranges: Mapping[str, Range]) -> None:
        self.ranges = ranges
        self.nodes: list[NodeProto] = []
        self.weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self.made: dict[str, TensorProto] = {}
        self.products = {node.name for node in products(model)}
        self.biases = _biases(model, self.products)
        self.folded = {add.name for add in self.biases.values()}
        self.quantised: set[str] = set()
        self.makers = {node.output[0]: node for node in model.graph.node}
        self.readers = _readers(model)
        self.divided = self._divisors()

    def add(self, node: NodeProto) -> None:
        """A node of the float32 model, or what stands in its place."""
        if node.name in self.products:
            self._product(node)
        elif node.op_type == "Gather" and _worth_it(self.weights.get(node.input[0])):
            self._lookup(node)
        elif node.name not in self.folded and not self._rounds_to_relu(node):
            self.nodes.append(node)

    def model(self, like: onnx.ModelProto) -> onnx.ModelProto:
        """The whole, with the inputs, outputs and metadata of the float32 model."""
        made = onnx.ModelProto()
        made.CopyFrom(like)
        used = {name for node in self.nodes for name in node.input}
        kept = [tensor for tensor in made.graph.initializer if tensor.name in used]
        del made.graph.node[:], made.graph.initializer[:]
        made.graph.node.extend(self.nodes)
        made.graph.initializer.extend([*kept, *self.made.values()])
        return made

    def _divisors(self) -> dict[str, np.ndarray]:
        """What the outputs of products are divided by, (outputs,), by the product's name."""
        found = {}
        for x, how in self.ranges.items():
            maker = self._below(x)
            if how.scale is not None and maker is not None:
                found[maker.name] = how.scale
        return found

    def _below(self, x: str) -> NodeProto | None:
        """The product whose outputs are the channels of x, if x alone is made of them."""
        maker = self.makers.get(x)
        if maker is None or not all(reader.name in self.products for reader in self.readers[x]):
            return None
        place = {"Relu": 0, "MultiHeadAttention": 2}.get(maker.op_type)
        below = self.makers.get(maker.input[place]) if place is not None else None
        if below is None or len(self.readers[below.output[0]]) > 1:
            return None
        names = {add.name: name for name, add in self.biases.items()}
        name = names.get(below.name, below.name)
        return self.makers[name] if name in self.products else None

    def _rounds_to_relu(self, node: NodeProto) -> bool:
        """Whether a node is a relu that rounding does."""
        x = node.output[0]
        inside = all(reader.name in self.products for reader in self.readers[x])
        return node.op_type == "Relu" and inside and x in self.ranges and self.ranges[x].zero == 0

    def _product(self, node: NodeProto) -> None:
        """MatMul and the Add of its bias → the product of integers."""
        x, table = node.input[:2]
        how = self.ranges[x]
        if x not in self.quantised:
            self._quantised(x, how)
        weight = f"{table}.of.{x}" if how.scale is not None else table
        if f"{weight}.int8" not in self.made:
            matrix = numpy_helper.to_array(self.weights[table])
            whole, scale = integers(matrix if how.scale is None else matrix * how.scale[:, None], 0)
            self._constant(f"{weight}.int8", whole)
            self._constant(f"{weight}.scale", scale[0])
        by = self.divided.get(node.name)
        scales = f"{weight}.scale" if by is None else self._divided(f"{weight}.scale", node, by)
        inputs = [f"{x}.int8", f"{weight}.int8", f"{x}.step", scales, f"{x}.zero"]
        bias = self.biases.get(node.name)
        if bias is not None:
            inputs += ["", bias.input[1] if by is None else self._divided(bias.input[1], node, by)]
        out = node if bias is None else bias
        self._node("MatMulIntegerToFloat", inputs, out.output[0], domain=ONNXRUNTIME)

    def _divided(self, name: str, node: NodeProto, by: np.ndarray) -> str:
        """A vector of a product's outputs, divided."""
        tensor = self.made[name] if name in self.made else self.weights[name]
        return self._constant(f"{name}.of.{node.name}", (numpy_helper.to_array(tensor) / by).astype(np.float32))

    def _quantised(self, x: str, how: Range) -> None:
        """From x to x̂, once for all of its products."""
        self.quantised.add(x)
        source = x
        maker = self.makers.get(x)
        if maker is not None and self._rounds_to_relu(maker):
            source = maker.input[0]
        if how.scale is not None and self._below(x) is None:
            self._node("Mul", [source, self._constant(f"{x}.scale", 1 / how.scale)], f"{x}.scaled")
            source = f"{x}.scaled"
        step, zero = self._constant(f"{x}.step", how.step), self._constant(f"{x}.zero", how.zero)
        self._node("QuantizeLinear", [source, step, zero], f"{x}.int8")

    def _lookup(self, node: NodeProto) -> None:
        """Gather → rows of int8, times their scales."""
        table, index, out = node.input[0], node.input[1], node.output[0]
        if f"{table}.rows" not in self.made:
            whole, scale = integers(numpy_helper.to_array(self.weights[table]), 1)
            self._constant(f"{table}.rows", whole)
            self._constant(f"{table}.scales", scale)
        self._node("Gather", [f"{table}.rows", index], f"{out}.rows")
        self._node("Gather", [f"{table}.scales", index], f"{out}.scales")
        self._node("Cast", [f"{out}.rows"], f"{out}.float", to=TensorProto.FLOAT)
        self._node("Mul", [f"{out}.float", f"{out}.scales"], out)

    def _node(self, operator: str, inputs: list[str], name: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))

    def _constant(self, name: str, value: Any) -> str:
        self.made[name] = numpy_helper.from_array(np.asarray(value), name)
        return name


def _readers(model: onnx.ModelProto) -> dict[str, list[NodeProto]]:
    """The nodes that read each value."""
    found: dict[str, list[NodeProto]] = {value.name: [] for value in model.graph.output}
    for node in model.graph.node:
        found.setdefault(node.output[0], [])
        for name in node.input:
            found.setdefault(name, []).append(node)
    return found


def _biases(model: onnx.ModelProto, names: set[str]) -> dict[str, NodeProto]:
    """The Add that gives a product its bias, a constant vector, by the product's name, where nothing else reads it."""
    vectors = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 1}
    readers = _readers(model)
    alone = {name: found[0] for name in names if len(found := readers.get(name, [])) == 1}
    return {name: add for name, add in alone.items() if add.op_type == "Add" and add.input[1] in vectors}

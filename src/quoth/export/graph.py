"""`Graph`: an ONNX graph, written node by node.

The graph is written here and not traced from torch: torch's newer exporter wants onnxscript, its older one is
deprecated, and both would take the sizes of a packed batch, which are Python integers, for constants. What is written
is compared with the torch model before it is accepted (`quoth.export.verify`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from quoth.encoder.graph import Foldable
from quoth.errors import QuothError

OPSET = 20  # the first with Gelu; onnxruntime 1.17 and later run it
IR = 9  # of the file format, as old as this opset allows
ONNXRUNTIME = "com.microsoft"  # the domain of its own operators
KEY = "quoth"  # of what the runner needs to know, as JSON among the file's metadata


class Graph:
    """Nodes and constants. Values are known by the names of their nodes' outputs; equal constants are stored once."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self._known: dict[tuple[Any, ...], str] = {}

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and name that."""
        return self.several(operator, *inputs, outputs=1, **attributes)[0]

    def several(self, operator: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Add a node with several outputs, and name them."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        made = [f"{name}.{number}" if outputs > 1 else name for number in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), made, name, **attributes))
        return made

    def constant(self, value: Tensor | np.ndarray | float) -> str:
        """Name a constant: float32 of what has a point, int64 of a whole number, other arrays as they are."""
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        array = np.asarray(array, np.float32 if array.dtype.kind == "f" else array.dtype, order="C")
        key = (array.dtype.str, array.shape, hashlib.sha256(array.data).digest())
        if key not in self._known:  # tied layers, and the many small ones
            self._known[key] = f"constant_{len(self.constants)}"
            self.constants[self._known[key]] = array
        return self._known[key]

    def integers(self, *values: int) -> str:
        """A vector of int64: a shape, axes, sizes."""
        return self.constant(np.array(values, np.int64))

    def linear(self, x: str, weight: Tensor, bias: Tensor | None = None) -> str:
        """W·x + b. x: (…, in), weight: (out, in) → (…, out)."""
        product = self("MatMul", x, self.constant(weight.T))
        return product if bias is None else self("Add", product, self.constant(bias))

    def dense(self, x: str, module: nn.Linear) -> str:
        """The same for a torch module; what a tuning method added to it is folded into its weight."""
        return self.linear(x, *plain(module))

    def norm(self, x: str, module: nn.LayerNorm) -> str:
        """LayerNorm over the last axis."""
        gain, offset = self.constant(module.weight), self.constant(module.bias)
        return self("LayerNormalization", x, gain, offset, axis=-1, epsilon=module.eps)

    def activate(self, x: str, activation: str) -> str:
        """Gelu, its tanh form, relu or tanh."""
        if activation in ("relu", "tanh"):
            return self(activation.capitalize(), x)
        return self("Gelu", x, approximate="tanh" if activation == "gelu_tanh" else "none")

    def attention(self, q: str, k: str, v: str, heads: int) -> str:
        """softmax(q·kᵀ/√key)·v in every head and window. q, k: (B, L, heads·key), v: (B, L, heads·value) → as v."""
        return self("MultiHeadAttention", q, k, v, num_heads=heads, domain=ONNXRUNTIME)

    def reshape(self, x: str, *shape: int | str) -> str:
        """To a shape of integers (−1: what is left) and of vectors that the graph computes."""
        parts: list[str] = []
        for size in shape:
            parts.append(size if isinstance(size, str) else self.integers(size))
        return self("Reshape", x, self("Concat", *parts, axis=0) if len(parts) > 1 else parts[0])

    def output(self, name: str, x: str) -> None:
        """Give a value the name by which it is known outside."""
        self.nodes.append(helper.make_node("Identity", [x], [name], name))

    def model(
        self, inputs: Sequence[str], outputs: dict[str, list[str | int]], facts: dict[str, Any]
    ) -> onnx.ModelProto:
        """The whole: inputs of (batch, length) int64, outputs of these shapes, float32, and `facts` in the metadata."""
        given = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in inputs]
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
        weights = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "quoth", given, made, weights)
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(ONNXRUNTIME, 1)]
        model = helper.make_model(graph, opset_imports=domains, producer_name="quoth")
        model.ir_version = IR
        helper.set_model_props(model, {KEY: json.dumps(facts)})
        return model


def plain(module: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a linear layer, what a tuning method added to it folded in."""
    if isinstance(module, Foldable):
        module = module.plain()
    if type(module) is not nn.Linear:
        raise QuothError(f"a layer of kind {type(module).__name__} cannot be exported; save and load the model first")
    return module.weight, module.bias

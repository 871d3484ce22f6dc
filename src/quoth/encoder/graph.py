"""`Graph`: an ONNX graph, written node by node and without onnx; `quoth.export.graph` makes a file of it.

Heads and tuning methods state in their own files what of them is exported:

    def to_onnx(self, g: Graph, …) -> str           # the nodes that compute what `forward` computes
    def plain(self) -> nn.Linear                    # of a linear layer whose update can be folded into its weight

It is written and not traced from torch: torch's newer exporter wants onnxscript, its older one is deprecated, and both
would take the sizes of a packed batch, which are Python integers, for constants. What is written is compared with the
torch model before it is accepted (`quoth.export.verify`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from quoth.errors import QuothError

ONNXRUNTIME = "com.microsoft"  # the domain of its own operators


@dataclass(frozen=True)
class Node:
    """An operator on named values. name: the node's, and that of its one output."""

    operator: str
    inputs: tuple[str, ...]
    name: str
    attributes: dict[str, Any]


class Graph:
    """Nodes and constants; B windows of L tokens each, T = B·L.

    Values are known by the names of their nodes; equal constants are stored once.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray] = {}
        self._known: dict[tuple[Any, ...], str] = {}

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and name that."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(Node(operator, inputs, name, attributes))
        return name

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
        """An activation by its name: gelu, gelu_tanh, relu or tanh."""
        if activation in ("relu", "tanh"):
            return self(activation.capitalize(), x)
        return self("Gelu", x, approximate="tanh" if activation == "gelu_tanh" else "none")

    def attention(self, q: str, k: str, v: str, heads: int, bias: str = "") -> str:
        """softmax(q·kᵀ/√key + bias)·v in every head and window.

        q, k: (B, L, heads·key), v: (B, L, heads·value) → as v; bias: (1, heads, L, L), or "" for none
        """
        inputs = (q, k, v, "", "", bias) if bias else (q, k, v)  # the fourth and fifth: biases of q, k, v; a mask
        return self("MultiHeadAttention", *inputs, num_heads=heads, domain=ONNXRUNTIME)

    def reshape(self, x: str, *shape: int | str) -> str:
        """To a shape of integers (−1: what is left) and of vectors that the graph computes."""
        parts = [size if isinstance(size, str) else self.integers(size) for size in shape]
        return self("Reshape", x, self("Concat", *parts, axis=0) if len(parts) > 1 else parts[0])

    def output(self, name: str, x: str) -> None:
        """Give a value the name by which it is known outside."""
        self.nodes.append(Node("Identity", (x,), name, {}))


@runtime_checkable
class Foldable(Protocol):
    """A linear layer that a tuning method put in the place of a plain one."""

    def plain(self) -> nn.Linear:
        """A plain layer that computes the same, the update folded into its weight."""


def plain(module: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a linear layer, what a tuning method added to it folded in."""
    if isinstance(module, Foldable):
        module = module.plain()
    if type(module) is not nn.Linear:
        raise QuothError(f"a layer of kind {type(module).__name__} cannot be exported; save and load the model first")
    return module.weight, module.bias


def write(what: str, module: Any, g: Graph, *inputs: Any) -> Any:
    """What a module's `to_onnx` adds to a graph and returns; one that has none is refused as `what`."""
    if getattr(module, "to_onnx", None) is None:
        raise QuothError(f"a {what} cannot be exported; give its class a method to_onnx")
    return module.to_onnx(g, *inputs)

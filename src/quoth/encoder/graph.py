"""What heads and tuning methods declare for export, in their own files and without onnx.

    def to_onnx(self, g: Graph, …) -> str           # the nodes that compute what `forward` computes
    def plain(self) -> nn.Linear                    # of a linear layer whose update can be folded into its weight

`quoth.export.graph` has the one `Graph`. A value in a graph is known by its name, a text.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn


class Graph(Protocol):
    """An ONNX graph that is written node by node; B windows of L tokens each, T = B·L."""

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and name that."""

    def constant(self, value: Tensor | np.ndarray | float) -> str:
        """Name a constant."""

    def integers(self, *values: int) -> str:
        """A vector of int64: a shape, axes, sizes."""

    def linear(self, x: str, weight: Tensor, bias: Tensor | None = None) -> str:
        """W·x + b. x: (…, in), weight: (out, in) → (…, out)."""

    def dense(self, x: str, module: nn.Linear) -> str:
        """The same for a torch module."""

    def norm(self, x: str, module: nn.LayerNorm) -> str:
        """LayerNorm over the last axis."""

    def activate(self, x: str, activation: str) -> str:
        """An activation by its name: gelu, gelu_tanh, relu or tanh."""

    def reshape(self, x: str, *shape: int | str) -> str:
        """To a shape of integers (−1: what is left) and of vectors that the graph computes."""


@runtime_checkable
class Exportable(Protocol):
    """A module that writes itself into a graph. What `to_onnx` takes beside the graph depends on where it is used."""

    def to_onnx(self, g: Graph, *inputs: Any) -> Any:
        """Add the nodes that compute what `forward` computes, and name the result."""


@runtime_checkable
class Foldable(Protocol):
    """A linear layer that a tuning method put in the place of a plain one."""

    def plain(self) -> nn.Linear:
        """A plain layer that computes the same, the update folded into its weight."""

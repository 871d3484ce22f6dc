"""What flows between the steps of a head in an ONNX graph, where a step writes itself by `to_onnx`.

As in torch it is (layers, T, f) or (T, f); here T = B·L, for B windows of L tokens. For classes the tokens are the
first ones of each window: L = 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from quoth.encoder.graph import Exportable, Graph
from quoth.errors import QuothError


@dataclass(frozen=True)
class GraphValue:
    """The name of (layers, T, width), or of (T, width) where layers is None."""

    name: str
    layers: int | None
    width: int


@dataclass(frozen=True)
class GraphHere:
    """What a step may read beside its input: the last state, (T, hidden), and the batch's size, (2,), B and L."""

    last: GraphValue
    size: str


def write_steps(g: Graph, steps: Iterable[Any], x: GraphValue, here: GraphHere) -> GraphValue:
    """One step after the other."""
    for step in steps:
        if not isinstance(step, Exportable):
            raise QuothError(
                f"a step of kind {type(step).__name__} cannot be exported; give its class a method to_onnx"
            )
        x = step.to_onnx(g, x, here)
    return x


def stack_values(g: Graph, names: Sequence[str], width: int) -> GraphValue:
    """(T, f) each → (layers, T, f), or the one as it is."""
    if len(names) == 1:
        return GraphValue(names[0], None, width)
    each = [g("Unsqueeze", name, g.integers(0)) for name in names]
    return GraphValue(g("Concat", *each, axis=0), len(names), width)


def concat_values(g: Graph, *values: GraphValue) -> GraphValue:
    """All layers and features of a token in one row: (T, their sum)."""
    flat = []
    for value in values:
        if value.layers is None:
            flat.append(value.name)
        else:
            tokens = g("Transpose", value.name, perm=[1, 0, 2])
            flat.append(g.reshape(tokens, -1, value.layers * value.width))
    width = sum((value.layers or 1) * value.width for value in values)
    return GraphValue(g("Concat", *flat, axis=1) if len(flat) > 1 else flat[0], None, width)

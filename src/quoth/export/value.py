"""`Value`: what flows between the steps of a head, as a name in a graph."""

from __future__ import annotations

from dataclasses import dataclass

from quoth.export.graph import Graph


@dataclass(frozen=True)
class Value:
    """(layers, T, width), or (T, width) where layers is None."""

    name: str
    layers: int | None
    width: int


def side_by_side(g: Graph, *values: Value) -> Value:
    """All layers and features of a token in one row: (T, their sum)."""
    flat = []
    for value in values:
        if value.layers is None:
            flat.append(value.name)
        else:
            tokens = g("Transpose", value.name, perm=[1, 0, 2])
            flat.append(g.reshape(tokens, -1, value.layers * value.width))
    width = sum((value.layers or 1) * value.width for value in values)
    return Value(g("Concat", *flat, axis=1) if len(flat) > 1 else flat[0], None, width)

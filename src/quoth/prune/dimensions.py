"""The dimensions that can be cut, which tensors are gated along them, and which tensors follow a cut.

schuBERT / optBERT (ACL 2020), tables 3 and 5; i counts the layers that have weights of their own, from 0:

    h    hidden size, shared by all layers
    aᵢ   heads       kᵢ   size of keys and queries, shared by a layer's heads
    vᵢ   size of values, likewise       fᵢ   feed-forward size

    Q, K: (a·k, h)    V: (a·v, h)    P: (h, a·v)    D: (f, h)    G: (h, f)

Gated (`gated_axes`) are these six matrices of every layer, as in table 5, and nothing else. All tensors that have the
dimension follow a cut (`axes`): also the biases of the six and, for h, the embedding tables (or the projection that
leads from them to h), every LayerNorm, the pooler (both sides, since it is h → h) and the head.

Relative position biases, (buckets, a), follow a cut of aᵢ. Where layers share one table of them and heads are cut, each
layer gets a copy, of which it keeps the columns of its own heads (`untied`). From then on the copies are trained apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from quoth.encoder import LayerShape, Shape
from quoth.encoder.axes import FREE, Axis, Prunable
from quoth.encoder.axes import HIDDEN as H
from quoth.errors import QuothError
from quoth.model import Model
from quoth.tune import can_merge, inserted

KINDS = {"h": "hidden", "a": "heads", "k": "key", "v": "value", "f": "ffn"}  # the names in `Shape` and `LayerShape`


def read_kinds(kinds: str | Iterable[str]) -> tuple[str, ...]:
    """The kinds of dimensions that are meant: "all", or some of the letters h, a, k, v, f."""
    wanted = set(KINDS) if kinds == "all" else set(kinds)
    if not wanted or wanted - KINDS.keys():
        raise QuothError(f"kinds {kinds!r} are unknown: choose all, or some of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in wanted)


def sizes(shape: Shape, kinds: str | Iterable[str] = "all") -> dict[str, int]:
    """The size of every dimension of these kinds, by name: h, a0, k0, v0, f0, a1 … Tied layers have one set."""
    wanted = read_kinds(kinds)
    found = {"h": shape.hidden} if "h" in wanted else {}
    for number, layer in enumerate(shape.stored_layers):
        found |= {f"{kind}{number}": getattr(layer, KINDS[kind]) for kind in wanted if kind != "h"}
    return found


def with_sizes(shape: Shape, changed: Mapping[str, int]) -> Shape:
    """The shape with these dimensions changed. Without a projection, the embeddings go with the hidden size.

    Once heads are cut, layers have relative biases of their own.
    """

    def layer(number: int, old: LayerShape) -> LayerShape:
        return replace(old, **{name: changed.get(f"{k}{number}", getattr(old, name)) for k, name in _IN_LAYER.items()})

    hidden = changed.get("h", shape.hidden)
    layers = [layer(0 if shape.tied else number, old) for number, old in enumerate(shape.layers)]
    embedding = shape.embedding if shape.projection else hidden
    cut = [layer.heads for layer in layers] != [layer.heads for layer in shape.layers]
    per_layer = shape.relative_per_layer or (cut and bool(shape.relative_buckets))
    return replace(shape, hidden=hidden, embedding=embedding, layers=tuple(layers), relative_per_layer=per_layer)


SHARED_RELATIVE = "encoder.relative.weight"
_IN_LAYER = {kind: name for kind, name in KINDS.items() if kind != "h"}
_MATRICES = ("attention.query", "attention.key", "attention.value", "attention.output", "up", "down")  # Q K V P D G


def gated_axes(model: Model) -> dict[str, tuple[Axis, ...]]:
    """Table 5: for the weights of K, Q, V, P, D and G of every layer, what both of their axes run over."""
    found = axes(model)
    names = [f"encoder.layers.{n}.{matrix}.weight" for n in range(len(model.encoder.layers)) for matrix in _MATRICES]
    return {name: found[name] for name in names}


def axes(model: Model) -> dict[str, tuple[Axis, ...]]:
    """For every parameter that follows a cut, what each of its axes runs over."""
    found: dict[str, tuple[Axis, ...]] = {}
    below = "encoder.embeddings."
    if model.encoder.shape.projection:
        found |= {below + "projection.weight": (H, FREE), below + "projection.bias": (H,)}
    else:
        tables = ("words", "positions", "types") if model.encoder.shape.types else ("words", "positions")
        found |= {f"{below}{table}.weight": (FREE, H) for table in tables}
        found |= _norm(below + "norm")
    for number in range(len(model.encoder.layers)):
        found |= _layer(f"encoder.layers.{number}.", number)
    if model.pooler is not None:
        found |= _linear("pooler", H, H)
    known = {name for name, _ in model.named_parameters()}
    if isinstance(model.head, Prunable):
        found |= {f"head.{n}": axis for n, axis in model.head.axes.items() if f"head.{n}" in known}
    return found


def untied(weights: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """The weights with a copy of the shared relative biases for each layer."""
    copies = {name: value for name, value in weights.items() if name != SHARED_RELATIVE}
    return copies | dict.fromkeys(relative_axes(layers), weights[SHARED_RELATIVE])


def relative_axes(layers: int) -> dict[str, tuple[Axis, ...]]:
    """What the axes of the layers' own relative biases run over."""
    return {f"encoder.layers.{n}.attention.relative.weight": (FREE, (f"a{n}",)) for n in range(layers)}


def check(model: Model, names: Iterable[str]) -> None:
    """Refuse a model whose dimensions of these names cannot be cut."""
    found = inserted(model.encoder)
    if found:
        how = "merge it first (quoth.model.merge)" if can_merge(model.encoder) else "prune its base, then tune that"
        raise QuothError(f"a model with {found} cannot be pruned; {how}")
    head: Any = model.head
    if "h" in names and head is not None and not isinstance(head, Prunable):
        raise QuothError(
            f"a head of kind {head.kind!r} cannot follow a cut of the hidden size; "
            "leave h out of the kinds, or cut the encoder without this head and train it again"
        )


def along(axis: Axis, values: Mapping[str, Tensor], lengths: Mapping[str, int]) -> Tensor | None:
    """The product of the values of an axis' dimensions, (length of the axis,), or None where none has values.

    values: (size,) each, numbers or booleans, by the name of the dimension; lengths: the sizes of all dimensions
    """
    given = [values[name] for name in axis if name in values]
    if not given:
        return None
    product = given[0].new_ones(1)
    for name in axis:
        part = values[name] if name in values else product.new_ones(lengths[name])
        product = (product[:, None] * part).flatten()
    return product


def _layer(prefix: str, number: int) -> dict[str, tuple[Axis, ...]]:
    a, k, v, f = (f"{kind}{number}" for kind in "akvf")
    attention = prefix + "attention."
    return {
        **_linear(attention + "query", (a, k), H),
        **_linear(attention + "key", (a, k), H),
        **_linear(attention + "value", (a, v), H),
        **_linear(attention + "output", H, (a, v)),
        **_norm(prefix + "attention_norm"),
        **_linear(prefix + "up", (f,), H),
        **_linear(prefix + "down", H, (f,)),
        **_norm(prefix + "ffn_norm"),
    }


def _linear(name: str, rows: Axis, columns: Axis) -> dict[str, tuple[Axis, ...]]:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def _norm(name: str) -> dict[str, tuple[Axis, ...]]:
    return {f"{name}.weight": (H,), f"{name}.bias": (H,)}

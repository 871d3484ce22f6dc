"""Folding gates into the weights, and cutting what is not kept out of them. Both make a new model.

Attention divides its scores by √k of the shape that it has, so a cut from k to k′ multiplies Q and its bias by √(k′/k):
then the scores are the ones from before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from quoth.encoder import Encoder, Shape
from quoth.encoder.axes import Alpha, Keep
from quoth.encoder.style import Style
from quoth.errors import QuothError
from quoth.heads import build_head
from quoth.model import Model
from quoth.prune.dimensions import along, axes, check, relative_axes, sizes, untied, with_sizes
from quoth.prune.gates import Gates, gated_weights, kept_by


@torch.no_grad()
def fold(model: Model, gates: Gates | Alpha) -> Model:
    """The gated model as a plain one of the same shape, α multiplied into its weights."""
    return rebuild(model, model.encoder.shape, {**model.state_dict(), **gated_weights(model, gates)})


@torch.no_grad()
def cut(model: Model, by: Gates | Alpha | Keep) -> Model:
    """The model without the elements that `by` does not keep.

    by: booleans, which alone say what stays; or α, of which the zeros go and the rest is folded in.

    Where no hidden unit goes, the new model computes what the gated one did; where some go, LayerNorms and head do
    without them (`quoth.prune.gates`). It computes what `model` itself did if the elements that go did nothing. It has
    no base and no tuning, and all of it is trainable. A dimension keeps at least 1 element, as `Shape` wants it.
    """
    masks = not isinstance(by, Gates) and all(value.dtype == torch.bool for value in by.values())
    keep = kept_by(by)
    lengths = sizes(model.encoder.shape)
    left = _count(keep, lengths)
    check(model, [name for name, size in left.items() if size < lengths[name]])
    weights = dict(model.state_dict())
    if not masks:
        weights |= gated_weights(model, by)
    shape, count = with_sizes(model.encoder.shape, left), len(model.encoder.layers)
    cuttable = axes(model)
    if shape.relative_per_layer:
        weights = weights if model.encoder.shape.relative_per_layer else untied(weights, count)
        cuttable |= relative_axes(count)
    for name, along_axes in cuttable.items():
        for number, axis in enumerate(along_axes):
            kept = along(axis, keep, lengths)
            if kept is not None:
                index = kept.nonzero().squeeze(1).to(weights[name].device)
                weights[name] = weights[name].index_select(number, index)
    for number in range(count):
        key = f"k{number}"
        scale = math.sqrt(left.get(key, lengths[key]) / lengths[key])
        for name in (f"encoder.layers.{number}.attention.query.{part}" for part in ("weight", "bias")):
            weights[name] = weights[name] * scale
    return rebuild(model, shape, weights)


def _count(keep: Keep, lengths: Mapping[str, int]) -> dict[str, int]:
    """How many elements of each dimension stay, after a look at the masks."""
    for name, kept in keep.items():
        if name not in lengths:
            raise QuothError(f"keep: this model has no dimension {name}; it has {', '.join(list(lengths)[:6])} …")
        if kept.shape != (lengths[name],):
            raise QuothError(f"keep: {name} has {lengths[name]} elements here, not {tuple(kept.shape)}")
        if not bool(kept.any()):
            raise QuothError(f"keep: nothing is left of {name} (it had {lengths[name]}); keep at least 1 element")
    return {name: int(kept.sum()) for name, kept in keep.items()}


def rebuild(
    model: Model, shape: Shape, weights: Mapping[str, Tensor], style: Style | None = None, head: Any = None
) -> Model:
    """A model like this one, of this shape, with copies of these weights. style, head: by default its own."""
    head = head if head is not None else model.head
    table = head.to_json() if head is not None else None
    with torch.device("meta"):
        made = Model(
            Encoder(shape, style or model.encoder.style),
            build_head(table, shape.hidden, len(shape.layers)) if table else None,
            family=model.family.name,
            pooler=model.pooler is not None,
            origin=model.origin,
        )
    made.load_state_dict({name: value.detach().clone() for name, value in weights.items()}, assign=True)
    made.windows = model.windows
    made.encoder.checkpointing = model.encoder.checkpointing
    return made.train(model.training)

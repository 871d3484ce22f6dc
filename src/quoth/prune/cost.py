"""What a shape costs, and β: what one element of a dimension costs, in heads.

schuBERT / optBERT (ACL 2020), §5: β is in proportion to what goes when an element's α is set to 0, a head being 1.0;
for BERT-base and parameters

    a 1    k, v 12·768·2 / 196,608 = 0.09375    f 2·768 / 196,608 = 0.0078125    h 0.728 (with pooler)

A cost is any function of a `Shape` that grows with every size: `Parameters`, `Flops`, a table of latencies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from quoth.encoder import Shape
from quoth.errors import QuothError
from quoth.prune.dimensions import sizes, with_sizes


class Cost(Protocol):
    """What a shape costs, in any unit; it must not fall when a size grows."""

    def __call__(self, shape: Shape) -> float:
        """The cost of a shape."""


@dataclass(frozen=True)
class Parameters:
    """The parameters of an encoder; tied layers count once. Relative position biases, a few thousand, are left out.

    Else the cost could rise where heads are cut from layers that share them, and from then on have a copy each.

    embeddings: count the tables, their LayerNorm and the projection; pooler: count one, h·h + h
    vectors: count biases and LayerNorms beside the matrices
    """

    embeddings: bool = True
    pooler: bool = False
    vectors: bool = True

    def __call__(self, shape: Shape) -> float:
        """How many there are."""
        h = shape.hidden
        pooler = h * (h + self.vectors) if self.pooler else 0
        if self.vectors:
            parts = shape.parameters()
            layers = parts["attention"] + parts["ffn"] + parts["norms"]
            return layers + pooler + (parts["embeddings"] + parts["projection"] if self.embeddings else 0)
        tables = (shape.vocab + shape.positions + shape.types) * shape.embedding
        below = tables + (shape.embedding * h if shape.projection else 0)
        layers = sum(2 * h * (layer.heads * (layer.key + layer.value) + layer.ffn) for layer in shape.stored_layers)
        return layers + pooler + (below if self.embeddings else 0)


@dataclass(frozen=True)
class Flops:
    """Forward floating-point operations a token in windows of `length`; tied layers work, and count, each time."""

    length: int = 384

    def __call__(self, shape: Shape) -> float:
        """How many there are."""
        return shape.flops(self.length)


def betas(cost: Cost, shape: Shape, kinds: str | Iterable[str] = "all") -> dict[str, float]:
    """What one element of each dimension costs at this shape, by name, in units of a head (the mean over layers).

    As in the paper, parameters are those of the matrices: a bias or a LayerNorm's pair would only blur the ratios.
    """
    if isinstance(cost, Parameters):
        cost = replace(cost, vectors=False)
    head = [_of_one(cost, shape, name) for name in sizes(shape, "a")]
    unit = sum(head) / len(head)
    if not unit > 0:
        raise QuothError("the objective gives an attention head no cost, so β has no unit; choose another objective")
    return {name: _of_one(cost, shape, name) / unit for name in sizes(shape, kinds)}


def _of_one(cost: Cost, shape: Shape, name: str) -> float:
    """What goes with one element of a dimension; of the last element, which cannot go, what one more would cost."""
    size = sizes(shape)[name]
    if size > 1:
        return cost(shape) - cost(with_sizes(shape, {name: size - 1}))
    return cost(with_sizes(shape, {name: size + 1})) - cost(shape)

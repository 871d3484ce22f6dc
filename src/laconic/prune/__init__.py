"""Pruning: gates on every dimension of an encoder, what each element costs, which ones go, folding and cutting.

gates = Gates(model.encoder.shape, "all")                       # α = 1
with gated(model, gates): …                                     # train α
cost = Parameters(embeddings=False)
keep = choose(gates.scores(), gates.shape, cost, 0.5 * cost(gates.shape))
gates.zero(keep)
small = cut(model, gates)                                       # a model like any other, of a smaller shape
"""

from __future__ import annotations

from laconic.prune.choose import choose
from laconic.prune.cost import Cost, Flops, Parameters, betas
from laconic.prune.cut import cut, fold
from laconic.prune.dimensions import KINDS, axes, sizes, with_sizes
from laconic.prune.gates import Alpha, Gates, Keep, gated, gated_weights
from laconic.prune.norm import KeptNorm
from laconic.prune.shift import Shift, norm_shift

__all__ = [
    "KINDS",
    "Alpha",
    "Cost",
    "Flops",
    "Gates",
    "Keep",
    "KeptNorm",
    "Parameters",
    "Shift",
    "axes",
    "betas",
    "choose",
    "cut",
    "fold",
    "gated",
    "gated_weights",
    "norm_shift",
    "sizes",
    "with_sizes",
]

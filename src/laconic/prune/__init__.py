"""Pruning: gates on every dimension of an encoder, what each element costs, which ones go, folding and cutting.

gates = Gates(model.encoder.shape, "all")                       # α = 1
with gated(model, gates): …                                     # train α
cost = Parameters(embeddings=False)
keep = choose(gates.scores(), gates.shape, cost, 0.5 * cost(gates.shape))
gates.zero(keep)
small = cut(model, gates)                                       # a model like any other, of a smaller shape

prune(read_prune_recipe("prune.toml"), "runs/small")            # Algorithm 1 whole, with recovery
"""

from __future__ import annotations

from laconic.prune.baselines import drop_layers, factorise, magnitudes, uniform
from laconic.prune.choose import choose
from laconic.prune.cost import Cost, Flops, Parameters, betas
from laconic.prune.cut import cut, fold
from laconic.prune.dimensions import KINDS, axes, sizes, with_sizes
from laconic.prune.gates import Alpha, Gates, Keep, gated, gated_weights
from laconic.prune.latency import Latency, measure_latency
from laconic.prune.lesson import Blend, Lesson, View
from laconic.prune.loops import GateLoop, RecoveryLoop
from laconic.prune.norm import KeptNorm
from laconic.prune.penalty import L0, L1, Proximal, make_penalty
from laconic.prune.recipe import PruneRecipe, make_prune_recipe, read_prune_recipe
from laconic.prune.schedule import prune
from laconic.prune.search import Search, Study, open_study
from laconic.prune.shift import Shift, norm_shift

__all__ = [
    "KINDS",
    "L0",
    "L1",
    "Alpha",
    "Blend",
    "Cost",
    "Flops",
    "GateLoop",
    "Gates",
    "Keep",
    "KeptNorm",
    "Latency",
    "Lesson",
    "Parameters",
    "Proximal",
    "PruneRecipe",
    "RecoveryLoop",
    "Search",
    "Shift",
    "Study",
    "View",
    "axes",
    "betas",
    "choose",
    "cut",
    "drop_layers",
    "factorise",
    "fold",
    "gated",
    "gated_weights",
    "magnitudes",
    "make_penalty",
    "make_prune_recipe",
    "measure_latency",
    "norm_shift",
    "open_study",
    "prune",
    "read_prune_recipe",
    "sizes",
    "uniform",
    "with_sizes",
]

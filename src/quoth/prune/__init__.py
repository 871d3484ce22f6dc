"""Pruning: gates on every dimension of an encoder, what each element costs, which ones go, folding and cutting.

gates = Gates(model.encoder.shape, "all")                       # α = 1
with gated(model, gates): …                                     # train α
cost = Parameters(embeddings=False)
keep = allocate(gates.scores(), gates.shape, cost, 0.5 * cost(gates.shape))
gates.zero(keep)
small = cut(model, gates)                                       # a model like any other, of a smaller shape

prune(read_prune_recipe("prune.toml"), "runs/small")            # Algorithm 1 whole, with recovery
"""

from __future__ import annotations

from quoth.encoder.axes import Alpha, Keep
from quoth.prune.allocate import allocate
from quoth.prune.baselines import drop_layers, factorise, magnitudes, uniform
from quoth.prune.cost import Cost, Flops, Parameters, betas
from quoth.prune.cut import cut, fold
from quoth.prune.dimensions import KINDS, axes, sizes, with_sizes
from quoth.prune.gate_training import GateTraining
from quoth.prune.gates import Gates, gated, gated_weights
from quoth.prune.hpo import Search, Study, open_study
from quoth.prune.latency import Latency, measure_latency
from quoth.prune.norm import KeptNorm
from quoth.prune.penalty import L0, L1, Proximal, make_penalty
from quoth.prune.recipe import PruneRecipe, make_prune_recipe, read_prune_recipe
from quoth.prune.schedule import prune
from quoth.prune.shift import Shift, norm_shift

__all__ = [
    "KINDS",
    "L0",
    "L1",
    "Alpha",
    "Cost",
    "Flops",
    "GateTraining",
    "Gates",
    "Keep",
    "KeptNorm",
    "Latency",
    "Parameters",
    "Proximal",
    "PruneRecipe",
    "Search",
    "Shift",
    "Study",
    "allocate",
    "axes",
    "betas",
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

"""Pruning: gates on every dimension of an encoder, what each element costs, which ones go, folding and cutting.

gates = Gates(model.encoder.shape, "all")                       # α = 1
with gated(model, gates): …                                     # train α
cost = Parameters(embeddings=False)
keep = allocate(gates.scores(), gates.shape, cost, 0.5 * cost(gates.shape))
gates.zero(keep)
small = cut(model, gates)                                       # a model like any other, of a smaller shape

prune(read_prune_recipe("small.toml"), "runs/small")            # Algorithm 1 whole, with recovery
"""

from quoth.prune.allocate import allocate
from quoth.prune.cost import Flops, Parameters, betas
from quoth.prune.cut import cut, fold
from quoth.prune.gates import Gates, gated
from quoth.prune.hpo import Search, open_study
from quoth.prune.metrics import PruneMetrics
from quoth.prune.recipe import PruneRecipe, make_prune_recipe, read_prune_recipe
from quoth.prune.schedule import prune

__all__ = [
    "Flops",
    "Gates",
    "Parameters",
    "PruneMetrics",
    "PruneRecipe",
    "Search",
    "allocate",
    "betas",
    "cut",
    "fold",
    "gated",
    "make_prune_recipe",
    "open_study",
    "prune",
    "read_prune_recipe",
]

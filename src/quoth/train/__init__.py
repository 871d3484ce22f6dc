"""Training: recipes, the loop, runs that can be interrupted. Needs `quoth[train]`.

recipe = read_recipe("recipe.toml", ["optimisation.rate=1e-4"])
train(recipe, "runs/first")
"""

from quoth.train.build import Prepared, build_model, prepare
from quoth.train.fit import Fit, add_heads, fit_heads
from quoth.train.harness import Interrupted
from quoth.train.log import Status
from quoth.train.recipe import Recipe, make_recipe, read_recipe
from quoth.train.run import train

__all__ = [
    "Fit",
    "Interrupted",
    "Prepared",
    "Recipe",
    "Status",
    "add_heads",
    "build_model",
    "fit_heads",
    "make_recipe",
    "prepare",
    "read_recipe",
    "train",
]

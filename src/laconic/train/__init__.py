"""Training: recipes, the loop, runs that can be interrupted. Needs `laconic[train]`.

recipe = read_recipe("recipe.toml", ["optimisation.rate=1e-4"])
train(recipe, "runs/first")
"""

from laconic.train.build import Prepared, build_model, prepare
from laconic.train.fit import Fit, add_heads, fit_heads
from laconic.train.log import Status
from laconic.train.recipe import Recipe, make_recipe, read_recipe
from laconic.train.run import Interrupted, train

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

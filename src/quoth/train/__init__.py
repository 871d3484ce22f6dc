"""Training: recipes, the loop, runs that can be interrupted. Needs `quoth[train]`.

recipe = read_recipe("recipe.toml", ["optimisation.learning_rate=1e-4"])
train(recipe, "runs/first")
"""

from quoth.train.build import build_model
from quoth.train.log import Status
from quoth.train.metrics import TrainMetrics
from quoth.train.recipe import Recipe, make_recipe, read_recipe
from quoth.train.run import train
from quoth.train.training import Interrupted
from quoth.train.warm_up import WarmUp, warm_up

__all__ = [
    "Interrupted",
    "Recipe",
    "Status",
    "TrainMetrics",
    "WarmUp",
    "build_model",
    "make_recipe",
    "read_recipe",
    "train",
    "warm_up",
]

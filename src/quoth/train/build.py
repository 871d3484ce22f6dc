"""From a recipe to a model that is ready to be trained."""

from __future__ import annotations

from quoth.model import Model, apply, load
from quoth.tasks import task_of
from quoth.tasks.task import check_head
from quoth.train.fine_tuning import set_dropout
from quoth.train.recipe import Recipe
from quoth.tune import build_tuning


def build_model(recipe: Recipe) -> Model:
    """The model of a recipe, with head and tuning; new parameters are drawn from the seed.

    A head that the model already has is kept if it is of the kind that the recipe names.
    """
    task = task_of(recipe.data)
    model = load(recipe.model)
    tuning = build_tuning(recipe.tuning)
    task.add_head(model, recipe.head, recipe.seed)
    check_head("head", model.head, task)
    if recipe.optimisation.dropout is not None:
        set_dropout(model, recipe.optimisation.dropout)
    model.windows = recipe.data.window_settings()
    return apply(model, tuning)

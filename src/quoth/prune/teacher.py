"""Which model a run distils from: the unpruned one, or another that the recipe names, if it can teach this one."""

from __future__ import annotations

from quoth.errors import QuothError
from quoth.model import Model, load, open_checkpoint
from quoth.model.checkpoint import place
from quoth.prune.dimensions import read_kinds
from quoth.prune.recipe import PruneRecipe
from quoth.runtime.members import same_tokens
from quoth.tasks.task import describe_head


def find_teacher(recipe: PruneRecipe, model: Model) -> Model:
    """The model to distil from; model: the unpruned one, with its head.

    Another teacher must give logits for the same tokens, and states of the same size where these are compared. The
    number of its layers, and without states its hidden size, are its own.
    """
    if not recipe.teacher or place(recipe.teacher) == place(recipe.model):
        return model
    try:
        teacher = load(recipe.teacher)
    except QuothError as error:
        raise QuothError(f"recipe: teacher: {error}") from None
    _check_logits(recipe, model, teacher)
    _check_tokens(recipe, model, teacher)
    _check_states(recipe, model, teacher)
    return teacher


def _check_logits(recipe: PruneRecipe, model: Model, teacher: Model) -> None:
    """Refuse a head whose logits are not those of the model's."""
    mine, theirs = describe_head(model.head), describe_head(teacher.head)
    if mine != theirs:
        raise QuothError(
            f"recipe: teacher = {recipe.teacher!r} gives {theirs}, but {recipe.model} gives {mine}; "
            "name a teacher with a head for the same task"
        )


def _check_tokens(recipe: PruneRecipe, model: Model, teacher: Model) -> None:
    """Refuse a teacher that cannot read the model's windows, token by token."""
    mine, theirs = model.encoder, teacher.encoder
    if mine.shape.vocab != theirs.shape.vocab:
        raise QuothError(
            f"recipe: teacher = {recipe.teacher!r} has {theirs.shape.vocab:,} words, "
            f"but {recipe.model} has {mine.shape.vocab:,}; both must have the same tokenizer"
        )
    if recipe.data.max_length > theirs.longest_window:
        raise QuothError(
            f"recipe: data.max_length is {recipe.data.max_length}, "
            f"but teacher = {recipe.teacher!r} ends at {theirs.longest_window}"
        )
    both = [open_checkpoint(source) for source in (recipe.teacher, recipe.model)]
    for one in both:
        if not one.files.tokenizer:
            raise QuothError(f"{one.files.source}: has no tokenizer; tokenizer.json should lie beside the weights")
    if not same_tokens(*both):
        raise QuothError(
            f"recipe: teacher = {recipe.teacher!r} does not have the tokenizer of {recipe.model}; "
            "both must split texts into the same tokens"
        )


def _check_states(recipe: PruneRecipe, model: Model, teacher: Model) -> None:
    """Refuse to compare states that have nothing to do with each other.

    Of the unpruned model it is known which of its hidden units a cut one has kept (`View`); of another model it is not.
    """
    weights = {
        "distillation.states_weight": recipe.distillation.states_weight,
        "gates.states_weight": recipe.gates.states_weight,
    }
    key = next((key for key, weight in weights.items() if weight), None)
    if key is None:
        return
    mine, theirs = model.encoder.shape.hidden, teacher.encoder.shape.hidden
    if mine != theirs:
        raise QuothError(
            f"recipe: {key} = {weights[key]:g} compares states, but teacher = {recipe.teacher!r} has a hidden size of "
            f"{theirs} and {recipe.model} of {mine}; set {key} to 0"
        )
    target = recipe.target
    if target.keep and recipe.method != "layers" and "h" in read_kinds(target.kinds):
        raise QuothError(
            f"recipe: {key} = {weights[key]:g} compares states with those of another teacher, "
            f"but target.kinds = {target.kinds!r} cuts hidden units; set {key} to 0, or leave h out of the kinds"
        )

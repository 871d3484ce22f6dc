"""Which models a run distils from: the unpruned one, or others that the recipe names, if they can teach this one.

The unpruned model is run beside the student. So is another one whose hidden states are compared, or whose task is not
"span"; it must have the student's tokenizer. Of all other teachers the logits are computed once and kept
(`quoth.train.teacher_logits`), whatever their tokenizers are; states can be compared with those of the unpruned model
then (`states_of = "unpruned"`), which is run for them.
"""

from __future__ import annotations

from pathlib import Path

from quoth.encoder import Device
from quoth.errors import QuothError
from quoth.model import Model, load, open_checkpoint
from quoth.model.checkpoint import place
from quoth.prune.dimensions import read_kinds
from quoth.prune.recipe import PruneRecipe
from quoth.runtime.members import same_tokens
from quoth.tasks import Task, task_of
from quoth.train.settings import LOGITS
from quoth.train.teacher_logits import Teachers, check_teachers, find_teachers


def keeps_logits(recipe: PruneRecipe) -> bool:
    """Whether the logits of the teachers are kept, and none of them is run beside the student."""
    others = [one for one in recipe.teacher if place(one) != place(recipe.model)]
    own = recipe.compares_states and recipe.states_of == "teacher"
    return bool(others) and task_of(recipe.data).keeps_logits and not own


def kept_teachers(recipe: PruneRecipe, task: Task, run: Path, device: Device) -> Teachers | None:
    """The teachers whose logits are kept, and which of these are there already; None where one is run."""
    if not keeps_logits(recipe):
        return None
    kept = recipe.distillation
    return find_teachers(
        recipe.teacher, "teacher", task, Path(kept.cache_folder or run / LOGITS), kept.cache_gb, device
    )


def find_teacher(recipe: PruneRecipe, model: Model) -> Model | None:
    """The model to be run beside the student, for logits or states; None where there is none. Teachers are checked.

    model: the unpruned one, with its head

    Another teacher must give logits for the same tokens, and states of the same size where these are compared. The
    number of its layers, and without states its hidden size, are its own.
    """
    others = [one for one in recipe.teacher if place(one) != place(recipe.model)]
    if not others:
        return model
    check_teachers(others, "teacher", model, recipe.data.max_length)
    if keeps_logits(recipe):
        return model if recipe.compares_states else None
    teacher = load(others[0])
    _check_tokens(recipe, others[0], model, teacher)
    _check_states(recipe, others[0], model, teacher)
    return teacher


def _check_tokens(recipe: PruneRecipe, source: str, model: Model, teacher: Model) -> None:
    """Refuse a teacher that cannot read the model's windows, token by token."""
    mine, theirs = model.encoder, teacher.encoder
    if mine.shape.vocab != theirs.shape.vocab:
        raise QuothError(
            f"recipe: teacher = {source!r} has {theirs.shape.vocab:,} words, "
            f"but {recipe.model} has {mine.shape.vocab:,}; both must have the same tokenizer"
        )
    both = [open_checkpoint(one) for one in (source, recipe.model)]
    for one in both:
        if not one.files.tokenizer:
            raise QuothError(f"{one.files.source}: has no tokenizer; tokenizer.json should lie beside the weights")
    if not same_tokens(*both):
        raise QuothError(
            f"recipe: teacher = {source!r} does not have the tokenizer of {recipe.model}; "
            "both must split texts into the same tokens"
        )


def _check_states(recipe: PruneRecipe, source: str, model: Model, teacher: Model) -> None:
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
            f"recipe: {key} = {weights[key]:g} compares states, but teacher = {source!r} has a hidden size of "
            f"{theirs} and {recipe.model} of {mine}; set {key} to 0"
        )
    target = recipe.target
    if target.keep and recipe.method != "layers" and "h" in read_kinds(target.kinds):
        raise QuothError(
            f"recipe: {key} = {weights[key]:g} compares states with those of another teacher, "
            f"but target.kinds = {target.kinds!r} cuts hidden units; set {key} to 0, or leave h out of the kinds"
        )

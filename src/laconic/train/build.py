"""From a recipe to what a loop needs: the model with head and tuning, the examples, the evaluation."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from laconic.encoder.model import Model, load
from laconic.errors import LaconicError
from laconic.heads import build_head
from laconic.text import Tokens
from laconic.train.evaluation import SpanEvaluation, span_evaluation
from laconic.train.loop import seed_of, set_dropout
from laconic.train.recipe import Recipe
from laconic.train.spans import Examples, span_examples
from laconic.tune import apply, build_tuning


@dataclass(frozen=True)
class Prepared:
    """The data of a run, tokenised."""

    examples: Examples
    evaluation: SpanEvaluation | None

    @property
    def identity(self) -> dict[str, str]:
        """What a checkpoint remembers of the data, so that a run cannot go on with other data."""
        digest = hashlib.sha256()
        for column in (self.examples.windows.ids, self.examples.windows.starts, self.examples.answers):
            digest.update(column.tobytes())
        return {"data": digest.hexdigest()}


def build_model(recipe: Recipe) -> Model:
    """The model of a recipe, ready to learn: fresh parts are drawn from the seed.

    A head that the model already has is kept if it is of the kind that the recipe names.
    """
    model = load(recipe.model)
    tuning = build_tuning(recipe.tuning)
    hidden = model.encoder.shape.hidden
    torch.manual_seed(seed_of(recipe.seed))
    head: Any = build_head(recipe.head, hidden)
    if model.head is None or model.head.to_json() != head.to_json():
        model.head = head
    if head.task != "span":
        raise LaconicError("head: training learns spans; a head for classes cannot be trained yet")
    if head.pooled and model.pooler is None:
        model.pooler = nn.Linear(hidden, hidden)
    if recipe.optimisation.dropout is not None:
        set_dropout(model, recipe.optimisation.dropout)
    data = recipe.data
    model.windows = {"max_length": data.max_length, "step": data.step, "question_limit": data.question_limit}
    return apply(model, tuning)


def prepare(recipe: Recipe, model: Model) -> Prepared:
    """Read and tokenise the data of a recipe with the tokenizer of its model."""
    if not model.origin.tokenizer:
        raise LaconicError(f"{recipe.model}: has no tokenizer; tokenizer.json should lie beside the weights")
    limit = model.encoder.longest_window
    if recipe.data.max_length > limit:
        raise LaconicError(f"recipe: data.max_length is {recipe.data.max_length}, but {recipe.model} ends at {limit}")
    tokens = Tokens.load(model.origin.tokenizer[0].parent)
    evaluation = span_evaluation(recipe.data, tokens, recipe.evaluation.max_answer_tokens)
    return Prepared(span_examples(recipe.data, tokens, recipe.seed), evaluation)

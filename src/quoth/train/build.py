"""From a recipe to what a loop needs: the model with head and tuning, the examples, the evaluation."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from quoth.answer.decode import Decoded
from quoth.errors import QuothError
from quoth.heads import build_head
from quoth.model import apply
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.tasks.classes import ClassEvaluation, class_data
from quoth.tasks.masking import MaskedFeed, Vocabulary
from quoth.tasks.pretrain import PretrainEvaluation, text_data
from quoth.tasks.span_data import Examples, Feed, span_examples
from quoth.tasks.span_evaluation import SpanEvaluation, span_evaluation
from quoth.train.fit import add_heads
from quoth.train.loop import seed_of, set_dropout
from quoth.train.recipe import Recipe
from quoth.tune import build_tuning
from quoth.windows.tokenizer import Tokens


@dataclass(frozen=True)
class Prepared:
    """The data of a run, tokenised.

    labels: how many logits a window has, None for spans and text; vocabulary: of text, from which words are masked
    """

    examples: Examples
    evaluation: SpanEvaluation | ClassEvaluation | PretrainEvaluation | None
    labels: int | None = None
    vocabulary: Vocabulary | None = None

    def feed(self, device: torch.device, seed: int) -> Feed | MaskedFeed:
        """Batches of the examples, on the device."""
        if self.vocabulary is not None:
            return MaskedFeed(self.examples, self.vocabulary, device, seed)
        return Feed(self.examples, device)

    def evaluate(self, model: Model, device: str, precision: str | None) -> tuple[Decoded | None, dict[str, Any]]:
        """The answers, if spans were asked for, and the scores."""
        if self.evaluation is None:
            raise QuothError("the recipe names no data to evaluate on")
        return self.evaluation(model, device, precision)

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
    if recipe.data.task == "pretrain":
        add_heads(model, recipe.seed, following=recipe.following)
    else:
        _put_head(model, recipe)
    if recipe.optimisation.dropout is not None:
        set_dropout(model, recipe.optimisation.dropout)
    model.windows = recipe.data.window_settings()
    return apply(model, tuning)


def _put_head(model: Model, recipe: Recipe) -> None:
    hidden = model.encoder.shape.hidden
    torch.manual_seed(seed_of(recipe.seed))
    head: Any = build_head(recipe.head, hidden, len(model.encoder.shape.layers))
    if model.head is None or model.head.to_json() != head.to_json():
        model.head = head
    check_task("head", head, recipe)
    if head.pooled and model.pooler is None:
        model.pooler = nn.Linear(hidden, hidden)


def check_task(where: str, head: Any, recipe: Recipe, labels: int | None = None) -> None:
    """Refuse a head for another task than the recipe's, or with another number of labels, where that is known."""
    task = recipe.data.task
    if task == "pretrain":  # a recipe lets no other head stand there
        return
    if (head.task == "span") != (task == "span"):
        found, wanted = ("spans", "classes") if head.task == "span" else ("classes", "spans")
        raise QuothError(f"recipe: {where} gives {found}, but data.task = {task!r} wants {wanted}")
    if labels is not None and head.to_json()["labels"] != labels:
        raise QuothError(f"recipe: {where} has {head.to_json()['labels']} label(s), but the data want {labels}")


def prepare(recipe: Recipe, model: Model) -> Prepared:
    """Read and tokenise the data of a recipe with the tokenizer of its model."""
    if not model.origin.tokenizer:
        raise QuothError(f"{recipe.model}: has no tokenizer; tokenizer.json should lie beside the weights")
    limit = model.encoder.longest_window
    if recipe.data.max_length > limit:
        raise QuothError(f"recipe: data.max_length is {recipe.data.max_length}, but {recipe.model} ends at {limit}")
    tokens = Tokens.load(model.origin.tokenizer[0].parent)
    if recipe.data.task == "pretrain":
        text = text_data(recipe.data, tokens, model.encoder.shape.vocab, recipe.seed)
        return Prepared(text.train, text.evaluation(), vocabulary=text.vocabulary)
    if recipe.data.task != "span":
        return _prepare_classes(recipe, tokens)
    evaluation = span_evaluation(recipe.data, tokens, recipe.evaluation.max_answer_tokens)
    return Prepared(span_examples(recipe.data, tokens, recipe.seed), evaluation)


def _prepare_classes(recipe: Recipe, tokens: Tokens) -> Prepared:
    data = recipe.data
    train = class_data(data.train, data, tokens, data.fraction, recipe.seed, data.negatives)
    evaluation = ClassEvaluation(class_data((data.evaluate,), data, tokens)) if data.evaluate else None
    if evaluation and evaluation.data.task != train.task:
        raise QuothError(f"recipe: data.train is {train.task}, but data.evaluate is {evaluation.data.task}")
    return Prepared(train.examples(), evaluation, train.classes)

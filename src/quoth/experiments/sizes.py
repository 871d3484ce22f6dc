"""The parameters of a run, all of them and the trainable ones, before it is trained: on the meta device, no weights.

Of a model folder the headers of its files say which tensors there are. Of a Hugging Face model whose weights are not on
this machine (a folder with config.json alone, or a hub id) the config says it; then the model is taken to have a pooler
if its family has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from quoth.encoder import Encoder
from quoth.encoder.families import family_of
from quoth.errors import QuothError
from quoth.files import read_object
from quoth.heads import build_head
from quoth.hub import find_description, has_weights
from quoth.model import Model, open_checkpoint
from quoth.model.checkpoint import Base
from quoth.model.loading import empty
from quoth.model.model import Origin
from quoth.model.tuned import apply, trainable
from quoth.tasks import task_of
from quoth.train import Recipe
from quoth.tune import build_tuning


@dataclass(frozen=True)
class Sizes:
    """Parameters of a run; heads: of each head on its frozen states."""

    trainable: int
    total: int
    heads: dict[str, int]


def sizes_of(recipe: Recipe) -> Sizes:
    """What metrics.json will say of `trainable_parameters` and `total_parameters`."""
    model = _empty(recipe.model)
    pooler = model.pooler is not None
    tuning = build_tuning(recipe.tuning)
    with _without_numbers():
        task_of(recipe.data).add_head(model, recipe.head, recipe.seed)
        apply(model, tuning)
        heads = {
            name: build_head(head, model.encoder.shape.hidden, len(model.encoder.shape.layers))
            for name, (head, _) in recipe.frozen.each().items()
        }
    model.base = model.base or Base(recipe.model, "", pooler)  # a pooler that the base has is not trained anew
    names = trainable(model, tuning)
    sizes = {name: value.numel() for name, value in model.named_parameters()}
    counts = {name: sum(value.numel() for _, value in head.named_parameters()) for name, head in heads.items()}
    return Sizes(sum(sizes[name] for name in names), sum(sizes.values()), counts)


def _empty(source: str) -> Model:
    """The model of a recipe on the meta device."""
    description = find_description(source)
    if has_weights(source) or description.name == "quoth.json":
        return empty(open_checkpoint(source))
    config = read_object(description)
    family = family_of(config.get("model_type"), str(description))
    try:
        shape, style = family.shape(config), family.style(config)
        with torch.device("meta"):
            pooler = any(ours.startswith("pooler") for ours, _ in family.rules)
            return Model(Encoder(shape, style), family=family.name, pooler=pooler, origin=Origin(source, config))
    except QuothError as error:
        raise QuothError(f"{description}: {error}") from None


@contextmanager
def _without_numbers() -> Iterator[None]:
    """New modules are on the meta device; the generator of random numbers is left as it was."""
    state = torch.get_rng_state()
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_rng_state(state)

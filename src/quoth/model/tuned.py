"""`apply`: train a model by a tuning method; and the sets of names that follow from it."""

from __future__ import annotations

from quoth.errors import QuothError
from quoth.model.base import find_base
from quoth.model.model import Model
from quoth.tune import Tuning, can_merge, inserted
from quoth.tune import merge as merge_encoder

POOLER = {"pooler.weight", "pooler.bias"}


def apply(model: Model, tuning: Tuning) -> Model:
    """Insert the tuning's modules, and make exactly what it trains trainable. Changes the model in place.

    Beside what the tuning names, the head is trained, and so is a pooler that the head reads and the base lacks. The
    base, the weights as they are now, is remembered, so that `quoth.model.save` may save the difference alone.
    Applying the tuning that a model has already continues with it: nothing is inserted, and the base stays.
    """
    if model.tuning != tuning:
        found = inserted(model.encoder)
        if found:
            raise QuothError(
                f"this model has {found} already, so {tuning.kind} cannot be applied to it; "
                f"{'merge them first, or ' if can_merge(model.encoder) else ''}load its base again"
            )
        weights = {name for name, _ in model.named_parameters() if not name.startswith("head.")}
        model.base = find_base(model) if weights - _named_by(tuning, model) else None
        tuning.install(model.encoder)
        model.tuning = tuning
    names = trainable(model, tuning)
    for name, value in model.named_parameters():
        value.requires_grad_(name in names)
    return model


def trained(model: Model) -> list[str]:
    """The parameters that are trained, by name."""
    return [name for name, value in model.named_parameters() if value.requires_grad]


def trainable(model: Model, tuning: Tuning) -> set[str]:
    """What a tuning trains: what it names, the head, and a pooler that the head reads and the base does not have."""
    names = _named_by(tuning, model) | {name for name, _ in model.named_parameters() if name.startswith("head.")}
    fresh = model.base is None or not model.base.pooler
    if fresh and model.head is not None and model.head.pooled and model.pooler is not None:
        names |= POOLER
    return names


def merge(model: Model) -> Model:
    """Fold LoRA into the weights: W + (α/r)·B·A. The model is changed in place and is a plain one afterwards.

    It has no base any more, and is saved whole.
    """
    merge_encoder(model.encoder)
    model.tuning = model.base = None
    return model


def _named_by(tuning: Tuning, model: Model) -> set[str]:
    """The parameters of encoder and pooler that a tuning names, by their names in the model."""
    names = {f"encoder.{name}" for name in tuning.trainable(model.encoder)}
    return names | POOLER if tuning.trains_pooler and model.pooler is not None else names

"""`apply`: make a model learn in a given way; and the sets of names that follow from it."""

from __future__ import annotations

from quoth.encoder.model import Model
from quoth.errors import QuothError
from quoth.tune.adapters import Adapter
from quoth.tune.base import find_base
from quoth.tune.lora import LoRALinear
from quoth.tune.tuning import Tuning


def apply(model: Model, tuning: Tuning) -> Model:
    """Put the tuning's modules into the model and let exactly what the tuning trains learn. Changes the model in place.

    Beside what the tuning names, the head learns, and so does a pooler that the head reads and the base lacks. The
    base, the weights as they are now, is remembered, so that `quoth.encoder.save` may save the difference alone.
    Applying the tuning that a model has already goes on with it: nothing is installed, and the base stays.
    """
    if model.tuning != tuning:
        found = installed(model)
        if found:
            raise QuothError(
                f"this model has {found} already, so {tuning.kind} cannot be applied to it; "
                f"{'merge them first, or ' if found == 'LoRA' else ''}load its base again"
            )
        weights = {name for name, _ in model.named_parameters() if not name.startswith("head.")}
        model.base = find_base(model) if weights - tuning.learns(model) else None
        tuning.install(model)
        model.tuning = tuning
    names = learned(model, tuning)
    for name, value in model.named_parameters():
        value.requires_grad_(name in names)
    return model


def trained(model: Model) -> list[str]:
    """The parameters that learn, by name."""
    return [name for name, value in model.named_parameters() if value.requires_grad]


def learned(model: Model, tuning: Tuning) -> set[str]:
    """What a tuning trains: what it names, the head, and a pooler that the head reads and the base does not have."""
    names = tuning.learns(model) | {name for name, _ in model.named_parameters() if name.startswith("head.")}
    fresh = model.base is None or not model.base.pooler
    if fresh and model.head is not None and model.head.pooled and model.pooler is not None:
        names |= {"pooler.weight", "pooler.bias"}
    return names


def installed(model: Model) -> str | None:
    """What stands between the encoder's own weights: "adapters", "LoRA" or nothing."""
    for module in model.encoder.modules():
        if isinstance(module, Adapter | LoRALinear):
            return "adapters" if isinstance(module, Adapter) else "LoRA"
    return None

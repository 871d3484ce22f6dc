"""`apply`: train a model by a tuning method; and its delta, which is saved alone and put back on its base.

    delta.safetensors = what was trained + the head + a pooler that the base does not have

The rest is the base's, which is known by the hash of its weights.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quoth.errors import QuothError
from quoth.hub import DELTA
from quoth.model.checkpoint import Base, Checkpoint, open_checkpoint, place
from quoth.model.model import Model
from quoth.model.weights import fp32, read_tensors, tensors_hash
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


def find_base(model: Model) -> Base | None:
    """The checkpoint that the model was loaded from, if its encoder still has those weights; else None.

    A model without a base (made afresh, changed since it was loaded, loaded in half precision from an fp32 file) has
    nothing that a delta could name, and is saved whole.
    """
    source = model.origin.source
    if not source or any(value.is_meta for value in model.parameters()):
        return None
    try:
        checkpoint = open_checkpoint(source)
        stored = read_tensors({name: t for name, t in checkpoint.tensors.items() if not name.startswith("head.")})
    except QuothError:  # gone, or damaged, since the model was loaded
        return None
    state = model.state_dict()
    same = {name: name in stored and torch.equal(fp32(state[name]), fp32(stored[name])) for name in state}
    encoder = {name for name in (*same, *stored) if name.startswith("encoder.")}
    if not all(same.get(name) for name in encoder):
        return None
    pooler = same.get("pooler.weight", False) and same["pooler.bias"]
    return Base(place(source), tensors_hash(stored), pooler)


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


def delta_names(model: Model) -> set[str]:
    """What the delta of a tuned model holds: all that the base cannot give back."""
    if model.tuning is None:
        raise QuothError("this model has a base but no tuning, so nothing says what was trained")
    own = ("head.",) if model.base is not None and model.base.pooler else ("head.", "pooler.")
    return trainable(model, model.tuning) | {name for name in model.state_dict() if name.startswith(own)}


def base_weights(delta: Checkpoint) -> dict[str, Tensor]:
    """The weights of a delta's base as stored, all but a head, known to be the ones that the delta was trained on."""
    source, base = delta.files.source, delta.base
    assert base is not None
    if delta.below is None:
        raise QuothError(
            f"{source}: its base {base.source} (sha256 {base.sha256[:12]}…) cannot be opened ({delta.trouble}); name "
            f"its new place by base= of load, or as base.source in {delta.files.description}"
        )
    stored = read_tensors({name: t for name, t in delta.below.tensors.items() if not name.startswith("head.")})
    found = tensors_hash(stored)
    if found != base.sha256:
        raise QuothError(
            f"{source}: was trained on a base with sha256 {base.sha256[:12]}…, but {base.source} has {found[:12]}…; "
            "give the right base by base= of load"
        )
    return stored


def check_delta(model: Model, checkpoint: Checkpoint) -> None:
    """Refuse a delta that holds less than was trained (the base would fill the gap unnoticed), or more."""
    wanted, found = delta_names(model), checkpoint.own.keys()
    for name in sorted(wanted - found):
        raise QuothError(f"{checkpoint.files.source}: tensor {name} was trained, but is missing from {DELTA}")
    for name in sorted(found - wanted):
        raise QuothError(f"{checkpoint.files.source}: tensor {name} is in {DELTA}, but its tuning does not train it")

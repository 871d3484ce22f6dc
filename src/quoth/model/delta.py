"""Deltas: what of a tuned model is saved, and how it is put back on its base, for `quoth.model.save` and `load`.

    delta.safetensors = what was trained + the head + a pooler that the base does not have

The rest is the base's, which is known by the hash of its weights.
"""

from __future__ import annotations

from torch import Tensor

from quoth.errors import QuothError
from quoth.hub import DELTA
from quoth.model.base import tensors_hash
from quoth.model.checkpoint import Checkpoint
from quoth.model.model import Model
from quoth.model.tuned import trainable
from quoth.model.weights import read_tensors


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

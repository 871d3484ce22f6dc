"""The base of a tuned model: which weights it stands on, and how they are known again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from quoth.errors import QuothError
from quoth.model.checkpoint import Base, open_checkpoint, place
from quoth.model.model import Model
from quoth.model.weights import read_tensors


def weights_hash(model: Model) -> str:
    """The sha256 of all weights but the head's; that of a file in half precision is that of its fp32 copy."""
    return tensors_hash({name: value for name, value in model.state_dict().items() if not name.startswith("head.")})


def tensors_hash(tensors: Mapping[str, Tensor]) -> str:
    """The sha256 over name, shape and fp32 little-endian bytes of each tensor, sorted by name."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {tuple(value.shape)}\n".encode())
        digest.update(_fp32(value).contiguous().numpy().astype("<f4", copy=False).reshape(-1).data)
    return digest.hexdigest()


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
    same = {name: name in stored and _equal(value, stored[name]) for name, value in model.state_dict().items()}
    encoder = {name for name in (*same, *stored) if name.startswith("encoder.")}
    if not all(same.get(name) for name in encoder):
        return None
    pooler = same.get("pooler.weight", False) and same["pooler.bias"]
    return Base(place(source), tensors_hash(stored), pooler)


def _equal(mine: Tensor, stored: Tensor) -> bool:
    return torch.equal(_fp32(mine), _fp32(stored))


def _fp32(value: Tensor) -> Tensor:
    return value.detach().to("cpu", torch.float32)

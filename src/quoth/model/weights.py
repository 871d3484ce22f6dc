"""Tensors from and to safetensors files, each checked to be of finite numbers; and the hash that they are known by."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from quoth.errors import QuothError
from quoth.model.checkpoint import Tensor as Stored
from quoth.model.checkpoint import read_bin
from quoth.model.model import Model

FLOATS = ("F64", "F32", "F16", "BF16")


def read_tensors(tensors: Mapping[str, Stored]) -> dict[str, Tensor]:
    """Read tensors as they are stored, under the given names, each found to be of finite numbers."""
    by_file = defaultdict(list)
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            raise QuothError(f"{tensor.name}: holds {tensor.dtype}, not floating-point numbers of {', '.join(FLOATS)}")
        by_file[tensor.file].append((name, tensor.name))
    weights = {}
    for file, names in by_file.items():
        if file.suffix == ".bin":
            stored = read_bin(file)
            weights.update({ours: stored[theirs] for ours, theirs in names})
            continue
        try:
            with safe_open(file, framework="pt") as opened:
                weights.update({ours: opened.get_tensor(theirs) for ours, theirs in names})
        except SafetensorError as error:
            raise QuothError(f"{file}: damaged ({error}); fetch it again") from None
    for name, value in weights.items():
        where = tensors[name]
        if not torch.isfinite(value).all():
            raise QuothError(f"{where.file}: tensor {where.name} holds NaN or infinite values; the file is damaged")
    return weights


def write_weights(path: Path, weights: dict[str, Tensor], shown: str | Path) -> None:
    """Write a safetensors file; if that fails (a full disk, say), say so of `shown`, the place the user knows."""
    try:
        save_file(weights, path, metadata={"format": "pt"})
    except SafetensorError as error:  # safetensors wraps what the system said
        raise QuothError(f"{shown}: could not be written ({str(error).strip()}); nothing was saved") from None


def weights_hash(model: Model) -> str:
    """The sha256 of all weights but the head's; that of a file in half precision is that of its fp32 copy."""
    return tensors_hash({name: value for name, value in model.state_dict().items() if not name.startswith("head.")})


def tensors_hash(tensors: Mapping[str, Tensor]) -> str:
    """The sha256 over name, shape and fp32 little-endian bytes of each tensor, sorted by name."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {tuple(value.shape)}\n".encode())
        digest.update(fp32(value).contiguous().numpy().astype("<f4", copy=False).reshape(-1).data)
    return digest.hexdigest()


def fp32(value: Tensor) -> Tensor:
    """A tensor's numbers on the host in single precision."""
    return value.detach().to("cpu", torch.float32)

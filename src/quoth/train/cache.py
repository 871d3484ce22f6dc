"""States of first tokens on disk: heads for classes then learn for many epochs from one pass of the encoder.

RUN/frozen/epoch-0.3/cache/states.bin    (rows, layers, h): a row a window, those of training, then of the evaluation
RUN/frozen/epoch-0.3/cache/cache.json    what they are the states of, and the file's sha256

The numbers are fp32, or the 16 bits of bf16, as the encoder gave them. Rows lie in the order in which they were
computed, longest window first, so that the file is written from front to back and hashed on the way.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quoth.encoder import Device
from quoth.errors import QuothError
from quoth.files import read_json, sha256_of, write_json
from quoth.folders import atomic_folder
from quoth.model import Model
from quoth.windows import Packed, Windows, by_length

PLACE, STATES, ABOUT = "cache", "states.bin", "cache.json"
TRAINING, EVALUATION = 0, 1  # parts of the rows
GB = 10**9


@dataclass(frozen=True)
class Plan:
    """What is to be cached: the first tokens of parts of windows, at some layers of an encoder."""

    parts: tuple[Windows, ...]
    layers: tuple[int, ...]
    hidden: int
    half: bool

    @property
    def rows(self) -> int:
        """How many windows there are."""
        return sum(map(len, self.parts))

    @property
    def bytes(self) -> int:
        """How large the file will be."""
        return self.rows * len(self.layers) * self.hidden * (2 if self.half else 4)

    def check(self, limit: float) -> None:
        """Refuse what is larger than `limit` GB."""
        if self.bytes > limit * GB:
            raise QuothError(
                f"recipe: frozen.cache_gb is {limit:g} GB, but the states of {self.rows:,} windows at "
                f"{len(self.layers)} layer(s) take {self.bytes / GB:.3g} GB; raise it, or set it to 0"
            )

    def identity(self, encoder: str) -> dict[str, Any]:
        """What a cache must have been made of to be this one's. encoder: the sha256 of its weights."""
        digest = hashlib.sha256()
        for windows in self.parts:
            for column in (windows.ids, windows.types, windows.starts):
                digest.update(column.tobytes())
        sizes = {"rows": self.rows, "hidden": self.hidden, "layers": list(self.layers)}
        return {"encoder": encoder, "data": digest.hexdigest(), "precision": "bf16" if self.half else "fp32", **sizes}


class Cache:
    """States of first tokens, memory-mapped. seconds: what it took to compute them."""

    def __init__(self, stage: Path, plan: Plan, device: torch.device) -> None:
        folder = stage / PLACE
        shape = (plan.rows, len(plan.layers), plan.hidden)
        self._states = np.memmap(folder / STATES, np.int16 if plan.half else np.float32, "r", shape=shape)
        self._rows = [_rows(windows) for windows in plan.parts]
        self._firsts = np.cumsum([0, *map(len, plan.parts)])
        self._layers = plan.layers
        self._device = device
        self.bytes = plan.bytes
        self.seconds: float = read_json(folder / ABOUT)["seconds"]

    def batch(self, part: int, indices: np.ndarray, layers: Sequence[int]) -> tuple[Packed[Tensor], Tensor]:
        """The states (layers, n, h) of some windows of a part, and a batch of as many windows of one token each."""
        found = self._states[self._firsts[part] + self._rows[part][indices]]  # a copy, (n, layers, h)
        if tuple(layers) != self._layers:
            found = found[:, [self._layers.index(layer) for layer in layers]]
        states = torch.from_numpy(np.asarray(found)).to(self._device, non_blocking=True)
        states = states.view(torch.bfloat16) if found.dtype == np.int16 else states
        return self._one_token_each(len(indices)), states.transpose(0, 1)

    def _one_token_each(self, count: int) -> Packed[Tensor]:
        """What heads for classes read of a batch: that window i begins at row i of the states."""
        starts = torch.arange(count + 1, dtype=torch.int32, device=self._device)
        none = torch.zeros(count, dtype=torch.int32, device=self._device)
        return Packed(none, none, none, starts, (1,) * count)


def fill_cache(
    stage: Path,
    plan: Plan,
    encoder: str,
    model: Model,
    device: Device,
    check_stop: Callable[[], None],
    tell: Callable[[str], None] | None = None,
) -> None:
    """See to it that the cache of a stage is there and right: the one that is found, or one that is computed now.

    encoder: the sha256 of its weights; check_stop(): called before every batch, and may raise
    """
    folder = stage / PLACE
    wrong = _wrong(folder, plan.identity(encoder))
    if wrong is None:
        return
    if tell:
        why = f"{folder}: {wrong}; " if wrong else ""
        tell(f"{why}computing the states of {plan.rows:,} windows once, {plan.bytes / GB:.3g} GB")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with atomic_folder(folder) as part:
            about = _write(part / STATES, plan, model, device, check_stop)
            write_json(part / ABOUT, {**plan.identity(encoder), **about})
    except OSError as error:
        size = f"{plan.bytes / GB:.3g} GB"
        raise QuothError(f"{folder}: could not be written ({error.strerror}); make room for {size}") from None


def remove_cache(stage: Path) -> None:
    """Remove the cache: the stage has ended."""
    shutil.rmtree(stage / PLACE, ignore_errors=True)


def _wrong(folder: Path, identity: dict[str, Any]) -> str | None:
    """What is wrong with a cache, "" if there is none at all, None if it is right."""
    if not folder.exists():
        return ""
    try:
        about = read_json(folder / ABOUT)
        float(about["seconds"])
        changed = [key for key, value in identity.items() if about[key] != value]
        if changed:
            return f"the {changed[0]} has changed since it was written"
        return None if sha256_of(folder / STATES) == about["sha256"] else f"{STATES} is damaged"
    except (QuothError, OSError, KeyError, TypeError, ValueError, OverflowError):
        return "is damaged"


@torch.no_grad()
def _write(path: Path, plan: Plan, model: Model, device: Device, check_stop: Callable[[], None]) -> dict[str, Any]:
    begin = time.perf_counter()
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for windows in plan.parts:
            for indices in by_length(windows.lengths, device.token_budget(windows.lengths)):
                check_stop()
                packed = windows.packed(indices).to(device.place)
                with device.autocast():
                    data = _first(model, packed, plan.layers)
                digest.update(data)
                file.write(data)
    return {"sha256": digest.hexdigest(), "seconds": time.perf_counter() - begin}


def _first(model: Model, packed: Packed[Tensor], layers: Sequence[int]) -> bytes:
    """The bytes of (n, layers, h)."""
    first = packed.starts[:-1].long()
    found = torch.stack([state[first] for state in model.encoder(packed, layers)], 1).cpu()
    bits = found.view(torch.int16) if found.dtype == torch.bfloat16 else found  # numpy knows no bf16
    return bits.numpy().tobytes()


def _rows(windows: Windows) -> np.ndarray:
    """The row of each window: where `by_length` puts it, whatever the budget."""
    rows = np.empty(len(windows), np.int64)
    rows[np.argsort(-windows.lengths.astype(np.int64), kind="stable")] = np.arange(len(windows))
    return rows

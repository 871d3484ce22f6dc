"""The logits of teachers: computed once before training, kept, and given to a student beside its batches.

FOLDER/teacher-HASH.safetensors   of one teacher: `logits`, float16 (2, T), the log-probabilities of start and end

T are the tokens of all training windows of the student (`quoth.windows.alignment`). A file takes 4 · T bytes. Its
metadata states what the logits depend on (the teacher's weights and tokenizer, the texts and windows, the precision)
and the sha256 of the numbers; HASH is a part of the hash of the former. So a run that was interrupted, and another run
on the same data, find what they need, and a file that is damaged is computed again. The folder is RUN/teacher-logits,
or one that the recipe names for many runs.

Several teachers are averaged: p = Σ pᵢ / n, the mean of probabilities. In a mean of logits one teacher that gives a
token nothing would rule it out.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor

from quoth.encoder import Device
from quoth.errors import QuothError
from quoth.files import atomic_file
from quoth.model import Model, load
from quoth.model.weights import tensors_hash
from quoth.tasks import Task
from quoth.tasks.examples import Examples, Feed, Request
from quoth.tasks.task import describe_head
from quoth.windows import Packed, Tokenizer, Windows
from quoth.windows.packed import Taught

FORMAT = "1"
Tell = Callable[[str], Any]
GB = 10**9
PIECE = 1 << 22  # tokens that are averaged at a time
PAUSE = 5.0  # seconds between two lines of progress


class TaughtFeed(Feed):
    """Batches of examples with the logits of their teacher, which lie on the device as the tokens do."""

    def __init__(self, examples: Examples, device: torch.device, logits: np.ndarray) -> None:
        """logits: float16 (2, T)."""
        super().__init__(examples, device)
        self._logits = torch.from_numpy(logits).to(device)

    def gather(self, request: Request) -> tuple[Packed[Tensor], Tensor]:
        """The windows of a request as one packed batch, `Taught`, and their labels."""
        packed, labels, places = self._gather(request)
        return Taught(**vars(packed), teacher=self._logits.index_select(1, places)), labels


@dataclass(frozen=True)
class Kept:
    """One teacher, and where its logits lie or are to lie.

    windows: what it reads, where the logits are not there yet; wrong: what is wrong with the file that is there
    """

    source: str
    path: Path
    identity: dict[str, str]
    windows: Windows | None
    wrong: str = ""


@dataclass(frozen=True)
class Teachers:
    """All teachers of a run, checked. device: what they are computed on, and in which precision."""

    kept: tuple[Kept, ...]
    task: Task
    device: Device

    @property
    def identity(self) -> str:
        """What must not change while a run is interrupted."""
        return hashlib.sha256(json.dumps([one.identity for one in self.kept]).encode()).hexdigest()

    def feed(self, accelerator: Accelerator, check_stop: Callable[[], None], tell: Tell) -> TaughtFeed:
        """Compute what is not there yet, in the main process, and make batches with the mean of all teachers."""
        if accelerator.is_main_process:
            for one in self.kept:
                if one.windows is not None:
                    self._compute(one, one.windows, check_stop, tell)
        accelerator.wait_for_everyone()
        logits = average([_read(one.path, one.identity, self._shape) for one in self.kept])
        return TaughtFeed(self.task.examples, accelerator.device, logits)

    @property
    def _shape(self) -> tuple[int, int]:
        return 2, len(self.task.examples.windows.ids)

    def _compute(self, one: Kept, windows: Windows, check_stop: Callable[[], None], tell: Tell) -> None:
        why = f"{one.path}: {one.wrong}; " if one.wrong else ""
        tell(f"{why}computing the logits of {one.source} for {len(windows):,} windows once")
        begin = told = time.perf_counter()

        def progress(done: int, total: int) -> None:
            nonlocal told
            check_stop()
            now = time.perf_counter()
            if now - told >= PAUSE and done:
                told, left = now, (now - begin) * (total - done) / done
                tell(f"logits of {one.source}: {done / total:.0%}, about {left:,.0f} s left")

        check_stop()
        logits, aligned = self.task.ask_teacher(load(one.source), windows, self.device, progress)
        if np.isnan(logits).any():
            raise QuothError(f"{one.source}: gives logits that are not finite; it cannot be a teacher")
        facts = {"identity": json.dumps(one.identity), "sha256": hashlib.sha256(logits.data).hexdigest()}
        try:
            with atomic_file(one.path) as part:
                save_file({"logits": logits}, part, metadata=facts)
        except (OSError, SafetensorError) as error:
            raise QuothError(f"{one.path}: could not be written ({error}); make room for it") from None
        share = aligned / max(1, len(windows))
        how = "" if aligned == len(windows) else "; the others are compared over characters"
        seconds = time.perf_counter() - begin
        tell(f"{one.source}: its tokens are the student's in {share:.1%} of the windows{how} ({seconds:.0f} s)")


def check_teachers(sources: Sequence[str], key: str, student: Model, max_length: int) -> None:
    """Refuse teachers that cannot be read, whose head gives something else, or whose windows are too short.

    key: of the recipe, such as "teachers"; max_length: of the student's windows
    """
    for source in sources:
        try:
            teacher = load(source)
        except QuothError as error:
            raise QuothError(f"recipe: {key}: {error}") from None
        check_teacher(teacher, source, key, student, max_length)


def check_teacher(teacher: Model, source: str, key: str, student: Model, max_length: int) -> None:
    """The same of one that is loaded, be it trained already or not."""
    mine, theirs = describe_head(student.head), describe_head(teacher.head)
    if mine != theirs:
        name = student.origin.source or "the student"
        raise QuothError(
            f"recipe: {key} = {source!r} gives {theirs}, but {name} gives {mine}; "
            "name a teacher with a head for the same task"
        )
    if not teacher.origin.tokenizer:
        raise QuothError(f"recipe: {key} = {source!r} has no tokenizer; tokenizer.json should lie beside the weights")
    limit = teacher.encoder.longest_window
    if max_length > limit:
        raise QuothError(f"recipe: data.max_length is {max_length}, but {key} = {source!r} ends at {limit}")


def find_teachers(sources: Sequence[str], key: str, task: Task, folder: Path, limit: float, device: Device) -> Teachers:
    """Look for the logits of each teacher in a folder; for those that are not there, make what the teacher reads.

    key: of the recipe; limit: GB that all of them may take
    """
    tokens = len(task.examples.windows.ids)
    size = len(sources) * 4 * tokens
    if size > limit * GB:
        raise QuothError(
            f"recipe: distillation.cache_gb is {limit:g} GB, but the logits of {len(sources)} teacher(s) for "
            f"{tokens:,} tokens take {size / GB:.3g} GB; raise it, or train on less data"
        )
    data = task.teaching_identity()
    kept = []
    for source in sources:
        teacher = load(source)
        tokenizer = Tokenizer.load(teacher.origin.tokenizer[0].parent)
        identity = {
            "format": FORMAT,
            "teacher": tensors_hash(teacher.state_dict()),
            "tokenizer": tokenizer.identity,
            "data": data,
            "precision": device.precision,
        }
        path = folder / f"teacher-{hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]}.safetensors"
        wrong = _wrong(path, identity, (2, tokens))
        windows = None
        if wrong is not None:
            windows = task.teacher_windows(tokenizer)
            check_lengths(windows, teacher, source, key)
        kept.append(Kept(source, path, identity, windows, wrong or ""))
    return Teachers(tuple(kept), task, device)


def average(logits: Sequence[np.ndarray]) -> np.ndarray:
    """The log of the mean of probabilities, float16 (2, T), from log-probabilities of several teachers."""
    if len(logits) == 1:
        return logits[0]
    found = np.empty_like(logits[0])
    for low in range(0, found.shape[1], PIECE):
        here = slice(low, low + PIECE)
        stacked = np.stack([one[:, here] for one in logits]).astype(np.float32)
        top = np.maximum(stacked.max(0), np.finfo(np.float16).min)  # where all are −inf, it stays so
        with np.errstate(divide="ignore"):
            found[:, here] = np.log(np.exp(stacked - top).mean(0)) + top
    return found


def check_lengths(windows: Windows, teacher: Model, source: str, key: str) -> None:
    """Refuse a teacher that needs more tokens for a window than it can read. windows: of `Task.teacher_windows`."""
    longest, limit = int(windows.lengths.max(initial=0)), teacher.encoder.longest_window
    if longest > limit:
        raise QuothError(
            f"recipe: {key} = {source!r} needs {longest} tokens of its own for a window, but ends at {limit}; "
            "lower data.max_length"
        )


def _wrong(path: Path, identity: dict[str, str], shape: tuple[int, int]) -> str | None:
    """What is wrong with a file of logits, "" if there is none, None if it is right."""
    if not path.exists():
        return ""
    try:
        _read(path, identity, shape)
    except QuothError as error:
        return str(error).removeprefix(f"{path}: ")
    return None


def _read(path: Path, identity: dict[str, str], shape: tuple[int, int]) -> np.ndarray:
    """The logits in a file, float16 (2, T), found to be these ones and whole."""
    try:
        with safe_open(path, framework="np") as file:
            facts = file.metadata() or {}
            logits: np.ndarray = file.get_tensor("logits")
    except (SafetensorError, OSError, KeyError) as error:
        raise QuothError(f"{path}: is damaged ({str(error).strip()})") from None
    if facts.get("identity") != json.dumps(identity) or logits.shape != shape or logits.dtype != np.float16:
        raise QuothError(f"{path}: holds other logits")
    if hashlib.sha256(np.ascontiguousarray(logits).data).hexdigest() != facts.get("sha256"):
        raise QuothError(f"{path}: is damaged")
    return logits

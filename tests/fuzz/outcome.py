"""Run one case, and judge what came of it: a result or one line that names the culprit; all else is a finding."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from huggingface_hub import constants

from fuzz.case import Case, Finding, Target
from quoth.errors import QuothError
from quoth.folders import WRITTEN

GROWTH = 512 << 20  # bytes that one case may add to the peak of memory; cases are small and QUOTH_MAX_BYTES is 8 MiB
OUTPUTS = ("--out", "--to", "--nbest", "--na-probs", "--plot", "--plots")
ENVIRONMENT = {
    "QUOTH_MAX_BYTES": str(8 << 20),
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "100",
}


class HangError(BaseException):
    """A case takes too long. Not an `Exception`, so that no `except` of the code under test takes it."""


class NetworkError(BaseException):
    """A case tried to reach the network."""


class WrongError(Exception):
    """What a target found wrong by itself, such as a traceback on standard error: what, and more of it."""


class Scratch:
    """A folder for one case at a time: its `files`, and `case.json`, should the process not survive it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.files = place / "files"
        self.record = place / "case.json"
        self._there: dict[str, bytes] = {}
        place.mkdir(parents=True, exist_ok=True)

    def fill(self, target: Target, case: Case) -> bool:
        """Write a case; False if this file system cannot hold it. Files that are there already stay."""
        if self._there.keys() != case.files.keys():
            shutil.rmtree(self.files, ignore_errors=True)
            self.files.mkdir()
            self._there = {}
        self.record.write_text(case.to_json(target.name, files=False))
        new = {name: data for name, data in case.files.items() if self._there.get(name) != data}
        self._there = {}
        try:
            Case(new).write(self.files)
        except (OSError, ValueError):
            return False
        return True

    def unchanged(self, case: Case) -> None:
        """The files are still those of the case, so that the next one need not write them again."""
        self._there = case.files

    def left(self) -> tuple[str, Case]:
        """The case that lies here, of a process that did not survive it."""
        target, case = Case.from_json(self.record.read_text())
        files = {path.relative_to(self.files).as_posix(): path for path in self.files.rglob("*") if path.is_file()}
        return target, Case({name: path.read_bytes() for name, path in files.items()}, case.arguments, case.stdin)


def judge(target: Target, case: Case, scratch: Scratch) -> Finding | None:
    """Run a case. None if its outcome is one that is promised."""
    if not scratch.fill(target, case):
        return None
    before, peak = snapshot(scratch.files), _peak()
    here = Path.cwd()
    os.chdir(scratch.files)
    wrong: tuple[str, str] | None = None
    try:
        with time_limit(target.seconds), alone(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.run(scratch.files, case)
    except QuothError as error:
        wrong = wrong_message(str(error), target, case, scratch.files)
    except WrongError as error:
        wrong = str(error.args[0]), str(error)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        wrong = where(error), "".join(traceback.format_exception(error))[-4000:]
    finally:
        os.chdir(here)
    grown = _peak() - peak
    if wrong is None and grown > GROWTH:
        wrong = "memory", f"the peak of memory grew by {grown >> 20} MiB"
    after = snapshot(scratch.files)
    if after == before:
        scratch.unchanged(case)
    elif wrong is None and (changed := changes(before, after, (*target.allowed, *places(case)))):
        wrong = "changed a file", ", ".join(changed[:5])
    return Finding(target.name, *wrong, case) if wrong else None


def wrong_message(message: str, target: Target, case: Case, folder: Path) -> tuple[str, str] | None:
    """What is wrong with the message of a `QuothError`: it is one line that names a file, a key or an argument."""
    if len(message.splitlines()) != 1:
        return "message of several lines", repr(message)
    if len(message) > 4000:
        return "message without end", message[:1000]
    given = (part for argument in case.arguments for part in (argument[:20], repr(argument)[1:20]) if part)
    names = (str(folder), *case.files, *(name.split("/")[-1] for name in case.files), *given, *target.words)
    if not any(name in message for name in names):
        return "message that names no culprit", message
    return None


def where(error: BaseException) -> str:
    """The kind of an error and the last line of Quoth that it came through: the same cause has the same signature."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/quoth/" in frame.filename] or frames
    if not ours:
        return type(error).__name__
    last = ours[-1]
    return f"{type(error).__name__} in {last.filename.rpartition('/quoth/')[2]}:{last.lineno} ({last.name})"


def snapshot(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Size, time of change and number of everything below a folder."""
    found: dict[str, tuple[int, int, int]] = {}
    for root, _, names in os.walk(folder):
        found[f"{root[len(str(folder)) + 1 :]}/"] = (0, 0, 0)
        for name in names:
            path = os.path.join(root, name)  # noqa: PTH118, since this runs for every case
            facts = os.lstat(path)
            found[path[len(str(folder)) + 1 :]] = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
    return found


def changes(before: dict[str, Any], after: dict[str, Any], allowed: tuple[str, ...]) -> list[str]:
    """The entries that are there, gone or other than before, but for those that are allowed and what is below them."""
    both = sorted(set(before) | set(after))
    changed = [name for name in both if before.get(name) != after.get(name) and name != "/"]
    return [name for name in changed if not any(_may_change(name, place, before) for place in allowed)]


def _may_change(name: str, place: str, before: dict[str, Any]) -> bool:
    """In a place that may be written to, a file that was there before is replaced only if Quoth writes such files."""
    ours = name not in before or name.rpartition("/")[2] in ("", *WRITTEN) or place.startswith("out")
    return is_below(name, place) and (ours or name == place)


def places(case: Case) -> tuple[str, ...]:
    """The places that the arguments of a verb name to be written to."""
    return tuple(after for flag, after in pairwise(case.arguments) if flag in OUTPUTS and after)


def is_below(name: str, place: str) -> bool:
    """Whether an entry is a place, lies in it, or is a folder on the way to it."""
    name, place = name.rstrip("/"), os.path.normpath(place)
    return name == place or name.startswith(f"{place}/") or place.startswith(f"{name}/") or place == "."


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `HangError` in a block that takes longer. Native code is not stopped; the parent process ends that."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise HangError(f"more than {seconds:g} seconds")

    old = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


@contextmanager
def alone() -> Iterator[None]:
    """The environment of a case. Nothing may be connected to, but for sockets of this machine's own."""
    real, kept, offline = socket.socket.connect, dict(os.environ), constants.HF_HUB_OFFLINE

    def refuse(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:
            raise NetworkError(f"connects to {address!r}")
        real(self, address)

    socket.socket.connect = refuse  # type: ignore[assignment, method-assign]
    os.environ.update(ENVIRONMENT)
    constants.HF_HUB_OFFLINE = True  # what the variable says is read once, when the library is imported
    try:
        yield
    finally:
        socket.socket.connect = real  # type: ignore[method-assign]
        constants.HF_HUB_OFFLINE = offline
        for name in ENVIRONMENT:
            os.environ.pop(name)
        os.environ.update({name: value for name, value in kept.items() if name in ENVIRONMENT})


def _peak() -> int:
    """The most memory that this process has had, in bytes (Linux counts it in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

"""Limits of what an untrusted file can make a command do: bytes that are read, levels of nesting, seconds of waiting.

A file may be endless (/dev/zero), inflate (.gz), be a pipe that nobody is at the other end of, or hold thousands of
lists inside each other. Each of these is one line here, and never a full memory, a traceback or a wait without end.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from quoth.errors import QuothError

LIMIT = "QUOTH_MAX_BYTES"
BLOCK = 1 << 20
LEVELS = 100  # of lists and tables inside each other; nothing that Quoth reads has more than ten
WAIT = 10.0  # seconds for somebody at the other end of a named pipe
UNNAMED = ("/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/proc")

Given = TypeVar("Given")


def read_bounded(file: BinaryIO, name: str, most: int | None = None) -> bytes:
    """All bytes of a file, unless there are more than the limit: a small .gz may hold more than the memory does.

    most: a limit that no user needs to change
    """
    limit = min(byte_limit(), most) if most else byte_limit()
    data = bytearray()
    while block := file.read(BLOCK):
        data += block
        if len(data) > limit:
            hint = "" if limit == most else f"; set {LIMIT}=… to read more"
            raise QuothError(f"{name}: holds more than {limit:,} bytes{hint}")
    return bytes(data)


def byte_limit() -> int:
    """The most bytes that are read of one file, unzipped: 1 GiB, or what QUOTH_MAX_BYTES says."""
    given = os.environ.get(LIMIT, "")
    if not given:
        return 1 << 30
    if not (given.isascii() and given.isdigit() and int(given[:18])):
        raise QuothError(f"{LIMIT}={given!r}: give a whole number of bytes, above 0")
    return int(given[:18])


def nested_deeply(value: Any) -> bool:
    """Whether lists and tables lie inside each other in more than `LEVELS` levels.

    Python reads nearly a thousand; whatever then copies or shows such a value runs out of its stack.
    """
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(LEVELS):
        if not level:
            return False
        inside = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [inner for values in inside for inner in values if isinstance(inner, dict | list)]
    return bool(level)


def within(seconds: float, call: Callable[[], Given], late: str) -> Given:
    """What `call` gives or raises; a `QuothError` that says `late` if it takes longer.

    It runs in a thread of its own, since a native library, or the system, cannot be interrupted. One that is late is
    left behind; it ends with the process.
    """
    done, left = threading.Event(), threading.Event()
    given: list[Given] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            result = call()
            if not left.is_set():  # else nobody wants it, and a file is closed
                given.append(result)
        except BaseException as error:  # to be raised where it is waited for
            raised.append(error)
        finally:
            done.set()

    threading.Thread(target=work, daemon=True).start()
    if not done.wait(seconds):
        left.set()
        raise QuothError(late)
    if raised:
        raise raised[0]
    return given[0]


def open_bytes(path: str | Path, mode: str = "rb") -> BinaryIO:
    """`open` in mode "rb" or "wb". At a named pipe it waits `WAIT` seconds for somebody at the other end.

    Once they are there, the pipe is read or written as slowly as they like. A pipe without a name, such as that of
    `<(command)`, has had somebody from the beginning.
    """
    if not _is_named_pipe(path):
        return _open(path, mode)
    what = "writes to" if mode == "rb" else "reads from"
    try:
        late = f"{path}: is a pipe that nobody {what}; start the other command first"
        return within(WAIT, lambda: _open(path, mode), late)
    except QuothError:
        other = os.O_WRONLY if mode == "rb" else os.O_RDONLY
        with suppress(OSError):  # come to the other end for a moment, so that the thread that waits there ends
            os.close(os.open(path, other | os.O_NONBLOCK))
        raise


def _open(path: str | Path, mode: str) -> BinaryIO:
    return Path(path).open(mode)  # type: ignore[return-value]


def _is_named_pipe(path: str | Path) -> bool:
    try:
        mode = Path(path).stat().st_mode
    except OSError:  # whoever opens it says why
        return False
    return stat.S_ISFIFO(mode) and not any(Path(path).is_relative_to(place) for place in UNNAMED)

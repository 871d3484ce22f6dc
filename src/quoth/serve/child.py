"""`Child`: a process that answers messages, and what is said if it ends.

The model runs in a process of its own, and so does all that reads files: a crash in a native library, a file that
takes too much memory or time, or a kill ends that process and not the server, which starts another one.

Children end when the server does, however it ends: they read the end of the pipe. They ignore SIGTERM and SIGINT, which
a terminal or systemd sends to all processes at once: the server finishes what it accepted, and needs them for it.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from quoth.errors import QuothError

Header = dict[str, Any]
_SPAWN = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang


class ChildEndedError(QuothError):
    """The process ended, or was ended since it took too long."""


def join_message(header: Header, data: bytes = b"") -> bytes:
    """A message: the length of a JSON header (4 bytes), the header, bytes."""
    start = json.dumps(header).encode()
    return b"".join([len(start).to_bytes(4, "little"), start, data])


def split_message(message: bytes) -> tuple[Header, bytes]:
    """The header and the bytes of a message."""
    past = 4 + int.from_bytes(message[:4], "little")
    return json.loads(message[4:past]), message[past:]


class Child:
    """A running process. `target(connection, *given)` is what it does; the first message that it sends is `facts`.

    A header with the key "error" instead is a `QuothError` with that line.
    """

    def __init__(self, target: Callable[..., None], *given: Any) -> None:
        self._connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_run, args=(target, theirs, *given), daemon=True)
        self._sending = threading.Lock()
        self._process.start()
        theirs.close()
        try:
            self.facts = split_message(self.receive())[0]
        except ChildEndedError:
            self.close()
            raise
        if "error" in self.facts:
            self.close()
            raise QuothError(self.facts["error"])

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid or 0

    def send(self, message: bytes) -> None:
        """Send a message; nothing happens if the process has ended: `receive` tells it."""
        with self._sending, suppress(OSError, ValueError):
            self._connection.send_bytes(message)

    def receive(self, seconds: float | None = None) -> bytes:
        """The next message. `TimeoutError` if none comes in time, `ChildEndedError` if none will."""
        try:
            if seconds is not None and not self._connection.poll(seconds):
                raise TimeoutError
            return self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise ChildEndedError("a worker process ended") from None

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    def kill(self) -> None:
        """End it now."""
        self._process.kill()

    def close(self, seconds: float = 2.0) -> None:
        """Let it end by itself, or end it."""
        with self._sending:
            self._connection.close()
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


class Caller:
    """A child that answers one call after the other. One that ends is replaced when it is next called."""

    def __init__(self, target: Callable[..., None], *given: Any, replaced: Callable[[], None] = lambda: None) -> None:
        self._make = lambda: Child(target, *given)
        self._child: Child | None = None
        self._lock = threading.Lock()
        self._replaced = replaced

    @property
    def pid(self) -> int:
        """The number of the process; 0 if none runs."""
        return self._child.pid if self._child else 0

    def start(self) -> None:
        """Start the process, so that the first call need not wait for it."""
        with self._lock:
            if self._child is None:
                self._child = self._make()

    def call(self, header: Header, data: bytes = b"", seconds: float | None = None) -> tuple[Header, bytes]:
        """What the child answers. Its errors are `QuothError`s; if it ends or is late, `ChildEndedError`."""
        with self._lock:
            if self._child is not None and not self._child.alive():  # it ended while nobody called
                self._drop(self._child)
            if self._child is None:
                self._child = self._make()
            try:
                self._child.send(join_message(header, data))
                found, payload = split_message(self._child.receive(seconds))
            except (ChildEndedError, TimeoutError):
                self._drop(self._child)
                raise ChildEndedError("a worker process ended, or took too long") from None
        if "error" in found:
            raise QuothError(found["error"])
        return found, payload

    def _drop(self, child: Child) -> None:
        child.kill()
        child.close()
        self._child = None
        self._replaced()

    def close(self) -> None:
        """End the process, if it runs."""
        with self._lock:
            if self._child is not None:
                self._child.close()
                self._child = None

    def kill(self) -> None:
        """End the process in the middle of a call."""
        child = self._child
        if child is not None:
            child.kill()


def answer_calls(connection: Connection, answer: Callable[[Header, bytes], tuple[Header, bytes]]) -> None:
    """The loop of a child that is called: until the server closes the pipe."""
    connection.send_bytes(join_message({}))
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            found = answer(*split_message(message))
        except QuothError as error:
            found = {"error": str(error)}, b""
        except (MemoryError, RecursionError):
            found = {"error": "that is too large or too deeply nested"}, b""
        with suppress(OSError):
            connection.send_bytes(join_message(*found))


def _run(target: Callable[..., None], connection: Connection, *given: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with suppress(KeyboardInterrupt, BrokenPipeError):
        target(connection, *given)

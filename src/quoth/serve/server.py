"""`serve`: the server from start to end.

SIGTERM and Ctrl-C: `/ready` says no, responses close their connections, and after `drain` seconds the port is closed;
all requests that were accepted are answered, then the process ends with code 0. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from quoth.serve.app import make_app
from quoth.serve.guard import Guard
from quoth.serve.service import Service

LOG = logging.getLogger("quoth.serve")
GRACE = 5.0  # seconds more than a request has, before what is left is given up
READ = 0.2  # seconds after the port is closed, for requests that were sent before


def serve(service: Service, sock: socket.socket, started: Callable[[], None]) -> None:
    """Answer requests at a bound socket until a signal comes. `started` is called when questions are answered."""
    guard = Guard(make_app(service), service)
    settings = service.settings
    config = uvicorn.Config(
        guard,
        http=_protocol(settings.head_timeout),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=settings.connections,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(settings.timeout + GRACE),
        backlog=2048,
    )
    server = _Server(config, guard, service)
    failed: list[BaseException] = []

    def load() -> None:
        try:
            service.start()
            started()
        except BaseException as error:  # it is raised below, by the thread that waits
            failed.append(error)
            server.should_exit = True

    loader = threading.Thread(target=load, name="quoth-load", daemon=True)
    loader.start()
    server.run(sockets=[sock])
    if not service.ready:
        service.give_up()
        loader.join(GRACE)
        if loader.is_alive():  # a model is being loaded; its process ends with this one
            os._exit(0)
    service.stop()
    if failed and not server.told:
        raise failed[0]


class _Server(uvicorn.Server):
    """A server that stops listening a moment after it says so, and answers all that was sent before."""

    def __init__(self, config: uvicorn.Config, guard: Guard, service: Service) -> None:
        super().__init__(config)
        self._guard, self._service = guard, service
        self._end = 0.0

    @property
    def told(self) -> bool:
        """Whether a signal came."""
        return self._end > 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins the end, the second one is the end."""
        if self._end:
            os._exit(1)
        self._end = time.monotonic() + self._service.settings.drain
        self._guard.stopping = self._service.leaving = True

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if self._end and time.monotonic() >= self._end:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, read what was sent before, then wait for what was accepted."""
        loop = asyncio.get_running_loop()
        rest = [one for sock in sockets or () for one in _waiting(sock)]
        for server in self.servers:
            server.close()  # at once: the system ends connections that come between the two
        for one in rest:
            await loop.connect_accepted_socket(self._connection, one)
        await asyncio.sleep(READ)
        await super().shutdown(sockets)

    def _connection(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def capture_signals(self) -> Any:
        """As uvicorn's, but a signal that was heeded is not raised again: the process ends with code 0."""
        return _Signals(self)


def _waiting(sock: socket.socket) -> list[socket.socket]:
    """Connections that the system has made and nobody has taken yet."""
    found: list[socket.socket] = []
    while True:
        try:
            one = sock.accept()[0]
        except OSError:  # there is none
            return found
        one.setblocking(False)
        found.append(one)


class _Signals:
    """The handlers of the server, while it runs."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._server.handle_exit)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _protocol(seconds: float) -> type[H11Protocol]:
    """HTTP/1.1 as uvicorn has it, with a limit of time for the head of a request."""

    class Protocol(H11Protocol):
        late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.late = self.loop.call_later(seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            waits = self.conn.their_state is h11.IDLE
            if self.late is None and waits:
                self.late = self.loop.call_later(seconds, self.transport.close)
            elif not waits:
                self._in_time()

        def connection_lost(self, exc: Exception | None) -> None:
            self._in_time()
            super().connection_lost(exc)

        def _in_time(self) -> None:
            if self.late is not None:
                self.late.cancel()
                self.late = None

    return Protocol


def log_to_stderr() -> None:
    """Messages of the server, a line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("quoth: %(message)s"))
    for logger, level in ((LOG, logging.INFO), (logging.getLogger("uvicorn"), logging.ERROR)):
        logger.handlers = [handler]  # of uvicorn only errors: a client that sends no HTTP is none
        logger.setLevel(level)
        logger.propagate = False

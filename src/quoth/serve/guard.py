"""`Guard`: what every request passes before the routes see it, and every response after them.

- the name of the host and, in a browser, the site that a request comes from; the token, compared in constant time
- the body: read whole, within its limit of bytes and of seconds, so that the routes never wait for a client
- headers of every response: no scripts but our own, no frames, no guessing of types, nothing kept in caches
- the end: connections are closed after their response while the server stops
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from quoth.serve.problem import Problem
from quoth.serve.service import Service

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LOG = logging.getLogger("quoth.serve")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
OPEN = ("/", "/health", "/ready", "/favicon.ico")  # what needs no token: the page asks for it
OPEN_BELOW = "/page/"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
DISCARD = 2.0  # seconds for the rest of a body that is refused


class Guard:
    """The app, guarded."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], service: Service) -> None:
        self._app, self._service = app, service
        self._settings = service.settings
        self._token = sha256(self._settings.token.encode()).digest() if self._settings.token else None
        self._buffered = 0  # bytes of all bodies
        self.stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI app."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        status = 500
        sent = False

        async def answer(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status, sent = message["status"], True
                message["headers"] = [*message.get("headers", []), *self._headers(scope)]
            await send(message)

        size = 0
        try:
            self._check(scope)
            body, size = await self._body(scope, receive)
            await self._app(scope, body, answer)
        except Problem as problem:
            await _refuse(problem, answer)
        except Exception:
            LOG.exception("a request failed")
            if not sent:
                await _refuse(Problem(500, "failed", "the server made a mistake; it is in its log"), answer)
        finally:
            self._buffered -= size
            route = getattr(scope.get("route"), "path", "other")
            self._service.metrics.requests.labels(route, str(status)).inc()
            self._service.metrics.seconds.labels(route).observe(time.perf_counter() - begun)

    def _headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        open_ = scope["path"] == "/" or scope["path"].startswith(OPEN_BELOW)
        more = [(b"cache-control", b"no-cache" if open_ else b"no-store")]
        if self.stopping:
            more.append((b"connection", b"close"))
        return HEADERS + more

    def _check(self, scope: Scope) -> None:
        """Host, origin and token."""
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").lower()
        hosts = self._settings.hosts
        if hosts and _without_port(host) not in hosts:
            raise Problem(403, "forbidden", f"this server answers only as {' or '.join(hosts)}")
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        if origin and urlsplit(origin).netloc != host:
            raise Problem(403, "forbidden", "pages of other sites may not use this server")
        path = scope["path"]
        if self._token is None or path in OPEN or path.startswith(OPEN_BELOW):
            return
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        right = hmac.compare_digest(sha256(given.strip()).digest(), self._token)
        if kind.lower() != b"bearer" or not right:
            raise Problem(401, "unauthorized", "the token is missing or wrong; send Authorization: Bearer TOKEN")

    async def _body(self, scope: Scope, receive: Receive) -> tuple[Receive, int]:
        """The whole body, as something to receive, and how many bytes it counts."""
        if scope["method"] in ("GET", "HEAD"):
            return receive, 0
        limit = self._settings.max_file if scope["path"] == "/v1/files" else self._settings.max_body
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared[:20]) > limit:
            await _discard(receive, dict(scope["headers"]))
            raise _too_large(limit)
        data = bytearray()
        try:
            async with asyncio.timeout(self._settings.body_timeout):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "bad_request", "the connection ended before the body did")
                    part = message.get("body", b"")
                    self._buffered += len(part)
                    data += part
                    more = message.get("more_body", False)
                    if len(data) > limit:
                        await _discard(receive, {})
                        raise _too_large(limit)
                    if self._buffered > self._settings.max_buffered:
                        raise Problem(429, "busy", "too many bytes are being sent; send this again later", retry=2)
        except TimeoutError:
            self._buffered -= len(data)
            seconds = self._settings.body_timeout
            raise Problem(408, "slow_request", f"the body did not come in {seconds:g} seconds") from None
        except BaseException:
            self._buffered -= len(data)
            raise
        whole: Message | None = {"type": "http.request", "body": bytes(data), "more_body": False}

        async def given() -> Message:
            nonlocal whole
            if whole is None:
                return await receive()
            message, whole = whole, None
            return message

        return given, len(data)


async def _discard(receive: Receive, headers: dict[bytes, bytes]) -> None:
    """Let a client send the rest for a moment: one that is cut off while it sends does not read why."""
    if b"expect" in headers:  # it waits for leave to send
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD):
            while (await receive()).get("more_body"):
                pass


async def _refuse(problem: Problem, send: Send) -> None:
    body = problem.body()
    more = [(key.lower().encode(), value.encode()) for key, value in (problem.headers or {}).items()]
    length = (b"content-length", str(len(body)).encode())
    close = (b"connection", b"close")  # the body, or the rest of it, is not read
    headers = [(b"content-type", b"application/json"), length, close, *more]
    await send({"type": "http.response.start", "status": problem.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _too_large(limit: int) -> Problem:
    return Problem(413, "too_large", f"the body is too large; at most {limit:,} bytes are taken")


def _without_port(host: str) -> str:
    return host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]

"""`quoth mcp --http`: the protocol over HTTP (streamable HTTP at /mcp), with a token beyond this machine.

No session is kept: a request has all that it needs, so that nothing grows with the number of clients.
"""

from __future__ import annotations

import hmac
import signal
import socket
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
BODY = 1 << 20  # bytes of a request: a quote has at most 10,000 characters
GRACE = 30  # seconds for the calls that were accepted when the server is told to end
CONNECTIONS = 256


class TokenGuard:
    """Lets requests pass that bring the token, and those for /health."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = sha256(token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on. Tokens are compared in constant time."""
        if scope["type"] == "http" and scope["path"] != "/health":
            kind, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
            right = hmac.compare_digest(sha256(given.strip()).digest(), self._wanted)
            if kind.lower() != b"bearer" or not right:
                message = "the token is missing or wrong; send Authorization: Bearer TOKEN"
                told = {"error": {"code": "unauthorized", "message": message}}
                await JSONResponse(told, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
                return
        await self._app(scope, receive, send)


def make_app(server: Server[Any], token: str = "", hosts: Sequence[str] = ()) -> ASGIApp:
    """The application for a web server.

    - token: that requests must bring; "" for none
    - hosts: names in `Host` and `Origin` that are answered; empty: all. Without a token a page of another site could
      else make its own name lead to 127.0.0.1 and ask (DNS rebinding)
    """
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=bool(hosts),
        allowed_hosts=[f"{name}:*" for name in hosts],
        allowed_origins=[f"http://{name}:*" for name in hosts],
    )
    app = server.streamable_http_app(
        stateless_http=True,
        json_response=True,
        max_request_body_size=BODY,
        transport_security=security,
        custom_starlette_routes=[Route("/health", _health)],
    )
    return TokenGuard(app, token) if token else app


def run_http(app: ASGIApp, sock: socket.socket) -> None:
    """Serve at a bound socket until SIGTERM or Ctrl-C; calls that were accepted are finished."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=GRACE,
    )
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again when all is done: it is no failure
    uvicorn.Server(config).run(sockets=[sock])


async def _health(_: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})

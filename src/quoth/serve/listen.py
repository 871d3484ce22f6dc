"""A socket to listen at, for `quoth serve` and `quoth mcp --http`."""

from __future__ import annotations

import socket

from quoth.errors import QuothError


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there, or an error that says why not."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # With the protocol 0, which is TCP too, asyncio leaves Nagle's algorithm on: a response, written in two
        # parts, would wait 40 ms for the client's acknowledgement.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(2048)
        return sock
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise QuothError(f"{host}:{port}: cannot listen there ({why}); choose another --host or --port") from None

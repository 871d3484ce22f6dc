"""The socket of the server."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from quoth.errors import QuothError
from quoth.serve.listen import bind


def test_responses_do_not_wait_for_acknowledgements():
    """asyncio turns Nagle's algorithm off for sockets that say that they are TCP."""
    set_ = []

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport):
            set_.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    async def connect():
        sock = bind("127.0.0.1", 0)
        server = await asyncio.get_running_loop().create_server(Protocol, sock=sock)
        reading, writing = await asyncio.open_connection(*sock.getsockname())
        await reading.read()
        writing.close()
        server.close()

    with ThreadPoolExecutor(1) as pool:  # the tests of the page leave an event loop in this thread
        pool.submit(asyncio.run, connect()).result()
    assert set_ == [1]


def test_a_port_that_is_taken_is_one_line():
    with bind("127.0.0.1", 0) as sock, pytest.raises(QuothError, match=r"cannot listen there .*choose another"):
        bind("127.0.0.1", sock.getsockname()[1])

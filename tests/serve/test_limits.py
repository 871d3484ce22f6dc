"""What is too much, too slow or too late is refused, and the rest is answered."""

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from quoth.search import Document
from quoth.serve.guard import Guard
from quoth.serve.metrics import Metrics
from quoth.serve.settings import Settings
from quoth.serve.uploads import Uploads, file_name
from serve.running import Running

LONG = "The keeper of the lighthouse wrote a letter about the storm and the boats. " * 6000


@pytest.fixture(scope="module")
def small():
    """A server with a short queue and little time."""
    running = Running("--queue", "3", "--timeout", "1.5", "--max-body", "1000000")
    assert running.url, running.lines
    yield running
    assert running.stop() == 0


def test_a_full_queue_says_when_to_come_again(small):
    body = {"question": "Who wrote a letter?", "context": LONG}
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda _: small.client.post("/v1/ask", json=body), range(8)))
    busy = [one for one in responses if one.status_code == 429]
    assert busy
    assert all(int(one.headers["retry-after"]) >= 1 for one in busy)
    assert all(one.json()["error"]["code"] == "busy" for one in busy)
    assert {one.status_code for one in responses} <= {200, 429, 503}
    assert small.ask(question="Who?", context="Ada came.")["question"] == "Who?"


def test_an_answer_has_its_time(small):
    """All passages of a long text cannot be read in it."""
    body = {
        "question": ["What is the colour of the door?", "What did he eat?", "Who was the king?"],
        "context": LONG,
        "all": True,
    }
    begun = time.monotonic()
    response = small.client.post("/v1/ask", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "timeout")
    assert "retry-after" in response.headers
    assert time.monotonic() - begun < 10
    assert small.ask(question="Who?", context="Ada came.")["question"] == "Who?"


def test_a_client_that_goes_away_leaves_nothing_behind(small):
    body = b'{"question": "What is the colour of the door?", "all": true, "context": "%s"}' % LONG.encode()
    head = b"POST /v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    for _ in range(6):
        with socket.create_connection(("127.0.0.1", small.port)) as connection:
            connection.sendall(head % len(body) + body)
            time.sleep(0.1)
    end = time.monotonic() + 20
    while small.metric("quoth_questions_waiting"):
        assert time.monotonic() < end
        time.sleep(0.1)


def guarded(app, **limits):
    settings = Settings(**limits)
    return Guard(app, SimpleNamespace(settings=settings, metrics=Metrics()))


async def echo(scope, receive, send):
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


def call(app, parts, headers=(), path="/v1/ask"):
    """The status and the body of a request whose body comes in parts: bytes, or seconds to wait."""
    sent = []

    async def run():
        given = iter(parts)

        async def receive():
            for part in given:
                if isinstance(part, bytes):
                    return {"type": "http.request", "body": part, "more_body": True}
                await asyncio.sleep(part)
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": path, "headers": list(headers)}
        await app(scope, receive, send)

    asyncio.run(run())
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])


def test_a_body_comes_whole_or_not_at_all():
    app = guarded(echo, max_body=10, body_timeout=0.3)
    assert call(app, [b"abc", b"def"]) == (200, b"abcdef")
    assert call(app, [b"abcdefghij"]) == (200, b"abcdefghij")
    assert call(app, [b"abcdef", b"ghijkl"])[0] == 413
    assert call(app, [b"abc", 1.0, b"def"])[0] == 408
    assert call(app, [], [(b"content-length", b"11")])[0] == 413
    assert call(app, [], [(b"content-length", b"9" * 5000)])[0] == 413
    assert app._buffered == 0


def test_files_have_a_limit_of_their_own():
    app = guarded(echo, max_body=10, max_file=20)
    assert call(app, [b"x" * 15], path="/v1/files")[0] == 200
    assert call(app, [b"x" * 21], path="/v1/files")[0] == 413


def test_all_bodies_together_are_bounded():
    app = guarded(echo, max_body=1000, max_buffered=1500, body_timeout=5)
    found = []

    def send():
        found.append(call(app, [b"x" * 900, 0.5])[0])

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [200, 429]
    assert app._buffered == 0


def test_a_mistake_of_ours_is_an_error_and_no_traceback():
    async def broken(scope, receive, send):
        raise RuntimeError("secret detail")

    status, body = call(guarded(broken), [b"x"])
    assert status == 500
    assert b"secret" not in body


def test_a_head_that_does_not_come_is_given_up(small):
    """`head_timeout` is ten seconds; a client that sends a letter now and then has no more."""
    with socket.create_connection(("127.0.0.1", small.port), timeout=30) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        begun = time.monotonic()
        connection.settimeout(0.5)
        while time.monotonic() - begun < 25:
            try:
                connection.sendall(b"a")
                if not connection.recv(100):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - begun < 20


def test_files_are_kept_for_a_while_and_not_too_many():
    now = [0.0]
    uploads = Uploads(Settings(files=3, file_bytes=10_000, file_age=100), lambda: now[0])
    first = uploads.put(Document("a.txt", "A text."), b"A text.")
    assert first.data == b""  # only pages of a PDF are drawn from it
    now[0] = 50
    others = [uploads.put(Document(f"{n}.txt", "A text."), b"") for n in range(3)]
    assert uploads.get(first.id) is None
    assert len(uploads) == 3
    now[0] = 149
    assert uploads.get(others[0].id) is not None
    now[0] = 151
    assert uploads.get(others[0].id) is None
    assert len(uploads) == 0
    large = [uploads.put(Document(f"{n}.txt", "x" * 2000), b"") for n in range(2)]
    assert uploads.get(large[0].id) is None
    assert uploads.get(large[1].id) is not None


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("../../a.txt", "a.txt"),
        ("C:\\x\\b.pdf", "b.pdf"),
        ("\x00\n", "file"),
        ("", "file"),
        ("a\rb", "ab"),
        ("é" * 999, "é" * 200),
    ],
)
def test_names_are_harmless(given, shown):
    assert file_name(given) == shown

"""What a hostile client may try: other folders, headers, HTML, tokens, hosts, sites, huge and deep JSON."""

import json
import os
import socket
import subprocess
import sys

import httpx
import pytest

from serve.running import TOKEN, Running

SECRET = "marmalade"


@pytest.fixture(scope="module")
def guarded(harbour):
    """A server that everybody can reach, with a token."""
    running = Running(harbour, "--host", "0.0.0.0", env={"QUOTH_TOKEN": TOKEN})
    assert running.url, running.lines
    yield running
    assert running.stop() == 0


def raw(server, request, seconds=10.0):
    """The bytes that come back for some bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        connection.sendall(request)
        found = b""
        while part := connection.recv(65536):
            found += part
        return found


PATHS = [
    "/v1/documents/../../secret.txt",
    "/v1/documents/..%2f..%2fsecret.txt",
    "/v1/documents/%2e%2e%2f%2e%2e%2fsecret.txt",
    "/v1/documents/%2fetc%2fpasswd",
    "/v1/documents/..%5c..%5csecret.txt",
    "/v1/documents/secret.txt%00",
    "/v1/passages/..%2fsecret.txt:0-10",
    "/page/../app.py",
    "/page/..%2fapp.py",
    "/page/%2e%2e/service.py",
    "/page//etc/passwd",
    "/page/%2fetc%2fpasswd",
    "//etc/passwd",
    "/../../../../etc/passwd",
]


@pytest.mark.parametrize("path", PATHS)
def test_paths_lead_nowhere(server, path):
    found = raw(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert found.startswith((b"HTTP/1.1 404", b"HTTP/1.1 422"))
    assert SECRET.encode() not in found
    assert b"root:" not in found
    assert b"import" not in found


def test_a_link_out_of_the_folder_is_no_document(server):
    names = [one["name"] for one in server.client.get("/v1/documents").json()["documents"]]
    assert "link.txt" not in names
    assert SECRET not in json.dumps(server.ask(question="What is the secret of the safe?", all=True, min_score=0))


def test_headers_cannot_be_injected(server):
    name = "a\r\nSet-Cookie: x=1\r\n\r\n<html>.txt"
    response = server.client.post("/v1/files", params={"name": name}, content=b"A text.")
    assert response.status_code == 201
    assert "set-cookie" not in response.headers
    assert "\n" not in response.json()["name"]
    found = raw(
        server, b"GET /v1/documents?search=a%0d%0aX-Bad:%201 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    assert b"x-bad" not in found.lower()


def test_requests_cannot_be_smuggled(server):
    """Two lengths, or a length beside chunks, are no request at all."""
    body = b"0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    both = b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n"
    two = b"Content-Length: 0\r\nContent-Length: %d\r\n" % len(body)
    for headers in (both, two):
        head = (
            b"POST /v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            + headers
            + b"Connection: close\r\n\r\n"
        )
        found = raw(server, head + body)
        assert found.count(b"HTTP/1.1 ") == 1
        assert b"quoth_requests" not in found


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{7*7}} ${7*7}"])
def test_text_is_never_html(server, text):
    """It comes back as JSON, whatever it is, and no browser may take it for something else."""
    context = f"The name of the boat is {text} today."
    responses = [
        server.client.post("/v1/ask", json={"question": "What is the name of the boat?", "context": context}),
        server.client.post("/v1/ask", json={"question": text, "x": text}),
        server.client.get("/v1/documents", params={"search": text}),
        server.client.get(f"/v1/documents/{text.replace('/', '')}"),
        server.client.get("/" + text.replace("/", "")),
    ]
    for response in responses:
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert "set-cookie" not in response.headers
        response.json()


@pytest.mark.parametrize("path", ["/", "/page/nothing.js", "/health", "/v1/documents", "/nowhere", "/openapi.json"])
def test_every_response_has_the_policy(server, path):
    headers = server.client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert "server" not in headers
    assert "set-cookie" not in headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost@evil"])
def test_without_a_token_only_the_own_names_are_answered(server, host):
    """Else a page of another site could make its name lead here, and read the answers."""
    assert server.client.get("/v1/documents", headers={"Host": host}).status_code == 403
    assert server.client.get("/v1/documents", headers={"Host": "localhost:1234"}).status_code == 200


def test_pages_of_other_sites_may_not_ask(server):
    own = {"Origin": server.url}
    other = {"Origin": "https://evil.example"}
    body = {"question": "Who?", "context": "Ada."}
    assert server.client.post("/v1/ask", json=body, headers=other).status_code == 403
    assert server.client.post("/v1/files?name=a.txt", content=b"Ada.", headers=other).status_code == 403
    assert server.client.post("/v1/ask", json=body, headers={"Origin": "null"}).status_code == 403
    assert server.client.post("/v1/ask", json=body, headers=own).status_code == 200
    assert "access-control-allow-origin" not in server.client.options("/v1/ask", headers=other).headers


GUESSES = [
    None, "", "Bearer", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x",
    f"Bearer {TOKEN.upper()}", "Bearer null", "Bearer " + "a" * 10_000, "Bearer é", f"Bearer x {TOKEN}",
]  # fmt: skip


@pytest.mark.parametrize("guess", GUESSES)
@pytest.mark.parametrize("path", ["/v1/documents", "/metrics", "/openapi.json", "/v1/ask", "/nowhere"])
def test_without_the_token_nothing_is_told(guarded, guess, path):
    headers = {} if guess is None else {"Authorization": guess.encode("latin-1")}
    response = guarded.client.get(path, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in response.text


def test_with_the_token_everything_is(guarded):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert guarded.client.get("/v1/documents", headers=headers).status_code == 200
    assert guarded.client.get("/openapi.json", headers=headers).status_code == 200
    body = {"question": "Who is the harbour master?"}
    assert guarded.client.post("/v1/ask", json=body, headers=headers).json()["answer"] == "Ingrid Solberg"
    assert all(guarded.client.get(path).status_code == 200 for path in ("/health", "/ready"))
    assert not any(TOKEN in line for line in guarded.lines)


def test_a_body_without_a_token_is_not_read(guarded):
    """The answer comes before the body does."""
    head = b"POST /v1/files?name=a HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n\r\n"
    assert raw(guarded, head).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("arguments", [["--host", "0.0.0.0"], ["--host", "::"], ["--host", "192.168.0.1"]])
def test_beyond_loopback_a_token_is_wanted(arguments):
    found = start(*arguments)
    assert found.returncode == 2
    assert "QUOTH_TOKEN" in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("token", ["short", "with a space in it", "é" * 20, "x" * 15])
def test_a_weak_token_is_refused(token, tmp_path):
    found = start("--host", "0.0.0.0", env={"QUOTH_TOKEN": token})
    assert found.returncode == 2
    file = tmp_path / "token"
    file.write_text(token)
    found = start("--token-file", str(file))
    assert found.returncode == 2
    assert str(file) in found.stderr
    assert token not in found.stderr


def test_mistakes_are_one_line(harbour, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for arguments in (
            [str(harbour / "handbook.md")],
            [str(tmp_path / "nothing")],
            ["--index", str(tmp_path / "i")],
            ["--model", str(tmp_path / "none")],
            ["--port", port],
            ["--host", "no.such.host.invalid", "--no-auth"],
        ):
            found = start(*arguments)
            assert found.returncode == 2, found
            told = [line for line in found.stderr.splitlines() if "loading" not in line]
            assert len(told) == 1, found.stderr


def start(*arguments, env=None):
    port = () if "--port" in arguments else ("--port", "0")
    return subprocess.run(
        [sys.executable, "-m", "quoth", "serve", *port, *arguments],
        capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})},
    )  # fmt: skip


DEEP = 200_000
BODIES = {
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"question":' * 50_000 + b"1" + b"}" * 50_000,
    "deep context": b'{"question":"a","context":' + b"[" * 1000 + b'"a"' + b"]" * 1000 + b"}",
    "digits": b'{"question":"a","top":' + b"9" * 100_000 + b"}",
    "exponent": b'{"question":"a","min_score":1e999999}',
    "not a number": b'{"question":"a","min_score":NaN}',
    "half a pair": b'{"question":"\\ud800","context":"a"}',
    "not utf-8": b'{"question":"\xff"}',
    "bom": b'\xef\xbb\xbf{"question":"a","context":"b","x":1}',
    "many keys": json.dumps({f"k{n}": n for n in range(100_000)}).encode(),
    "many questions": json.dumps({"question": ["a"] * 101, "context": "b"}).encode(),
    "many objects": json.dumps([{"question": "a"}] * 101).encode(),
    "many contexts": json.dumps({"question": "a", "context": ["b"] * 1001}).encode(),
    "a long question": json.dumps({"question": "a" * 10_001, "context": "b"}).encode(),
    "prototype": b'{"question":"a","context":"b","__proto__":{"x":1},"__class__":1}',
    "nothing": b"",
}


@pytest.mark.parametrize("name", BODIES)
def test_huge_and_deep_json_is_refused_in_one_sentence(server, name):
    response = server.client.post("/v1/ask", content=BODIES[name], headers={"Content-Type": "application/json"})
    assert response.status_code in (413, 422)
    message = response.json()["error"]["message"]
    assert 0 < len(message) <= 500
    assert "\n" not in message


def test_the_body_is_bounded(server):
    large = {"question": "a", "context": "b" * 5_000_000}
    response = server.client.post("/v1/ask", json=large)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")

    def pieces():
        for _ in range(100):
            yield b"x" * 100_000

    response = httpx.post(f"{server.url}/v1/ask", content=pieces(), timeout=30)  # no Content-Length
    assert response.status_code == 413


def test_too_many_questions_and_passages_are_refused(server):
    many = [{"question": ["a"] * 60, "context": "b"}] * 2
    response = server.client.post("/v1/ask", json=many)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")
    long = "This is a sentence of no interest. " * 100_000
    response = server.client.post("/v1/ask", json={"question": "Who?", "context": long})
    assert response.status_code == 413
    assert "passages" in response.json()["error"]["message"]

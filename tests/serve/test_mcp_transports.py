"""`quoth mcp` as a user starts it: over standard input and output, over HTTP, with a token, and its mistakes."""

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import anyio
import pytest

pytest.importorskip("mcp")

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

QUOTE = {"quote": "The speed limit is 4 knots."}
TOKEN = "a-token-that-nobody-guesses"
ENVIRONMENT = ("PYTHONPATH", "XDG_CACHE_HOME", "OMP_NUM_THREADS")
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@contextmanager
def running(*arguments, env=None):
    """`quoth mcp --http` in a process of its own: its address and the process."""
    command = [sys.executable, "-m", "quoth", "mcp", "--http", "--port", "0", *map(str, arguments)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
    try:
        found = re.search(r"ready at (http://\S+)/mcp", process.stderr.readline())
        yield found[1].replace("0.0.0.0", "127.0.0.1"), process
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def open_server(harbour):
    with running(harbour) as (url, _):
        yield url


@pytest.fixture(scope="module")
def token_server(harbour):
    with running(harbour, "--host", "0.0.0.0", env={"QUOTH_TOKEN": TOKEN}) as (url, _):
        yield url


def call(server, name, arguments, mode="auto"):
    async def main():
        async with Client(server, mode=mode) as client:
            return await client.call_tool(name, arguments)

    return anyio.run(main)


class TestStdio:
    @pytest.mark.parametrize("mode", ["auto", "legacy"])
    def test_all_of_it(self, harbour, mode):
        kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        arguments = ["-m", "quoth", "mcp", str(harbour)]
        server = StdioServerParameters(command=sys.executable, args=arguments, env=kept)

        async def main():
            async with Client(server, mode=mode) as client:
                answer = await client.call_tool("ask", {"question": "Who is the harbour master?"})
                quote = await client.call_tool("verify_quote", QUOTE)
                uri = (await client.list_resources()).resources[0].uri
                return answer, quote, (await client.read_resource(uri)).contents[0].text

        answer, quote, text = anyio.run(main)
        assert answer.structured_content["answer"] == "Ingrid Solberg"
        assert quote.structured_content["verdict"] == "exact"
        assert text.startswith("Handbook")

    def test_standard_output_has_messages_alone_and_it_ends_with_its_input(self, harbour):
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        messages = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "verify_quote", "arguments": QUOTE}},
        ]
        command = [sys.executable, "-m", "quoth", "mcp", str(harbour)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for message in messages:
            process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        left, _ = process.communicate(timeout=60)
        assert [one["id"] for one in answers] == [1, 2]
        assert answers[1]["result"]["structuredContent"]["stands"]
        assert (left, process.returncode) == ("", 0)


class TestHttp:
    @pytest.mark.parametrize("mode", ["auto", "legacy"])
    def test_tools_answer(self, open_server, mode):
        found = call(f"{open_server}/mcp", "ask", {"question": "Who is the harbour master?"}, mode)
        assert found.structured_content["answer"] == "Ingrid Solberg"

    def test_many_clients_get_their_own_answers(self, open_server):
        names = ["Ingrid Solberg", "Olav Berg", "red house", "speed limit", "north pier", "xyzzy"] * 4
        with ThreadPoolExecutor(8) as pool:
            found = pool.map(lambda name: call(f"{open_server}/mcp", "verify_quote", {"quote": name}), names)
        told = [one.structured_content for one in found]
        assert [one["quote"] for one in told] == names
        assert [one["stands"] for one in told] == [name != "xyzzy" for name in names]

    def test_health(self, open_server, token_server):
        for url in (open_server, token_server):
            response = httpx2.get(f"{url}/health")
            assert (response.status_code, response.json()) == (200, {"status": "ok"})

    @pytest.mark.parametrize(
        ("headers", "status"),
        [({"Host": "evil.example"}, 421), ({"Host": "evil.example:80"}, 421), ({"Origin": "http://evil.example"}, 403)],
    )
    def test_other_names_and_pages_are_refused(self, open_server, headers, status):
        assert httpx2.post(f"{open_server}/mcp", json=PING, headers={**JSON, **headers}).status_code == status

    def test_a_large_body_is_refused(self, open_server):
        body = json.dumps({**PING, "params": {"a": "x" * (1 << 20)}})
        assert httpx2.post(f"{open_server}/mcp", content=body, headers=JSON).status_code == 413

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"jsonrpc": "2.0"}', b"\xff\xfe"])
    def test_what_is_no_message_is_refused(self, open_server, body):
        assert 400 <= httpx2.post(f"{open_server}/mcp", content=body, headers=JSON).status_code < 500
        assert httpx2.get(f"{open_server}/health").status_code == 200

    def test_there_is_nothing_else(self, open_server):
        for path in ("/", "/docs", "/mcp/../etc/passwd", "/v1/ask"):
            assert httpx2.get(open_server + path).status_code == 404


class TestToken:
    def test_with_it(self, token_server):
        async def main():
            async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as http:
                transport = streamable_http_client(f"{token_server}/mcp", http_client=http)
                async with Client(transport) as client:
                    return await client.call_tool("verify_quote", QUOTE)

        assert anyio.run(main).structured_content["stands"]

    @pytest.mark.parametrize(
        "given",
        ["", "Bearer", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer \u00e4"],
    )
    @pytest.mark.parametrize("path", ["/mcp", "/", "/anything", "/health/"])
    def test_without_it_nothing_is_told(self, token_server, given, path):
        headers = {**JSON, **({"Authorization": given.encode("latin-1")} if given else {})}
        response = httpx2.post(token_server + path, json=PING, headers=headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.json()["error"]["code"] == "unauthorized"


class TestEnd:
    @pytest.mark.slow
    def test_sigterm_finishes_a_call_that_was_accepted(self, tmp_path):
        (tmp_path / "a.txt").write_text("\n\n".join(f"On day {n} a heron stood at the pond." for n in range(20_000)))

        async def main(url, process):
            async with Client(f"{url}/mcp") as client:
                await client.list_tools()  # which the client else does after its first call
                await client.call_tool("verify_quote", QUOTE)  # the index is made
                done = []

                async def ask():
                    done.append(await client.call_tool("ask", {"question": "When did it stand?", "form": "all"}))

                async with anyio.create_task_group() as group:
                    group.start_soon(ask)
                    await anyio.sleep(0.5)
                    early = bool(done)
                    process.send_signal(signal.SIGTERM)
                return early, done

        with running(tmp_path) as (url, process):
            early, done = anyio.run(main, url, process)
            assert not early  # it was in the middle
            assert not done[0].is_error
            assert process.wait(timeout=60) == 0


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "line"),
        [
            (["nowhere"], "nowhere: no such folder"),
            ([".", "--no-auth"], "--token-file and --no-auth are for --http"),
            ([".", "--http", "--host", "0.0.0.0"], "--host 0.0.0.0: others could ask; set a token"),
            ([".", "--http", "--host", "::"], "--host ::: others could ask"),
            ([".", "--http", "--host", "example.org"], "--host example.org: others could ask"),
            ([".", "--http", "--token-file", "nowhere"], "nowhere: no such file"),
            ([".", "--http", "--port", "65536"], "Invalid value for '--port'"),
        ],
    )
    def test_one_line_and_code_2(self, cli, tmp_path, monkeypatch, arguments, line):
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("QUOTH_TOKEN", raising=False)
        done = cli("mcp", *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"quoth: {line}")

    def test_a_token_that_can_be_guessed(self, cli, tmp_path, monkeypatch):
        monkeypatch.setenv("QUOTH_TOKEN", "short")
        done = cli("mcp", tmp_path, "--http")
        assert done.returncode == 2
        assert "at least 16" in done.stderr

    def test_a_token_and_no_auth(self, cli, tmp_path, monkeypatch):
        monkeypatch.setenv("QUOTH_TOKEN", TOKEN)
        assert "choose one" in cli("mcp", tmp_path, "--http", "--no-auth").stderr

    def test_a_port_that_is_taken(self, cli, tmp_path, open_server):
        port = open_server.rpartition(":")[2]
        done = cli("mcp", tmp_path, "--http", "--port", port)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert f"127.0.0.1:{port}: cannot listen there" in done.stderr

    def test_without_the_package(self, cli, tmp_path, monkeypatch):
        monkeypatch.delattr("quoth.serve.mcp_parts", raising=False)
        monkeypatch.setitem(sys.modules, "quoth.serve.mcp_parts", None)
        done = cli("mcp", tmp_path)
        assert (done.returncode, "pip install 'quoth[mcp]'" in done.stderr) == (2, True)

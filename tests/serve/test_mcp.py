"""`quoth mcp`, asked by the client of the official SDK, in this process: tools, resources, mistakes, changes."""

import json
import os
import re
import shutil
from importlib.resources import files
from pathlib import Path

import anyio
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("mcp")

from mcp import Client
from mcp.shared.exceptions import MCPError

from quoth.answer import Reader
from quoth.errors import QuothError
from quoth.search import index_refresh
from quoth.serve import mcp_backend, mcp_folder, mcp_server
from quoth.serve.mcp_backend import Backend
from quoth.serve.mcp_folder import Folder
from quoth.serve.mcp_server import make_server
from quoth.serve.mcp_tools import TOOLS, call

ROOT = Path(__file__).parents[2]
MODES = ["auto", "legacy"]  # the protocol of 2026-07-28, without a handshake, and the ones before


@pytest.fixture(scope="module")
def reader():
    return Reader.load()


@pytest.fixture
def asked(reader):
    """What a client gets: `asked(folder, use)` runs `await use(client)`."""

    def run(folder, use, mode="auto"):
        async def main():
            async with Client(make_server(Backend(Folder(folder), lambda: reader)), mode=mode) as client:
                try:
                    return await use(client)
                except MCPError as error:  # raised here, it would be one of a group
                    return error

        found = anyio.run(main)
        if isinstance(found, MCPError):
            raise found
        return found

    return run


@pytest.fixture
def tool(asked):
    """The result of one tool: the object, which is the text of the first content too."""

    def call(folder, name, mode="auto", **arguments):
        result = asked(folder, lambda client: client.call_tool(name, arguments), mode)
        assert not result.is_error, result.content[0].text
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content

    return call


@pytest.fixture
def mistake(asked):
    """The one line of a tool that could not do what it was asked."""

    def call(folder, name, **arguments):
        result = asked(folder, lambda client: client.call_tool(name, arguments))
        assert result.is_error
        assert "\n" not in result.content[0].text
        return result.content[0].text

    return call


@pytest.mark.parametrize("mode", MODES)
class TestProtocol:
    def test_it_says_what_it_is(self, asked, harbour, mode):
        async def use(client):
            return client.server_info, client.instructions, client.server_capabilities

        info, instructions, capabilities = asked(harbour, use, mode)
        assert info.name == "quoth"
        assert "never an instruction" in instructions
        assert (capabilities.tools is not None, capabilities.resources is not None) == (True, True)

    def test_tools_are_listed_with_valid_schemas(self, asked, harbour, mode):
        tools = asked(harbour, lambda client: client.list_tools(), mode).tools
        assert [one.name for one in tools] == ["ask", "find_passages", "verify_quote"]
        for one in tools:
            jsonschema.Draft202012Validator.check_schema(one.input_schema)
            assert one.annotations.read_only_hint
            assert all("description" in about for about in one.input_schema["properties"].values())

    def test_three_tools_answer(self, tool, harbour, mode):
        assert tool(harbour, "ask", mode, question="Who is the harbour master?")["answer"] == "Ingrid Solberg"
        found = tool(harbour, "find_passages", mode, query="speed limit")
        assert found["passages"][0]["file"] == "rules.html"
        assert tool(harbour, "verify_quote", mode, quote="The speed limit is 4 knots.")["stands"]


class TestAsk:
    def test_it_is_the_result_of_quoth_ask(self, tool, harbour, cli, tmp_path):
        for name in ("handbook.md", "report.pdf"):
            shutil.copy(harbour / name, tmp_path)
        question = "What did the repair of the north pier cost?"
        found = tool(tmp_path, "ask", question=question)
        jsonschema.validate(found, json.loads(files("quoth.answer").joinpath("ask.schema.json").read_text()))
        place = found["answers"][0]
        assert (found["answer"], place["page"]) == ("310,000 euros", 2)
        assert place.pop("uri") == "quoth://documents/report.pdf"
        told = json.loads(cli("ask", question, str(tmp_path), "--json").stdout)
        assert told["answers"][0].pop("file") == str(tmp_path / place.pop("file"))
        assert found == told

    def test_forms_and_limits(self, tool, harbour):
        everything = tool(harbour, "ask", question="Who is the harbour master?", form="all", min_score=0.001)
        assert everything["distinct"] > 1
        one = tool(harbour, "ask", question="Who is the harbour master?", form="all", min_score=0.001, top=1)
        assert len(one["answers"]) == 1
        assert "sentences" in tool(harbour, "ask", question="Who is the harbour master?", form="sentences")

    def test_it_abstains(self, tool, harbour):
        found = tool(harbour, "ask", question="Which opera did Verdi write for Cairo?")
        assert (found["answer"], found["no_answer"]) == (None, True)


class TestFindPassages:
    def test_the_best_come_first_with_their_places(self, tool, harbour):
        found = tool(harbour, "find_passages", query="Olav Berg", count=1)["passages"]
        assert [(one["file"], one["line"], one["uri"]) for one in found] == [
            ("sub/log.txt", 1, "quoth://documents/sub/log.txt")
        ]
        assert "Olav Berg" in found[0]["text"]
        assert found[0]["score"] > 0

    def test_none_without_a_common_word(self, tool, harbour):
        assert tool(harbour, "find_passages", query="xyzzy")["passages"] == []


class TestVerifyQuote:
    def test_where_it_stands(self, tool, harbour):
        found = tool(harbour, "verify_quote", quote="The repair of the north pier cost 310,000 euros.")
        place = found["places"][0]
        assert (found["verdict"], found["stands"], found["count"]) == ("exact", True, 1)
        assert (place["file"], place["page"], place["exact"], found["nearest"]) == ("report.pdf", 2, True, None)
        assert len(place["boxes"]) == 1

    def test_the_text_of_the_document_is_given(self, tool, harbour):
        found = tool(harbour, "verify_quote", quote="“She lives in  the\nred house.”")
        assert (found["verdict"], found["places"][0]["text"]) == ("normalised", "She lives in the red house.")
        assert found["places"][0]["headings"] == ["Handbook", "Staff"]

    def test_the_words_that_differ(self, tool, harbour):
        found = tool(harbour, "verify_quote", quote="The repair of the south pier cost 310,000 euros.")
        near = found["nearest"]
        assert (found["verdict"], found["stands"], found["places"]) == ("altered", False, [])
        assert near["differences"] == [{"quote": "south", "document": "north"}]
        assert (near["text"], near["file"]) == ("The repair of the north pier cost 310,000 euros.", "report.pdf")
        assert near["similarity"] == 0.9  # nine of ten words and marks

    def test_absent(self, tool, harbour):
        found = tool(harbour, "verify_quote", quote="Herons nest on roofs.")
        assert (found["verdict"], found["nearest"], found["documents"]) == ("absent", None, 4)


class TestMistakes:
    @pytest.mark.parametrize(
        ("name", "arguments", "line"),
        [
            ("ask", {}, "question: field required"),
            ("ask", {"question": " \n"}, "question: string should have at least 1 character"),
            ("ask", {"question": "a" * 2001}, "question: string should have at most 2000 characters"),
            ("ask", {"question": ["a"]}, "question: input should be a valid string"),
            ("ask", {"question": "a", "top": 0}, "top: input should be greater than or equal to 1"),
            ("ask", {"question": "a", "min_score": 2}, "min_score: input should be less than or equal to 1"),
            ("ask", {"question": "a", "path": "/etc"}, "path: extra inputs are not permitted"),
            ("find_passages", {"query": "a", "count": 51}, "count: input should be less than or equal to 50"),
            ("verify_quote", {"quote": "—"}, "the quote has no words"),
            ("verify_quote", {"quote": "a" * 10_001}, "quote: string should have at most 10000 characters"),
        ],
    )
    def test_one_line(self, mistake, harbour, name, arguments, line):
        assert mistake(harbour, name, **arguments) == line

    def test_an_unknown_tool(self, asked, harbour):
        with pytest.raises(MCPError, match="delete: no such tool; there are ask, find_passages, verify_quote"):
            asked(harbour, lambda client: client.call_tool("delete", {}))

    def test_what_fails_inside_is_not_told(self, asked, harbour, monkeypatch):
        monkeypatch.setattr(Folder, "collection", lambda _: 1 / 0)
        with pytest.raises(MCPError, match=r"^ask failed; the log of the server says why$"):
            asked(harbour, lambda client: client.call_tool("ask", {"question": "Who?"}))

    def test_no_such_folder(self, tmp_path):
        with pytest.raises(QuothError, match="nowhere: no such folder"):
            Folder(tmp_path / "nowhere")

    def test_an_empty_folder_says_so_until_it_has_documents(self, asked, tmp_path, monkeypatch):
        monkeypatch.setattr(mcp_folder, "EVERY", 0.0)

        async def use(client):
            first = await client.call_tool("verify_quote", {"quote": "A heron."})
            (tmp_path / "a.txt").write_text("A heron.")
            return first, await client.call_tool("verify_quote", {"quote": "A heron."})

        first, second = asked(tmp_path, use)
        assert first.is_error
        assert "the folder has no" in first.content[0].text
        assert second.structured_content["verdict"] == "exact"

    def test_a_reader_that_cannot_be_loaded_leaves_the_other_tools(self, harbour):
        def load():
            raise QuothError("nowhere: no such model")

        async def main():
            async with Client(make_server(Backend(Folder(harbour), load))) as client:
                failed = await client.call_tool("ask", {"question": "Who?"})
                return failed, await client.call_tool("verify_quote", {"quote": "She lives in the red house."})

        failed, done = anyio.run(main)
        assert (failed.is_error, failed.content[0].text) == (True, "nowhere: no such model")
        assert done.structured_content["stands"]

    def test_too_many_calls_are_told_to_wait(self, harbour, reader, monkeypatch):
        monkeypatch.setattr(mcp_backend, "WAITING", 2)

        async def main():
            results = []
            async with Client(make_server(Backend(Folder(harbour), lambda: reader))) as client:

                async def one():
                    results.append(await client.call_tool("ask", {"question": "Who is the harbour master?"}))

                async with anyio.create_task_group() as group:
                    for _ in range(12):
                        group.start_soon(one)
            return results

        results = anyio.run(main)
        refused = [one for one in results if one.is_error]
        assert 0 < len(refused) < 12
        assert {one.content[0].text for one in refused} == {"2 calls wait already; call again in some seconds"}
        assert {one.structured_content["answer"] for one in results if not one.is_error} == {"Ingrid Solberg"}


class TestResources:
    def test_documents_are_listed_and_read(self, asked, harbour):
        async def use(client):
            listed = (await client.list_resources()).resources
            read = [(await client.read_resource(one.uri)).contents[0] for one in listed]
            return [one.name for one in listed], {one.uri: one for one in read}

        names, read = asked(harbour, use)
        assert names == ["handbook.md", "report.pdf", "rules.html", "sub/log.txt"]  # not link.txt, which leads out
        text = read["quoth://documents/handbook.md"]
        assert text.text == "Handbook\n\nStaff\n\nThe harbour master is Ingrid Solberg. She lives in the red house.\n"
        assert (text.mime_type, text.meta["characters"]) == ("text/plain", len(text.text))

    def test_there_is_a_template(self, asked, harbour):
        found = asked(harbour, lambda client: client.list_resource_templates()).resource_templates
        assert [one.uri_template for one in found] == ["quoth://documents/{+path}{?start}"]

    @pytest.mark.parametrize(
        "uri",
        [
            "quoth://documents/../secret.txt",
            "quoth://documents/%2e%2e%2fsecret.txt",
            "quoth://documents//etc/passwd",
            "quoth://documents/link.txt",
            "quoth://documents/handbook.md%00",
            "quoth://documents/",
            "quoth://other/handbook.md",
            "file:///etc/passwd",
            "http://127.0.0.1/",
        ],
    )
    def test_nothing_else_is_read(self, asked, harbour, uri):
        with pytest.raises(MCPError, match="no such document"):
            asked(harbour, lambda client: client.read_resource(uri))

    def test_no_tool_finds_what_a_link_leads_to(self, tool, harbour):
        assert not tool(harbour, "verify_quote", quote="The secret of the safe is 7391.")["stands"]
        assert "7391" not in json.dumps(tool(harbour, "find_passages", query="secret of the safe", count=50))

    def test_a_long_list_comes_in_pages(self, asked, tmp_path, monkeypatch):
        monkeypatch.setattr(mcp_server, "PAGE", 3)
        names = sorted(["a b.txt", "ä.txt", "c?d#e.txt", "f%20.txt", "sub/g.txt", "h.txt", "i.txt"])
        (tmp_path / "sub").mkdir()
        for name in names:
            (tmp_path / name).write_text(f"This is {name}.")

        async def use(client):
            found, cursor, pages = [], None, 0
            while pages == 0 or cursor:
                page = await client.list_resources(cursor=cursor)
                found += [(one.name, (await client.read_resource(one.uri)).contents[0].text) for one in page.resources]
                cursor, pages = page.next_cursor, pages + 1
            return found, pages

        assert asked(tmp_path, use) == ([(name, f"This is {name}.") for name in names], 3)

    def test_a_long_text_comes_in_pieces(self, asked, tmp_path, monkeypatch):
        monkeypatch.setattr(mcp_server, "TEXT", 100)
        text = "A heron stood there. " * 11 + "End."
        (tmp_path / "a b.txt").write_text(text)

        async def use(client):
            pieces, uri = [], "quoth://documents/a%20b.txt"
            while uri:
                content = (await client.read_resource(uri)).contents[0]
                pieces.append(content.text)
                uri = content.meta.get("next")
            return pieces

        assert asked(tmp_path, use) == [text[:100], text[100:200], text[200:]]

    @pytest.mark.parametrize("start", ["-1", "x", "1e3", "9999999", "9" * 5000])
    def test_a_wrong_start(self, asked, harbour, start):
        with pytest.raises(MCPError, match="start must be a whole number"):
            asked(harbour, lambda client: client.read_resource(f"quoth://documents/handbook.md?start={start}"))

    @pytest.mark.skipif(os.name != "posix", reason="names are bytes on POSIX systems alone")
    def test_a_name_that_is_not_utf8(self, asked, tmp_path):
        (tmp_path / os.fsdecode(b"a\xff.txt")).write_text("A heron.")

        async def use(client):
            one = (await client.list_resources()).resources[0]
            found = await client.call_tool("verify_quote", {"quote": "A heron."})
            return one, (await client.read_resource(one.uri)).contents[0].text, found.structured_content

        one, text, found = asked(tmp_path, use)
        assert (one.name, one.uri, text) == ("a?.txt", "quoth://documents/a%FF.txt", "A heron.")
        assert (found["places"][0]["file"], found["places"][0]["uri"]) == (one.name, one.uri)


EXAMPLE = re.compile(r"^```\n(\w+) (\{[^\n]*\})\n```\n\n```json\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = EXAMPLE.findall((ROOT / "docs/mcp.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "arguments", "shown"), EXAMPLES, ids=[name for name, *_ in EXAMPLES])
def test_the_examples_of_the_page(tool, name, arguments, shown):
    assert tool(ROOT / "examples/harbour", name, **json.loads(arguments)) == near(json.loads(shown))


def near(value):
    """The same, with floating point numbers that another processor may round in another way."""
    if isinstance(value, dict):
        return {key: near(one) for key, one in value.items()}
    if isinstance(value, list):
        return [near(one) for one in value]
    return pytest.approx(value, abs=0.02) if isinstance(value, float) else value


TEXT = st.text(max_size=60) | st.sampled_from(
    ["Who is the harbour master?", "The speed limit is 5 knots.", "\ud800 a", "\0"]
)
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | TEXT, st.lists, max_leaves=5)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["question", "form", "top", "min_score", "query", "count", "quote"]), VALUES
)
USUAL = [("ask", "question"), ("find_passages", "query"), ("verify_quote", "quote")]


class TestAnyInput:
    """Whatever comes, there is a result that JSON can hold, or one line."""

    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, harbour, reader, tmp_path_factory):
        folder = tmp_path_factory.mktemp("small")
        shutil.copy(harbour / "handbook.md", folder)
        return Backend(Folder(folder), lambda: reader)

    @given(st.sampled_from(USUAL), ARGUMENTS, st.booleans(), TEXT)
    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_of_a_tool(self, backend, usual, arguments, right, text):
        name, key = usual
        arguments = {key: text} if right else arguments
        try:
            found = call(TOOLS[name], backend, arguments)
        except QuothError:  # one line, by its nature
            pass
        else:
            json.dumps(found, ensure_ascii=False, allow_nan=False).encode()

    @given(st.sampled_from(["", "quoth://documents/", "quoth://documents/handbook.md?start="]), TEXT)
    @settings(max_examples=200, deadline=None)
    def test_of_an_address(self, backend, begin, text):
        mcp_server._listed(backend.folder, begin + text)
        try:
            content = mcp_server._read(backend.folder, begin + text).contents[0]
        except QuothError:
            pass
        else:
            assert content.uri.startswith("quoth://documents/handbook.md")


class TestChanges:
    def test_documents_that_change_come_and_go(self, asked, tmp_path, monkeypatch):
        monkeypatch.setattr(mcp_folder, "EVERY", 0.0)
        (tmp_path / "a.txt").write_text("A heron stood there.")

        async def use(client):
            async def verdict(quote):
                return (await client.call_tool("verify_quote", {"quote": quote})).structured_content["verdict"]

            found = [await verdict("A heron stood there.")]
            (tmp_path / "a.txt").write_text("A raven stood there.")
            found.append(await verdict("A heron stood there."))
            (tmp_path / "b.txt").write_text("A heron stood there.")
            found.append(await verdict("A heron stood there."))
            (tmp_path / "b.txt").unlink()
            found.append(await verdict("A heron stood there."))
            return found

        assert asked(tmp_path, use) == ["exact", "altered", "exact", "altered"]

    def test_an_index_that_cannot_be_written_is_done_without(self, tool, harbour, tmp_path, monkeypatch):
        blocked = tmp_path / "file"
        blocked.write_text("")
        monkeypatch.setattr(index_refresh, "default_index", lambda _: blocked / "index.sqlite")
        found = tool(harbour, "verify_quote", quote="The repair of the north pier cost 310,000 euros.")
        assert (found["places"][0]["file"], found["documents"]) == ("report.pdf", 4)
        assert not tool(harbour, "verify_quote", quote="The secret of the safe is 7391.")["stands"]

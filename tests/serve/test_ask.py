"""`POST /v1/ask`: the results are those of the Reader itself, in the schema of `quoth ask --json`."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import pytest

from quoth.answer import Reader
from quoth.serve.openapi import ASK

SCHEMA = json.loads((Path(__file__).parents[2] / "src/quoth/answer/ask.schema.json").read_text(encoding="utf-8"))
CONTEXT = "The repair of the north pier cost 310,000 euros. It took a year."
ROOMS = [f"The key of room {n} hangs behind the {thing}. Room {n} is blue." for n, thing in enumerate(
    ("clock", "mirror", "stove", "piano", "curtain", "barrel", "map of the coast", "red chair"), 100)]  # fmt: skip


@pytest.fixture(scope="module")
def reader():
    return Reader.load()


def check(found):
    jsonschema.validate(found, SCHEMA)
    for answer in [*found["answers"], *([found["rejected"]] if found["rejected"] else [])]:
        start, end = answer["in_sentence"]
        assert answer["sentence"][start:end] == answer["answer"]


def test_an_answer_is_that_of_the_reader(server, reader):
    found = server.ask(question="What did the repair cost?", context=CONTEXT)
    check(found)
    own = reader.ask("What did the repair cost?", CONTEXT)
    assert found["answer"] == own.text == "310,000 euros"
    assert found["score"] == pytest.approx(own.score, abs=1e-5)
    (answer,) = found["answers"]
    assert CONTEXT[answer["text_start"] : answer["text_end"]] == own.text
    assert (answer["document"], answer["context"], answer["passage"]) == (None, 0, None)


def test_no_answer_comes_with_what_was_rejected(server):
    found = server.ask(question="Who painted the ceiling?", context=CONTEXT)
    check(found)
    assert found["no_answer"]
    assert found["answer"] is None
    assert found["rejected"]["answer"] in CONTEXT
    assert not server.ask(question="Who painted the ceiling?", context=CONTEXT, min_score=0)["no_answer"]


def test_an_empty_context_has_no_answer(server):
    found = server.ask(question="Who?", context="")
    check(found)
    assert (found["no_answer"], found["rejected"]) == (True, None)


def test_several_contexts_are_asked_together(server):
    found = server.ask(question="Where does the key of room 103 hang?", context=ROOMS)
    check(found)
    assert found["answers"][0]["context"] == 3
    assert "piano" in found["answer"]


def test_lists_come_back_in_order(server):
    questions = [f"Where does the key of room {n} hang?" for n in range(107, 99, -1)]
    results = server.ask(question=questions, context=ROOMS)
    assert [found["question"] for found in results] == questions
    assert [found["answers"][0]["context"] for found in results] == list(range(7, -1, -1))
    objects = [{"question": question, "context": room} for question, room in zip(questions, reversed(ROOMS))]
    response = server.client.post("/v1/ask", json=objects)
    assert [found["answer"] in room for found, room in zip(response.json(), reversed(ROOMS))] == [True] * 8
    assert len(server.client.post("/v1/ask", json=objects[:1]).json()) == 1


def test_the_folder_is_asked_with_places(server):
    found = server.ask(question="Who is the harbour master?", all=True)
    check(found)
    assert found["answer"] == "Ingrid Solberg"
    assert {place["file"] for one in found["answers"] for place in one["places"]} == {"handbook.md", "sub/log.txt"}
    best = found["answers"][0]
    document = server.client.get(f"/v1/documents/{best['document']}").json()
    assert document["text"][best["text_start"] : best["text_end"]] == best["answer"]
    passage = server.client.get(f"/v1/passages/{best['passage']}").json()
    assert best["sentence"] in passage["text"]
    sentences = server.ask(question="Who is the harbour master?", sentences=True, top=1)
    check(sentences)
    assert sentences["sentences"][0]["sentence"] == "The harbour master is Ingrid Solberg."


def test_one_document_is_asked_alone(server):
    log = server.client.get("/v1/documents", params={"search": "LOG"}).json()["documents"][0]
    found = server.ask(question="Who is the harbour master?", document=log["id"])
    check(found)
    assert (found["answer"], found["answers"][0]["document"]) == ("Olav Berg", log["id"])


def test_many_at_once_are_batched_and_not_crossed(server, reader):
    """Each answer is that of its own context, whatever it was batched with."""
    asked = [(f"Where does the key of room {n} hang?", room) for n, room in enumerate(ROOMS, 100)] * 6
    before = server.metric("quoth_batch_requests_count")
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda one: server.ask(question=one[0], context=one[1]), asked))
    own = {room: reader.ask(question, room) for question, room in asked[: len(ROOMS)]}
    for (_, room), found in zip(asked, results):
        assert found["answer"] == own[room].text
        assert found["score"] == pytest.approx(own[room].score, abs=1e-4)
    assert server.metric("quoth_batch_requests_count") - before < len(asked)


@pytest.mark.parametrize("name", ASK)
def test_the_examples_of_the_openapi_document_are_answered(server, name):
    response = server.client.post("/v1/ask", json=ASK[name]["value"])
    assert response.status_code == 200
    for found in response.json() if isinstance(response.json(), list) else [response.json()]:
        check(found)
        assert found["answer"]

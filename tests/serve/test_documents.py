"""Documents of the folder, files that are sent, pages as images; and the folder as it changes."""

import io

import pytest
from PIL import Image

from search.writing import PdfPages
from serve.running import until


def documents(server, **query):
    return server.client.get("/v1/documents", params=query).json()


def test_documents_are_listed_in_pages(server):
    first = documents(server, limit=2)
    rest = documents(server, limit=2, after=first["next"])
    names = [one["name"] for page in (first, rest) for one in page["documents"]]
    assert names[:4] == ["handbook.md", "report.pdf", "rules.html", "sub/log.txt"]
    assert first["total"] >= 4
    (handbook,) = documents(server, search="HANDB")["documents"]
    assert (handbook["title"], handbook["kind"], handbook["pages"]) == ("Handbook", "md", None)


def test_a_document_has_its_text_headings_and_pages(server):
    (handbook,) = documents(server, search="handbook")["documents"]
    text = server.client.get(f"/v1/documents/{handbook['id']}").json()
    assert text["text"].index("Staff") == text["headings"][1]["at"]
    assert len(text["text"]) == text["characters"] == handbook["characters"]
    (report,) = documents(server, search="report")["documents"]
    text = server.client.get(f"/v1/documents/{report['id']}").json()
    assert len(text["page_starts"]) == text["pages"] > 1
    assert text["page_starts"][0] == 0


def test_the_box_of_an_answer_lies_on_dark_pixels_of_its_page(server):
    found = server.ask(question="What did the repair of the north pier cost?")
    (answer,) = found["answers"]
    assert (answer["answer"], answer["file"]) == ("310,000 euros", "report.pdf")
    path = f"/v1/documents/{answer['document']}/pages/{answer['page']}.png"
    response = server.client.get(path, params={"width": 1224})
    image = Image.open(io.BytesIO(response.content)).convert("L")
    assert image.width == 1224
    ((x0, y0, x1, y1),) = answer["page_boxes"]
    wide, high = image.size
    box = image.crop((int(x0 * wide), int(y0 * high), int(x1 * wide) + 1, int(y1 * high) + 1))
    assert box.getextrema()[0] < 100  # letters
    above = image.crop((int(x0 * wide), int(y0 * high) - 8, int(x1 * wide), int(y0 * high) - 4))
    assert above.getextrema()[0] > 150  # between two lines


@pytest.mark.parametrize("query", ["?width=49", "?width=2001", "?width=x"])
def test_sizes_of_pages_are_bounded(server, query):
    (report,) = documents(server, search="report")["documents"]
    assert server.client.get(f"/v1/documents/{report['id']}/pages/1.png{query}").status_code == 422


def test_a_page_that_is_not_there_is_not_found(server):
    (report,) = documents(server, search="report")["documents"]
    response = server.client.get(f"/v1/documents/{report['id']}/pages/999.png")
    assert response.status_code == 404
    assert "there is no page 999" in response.json()["error"]["message"]
    (handbook,) = documents(server, search="handbook")["documents"]
    assert server.client.get(f"/v1/documents/{handbook['id']}/pages/1.png").status_code == 404


def test_a_file_that_is_sent_is_asked_and_not_listed(server):
    data = PdfPages().write(["Nothing here. " * 400, "The ferry to Lund leaves at 6.40 from the east quay."])
    response = server.client.post("/v1/files", params={"name": "../../ferry.pdf"}, content=data)
    assert response.status_code == 201
    sent = response.json()
    assert (sent["name"], sent["kind"], sent["document"]) == ("ferry.pdf", "pdf", sent["id"])
    found = server.ask(question="When does the ferry to Lund leave?", document=sent["id"])
    assert "6.40" in found["answer"]
    assert found["answers"][0]["page_boxes"]
    page = server.client.get(f"/v1/documents/{sent['id']}/pages/{found['answers'][0]['page']}.png")
    assert page.content.startswith(b"\x89PNG")
    assert sent["id"] not in [one["id"] for one in documents(server)["documents"]]


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.pdf", b"%PDF-1.7 nothing", "is damaged"),
        ("a.docx", b"PK\x03\x04", "archive"),
        ("a.txt", b"", "is empty"),
        ("a.txt", b"\xff\xfe\x00\xd8", "a.txt"),
        ("\x1b[2Ja.txt", b" \n", "[2Ja.txt: is empty"),
    ],
)
def test_a_file_without_text_says_why(server, name, data, why):
    response = server.client.post("/v1/files", params={"name": name}, content=data)
    assert response.status_code == 422
    error = response.json()["error"]
    assert error["code"] == "no_text"
    assert why in error["message"]
    assert "\x1b" not in error["message"]


def test_changes_of_the_folder_are_found(server, harbour):
    place = harbour / "new.md"
    question = "Who owns the ice house?"
    place.write_text("# Ice\n\nThe ice house is owned by Tora Lindqvist.\n")
    until(lambda: server.ask(question=question)["answer"] == "Tora Lindqvist")
    place.write_text("# Ice\n\nThe ice house is owned by Nils Aagaard.\n")
    until(lambda: server.ask(question=question)["answer"] == "Nils Aagaard")
    place.unlink()
    until(lambda: not documents(server, search="new.md")["documents"])
    assert "Nils" not in str(server.ask(question=question))

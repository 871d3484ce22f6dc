"""Questions on the page: the answer in its place, other answers, no answer, PDF, texts and files of the user."""

import re

import pytest

from serve.browser.harness import HARBOUR
from serve.browser.steps import answers, ask, document_name, marked, page_image, use_text, wait_for_document

HOSTILE = """The owner is <img src=x onerror="alert(1)"> <b>Kari</b> & 'Nils' "Dahl".</p><script>alert(2)</script>"""


def test_an_answer_is_marked_where_it_stands(page, screenshot):
    ask(page, "What does a mooring for one night cost?")
    assert answers(page)[0] == "25 euros"
    assert marked(page) == "25 euros"
    assert document_name(page) == "handbook.md"
    card = page.locator(".answer.chosen")
    assert card.locator(".quote").inner_text() == "A mooring for one night costs 25 euros."
    assert card.locator(".where").inner_text().split("\n") == [
        "handbook.md · line 14",
        "Harbour handbook › Moorings › Fees",
    ]
    assert re.fullmatch(r"\d\d %\s+probability of being right", card.locator(".score").inner_text().strip())
    sentence = page.locator(".text p", has=page.locator("mark")).inner_text()
    assert sentence.startswith("A mooring for one night costs 25 euros. Boats longer")
    assert [page.locator(f".text {level}").first.inner_text() for level in ("h3", "h4", "h5")] == [
        "Harbour handbook",
        "Staff",
        "Fees",
    ]
    assert page.locator("#announce").inner_text().startswith("Answer: 25 euros")
    screenshot(page, "page")


def test_other_answers_and_places(page):
    ask(page, "Who is the harbour master?")
    assert answers(page) == ["Ingrid Solberg", "Olav Berg"]
    assert page.locator(".group").first.locator(".where .file").all_inner_texts() == ["handbook.md", "rules.html"]
    page.click("text=retired today")
    wait_for_document(page, "log.txt")
    assert marked(page) == "Olav Berg"
    assert page.locator("[aria-pressed=true] .words").inner_text() == "Olav Berg"


def test_no_answer_is_said_and_the_candidate_shown_as_one(page, screenshot):
    ask(page, "What does fuel cost?")
    assert page.locator(".abstention h2").inner_text() == "No answer found"
    assert re.search(r"does not hold the answer is \d\d %", page.locator(".abstention").inner_text())
    assert page.locator(".group.rejected").count() == 1
    page.wait_for_selector("#viewer.weakly .text mark")
    screenshot(page, "page-no-answer")
    page.click("text=Show weak answers too")
    page.wait_for_selector(".answers .group:not(.rejected)")
    assert page.locator(".abstention").count() == 0
    assert len(answers(page)) > 1


def test_one_document_is_asked(page):
    page.click("#document")
    page.fill("#document", "log")
    page.click("li[role=option]:has-text('log.txt')")
    page.wait_for_selector(".text")
    assert document_name(page) == "log.txt"
    ask(page, "Who is the harbour master?")
    assert set(page.locator(".where .file").all_inner_texts()) == {"log.txt"}
    page.click("#document-clear")
    assert page.input_value("#document") == ""


def test_many_documents_with_hostile_names(own_server, open_page, tmp_path):
    for number in range(120):
        (tmp_path / f"note {number:03}.txt").write_text(f"Boat {number} lies at berth {number + 500}.")
    (tmp_path / "<img src=x onerror=alert(1)>.md").write_text("# <script>alert(2)</script>\n\nThe cook is Ola Lie.\n")
    page = open_page(own_server(tmp_path))
    page.click("#document")
    page.wait_for_selector("text=50 of 121 documents. Type to narrow them down.")
    page.fill("#document", "img")
    page.wait_for_selector("text=50 of 121", state="detached")
    page.press("#document", "Enter")
    wait_for_document(page, "<img src=x onerror=alert(1)>.md")
    ask(page, "Who is the cook?")
    assert marked(page) == "Ola Lie"
    page.fill("#document", "no such name")
    page.wait_for_selector("text=No document has that in its name.")
    page.keyboard.press("Escape")
    assert page.input_value("#document").startswith("<img")
    assert page.locator("main img, main script").count() == 0


def test_an_answer_in_a_pdf_is_boxed_on_its_page(page, screenshot):
    ask(page, "What did the repair of the north pier cost?")
    assert answers(page)[0] == "310,000 euros"
    image = page_image(page)
    assert image.get_attribute("alt") == "Page 2 of report.pdf. Marked: 310,000 euros"
    box, sheet = page.locator(".box").bounding_box(), image.bounding_box()
    for side, size in (("x", "width"), ("y", "height")):
        place = (box[side] - sheet[side]) / sheet[size]
        low, high = _where_pdfium_finds("310,000 euros")[side]
        assert place == pytest.approx(low, abs=0.01)
        assert place + box[size] / sheet[size] == pytest.approx(high, abs=0.015)
    assert page.locator(".pager").inner_text() == "2 / 2"
    screenshot(page, "page-pdf")
    page.click("[aria-label='Page before']")
    page.wait_for_selector("img[alt='Page 1 of report.pdf']")
    assert page.locator(".box").count() == 0
    page.click(".switch >> text=Text")
    assert marked(page) == "310,000 euros"


def _where_pdfium_finds(words):
    """The left and right, the upper and lower end of some words on page 2, as fractions from the upper left corner."""
    import pypdfium2

    sheet = pypdfium2.PdfDocument(HARBOUR / "report.pdf")[1]
    width, height = sheet.get_size()
    text = sheet.get_textpage()
    at, count = text.search(words).get_next()
    boxes = [text.get_charbox(i, loose=True) for i in range(at, at + count)]
    left, bottom = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, top = max(box[2] for box in boxes), max(box[3] for box in boxes)
    return {"x": (left / width, right / width), "y": (1 - top / height, 1 - bottom / height)}


def test_a_pasted_text(page):
    text = "Notes 🛥️🛥️ of the crew. The captain of the 🚢 ferry is Møyfrid Åsen 👩‍✈️. She likes tea."
    use_text(page, text)
    ask(page, "Who is the captain of the ferry?")
    assert "Møyfrid Åsen" in marked(page)
    assert marked(page) == answers(page)[0]
    assert page.locator(".text").inner_text().strip() == text
    assert document_name(page) == "Your text"


def test_text_is_never_html(page):
    use_text(page, HOSTILE)
    ask(page, "Who is the owner of the boat? <img src=y onerror='alert(3)'>")
    page.click("text=Show weak answers too")
    page.wait_for_selector(".answers .group:not(.rejected), .abstention")
    assert page.locator(".text").inner_text() == HOSTILE
    assert page.locator("main img, main script, main b").count() == 0  # nor a dialog: the fixture looks for one


def test_a_file_is_asked(page, tmp_path):
    note = tmp_path / "<b>note & co.md"
    note.write_text("# Engine\n\nThe engine of the **Havbris** was built in Bergen in 1974.\n", encoding="utf-8")
    page.check("input[name=source][value=file]")
    page.set_input_files("#file", note)
    page.wait_for_selector(".drop.held")
    assert page.locator("#drop-text strong").inner_text() == note.name
    ask(page, "When was the engine built?")
    assert answers(page)[0] == "1974"
    assert marked(page) == "1974"
    assert page.locator(".text h3").inner_text() == "Engine"


def test_a_pdf_is_dropped(page):
    data = list((HARBOUR / "report.pdf").read_bytes())
    page.evaluate(
        """(data) => {
          const files = new DataTransfer();
          files.items.add(new File([new Uint8Array(data)], "dropped.pdf", { type: "application/pdf" }));
          for (const kind of ["dragenter", "dragover", "drop"])
            document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: files, bubbles: true, cancelable: true }));
        }""",
        data,
    )
    page.wait_for_selector(".drop.held")
    assert page.locator("#drop-cover").is_hidden()
    ask(page, "What did the repair of the north pier cost?")
    page.wait_for_selector(".sheet .box")
    assert document_name(page) == "dropped.pdf"


def test_a_long_text_is_shown_around_the_answer(page, tmp_path):
    filler = [f"Paragraph {number} is about nothing but the number {number}." for number in range(4000)]
    filler[2000] = "The lighthouse of Ytterholm was painted green by Tora Lund."
    long = tmp_path / "long.txt"
    long.write_text("\n\n".join(filler), encoding="utf-8")
    page.check("input[name=source][value=file]")
    page.set_input_files("#file", long)
    page.wait_for_selector(".drop.held")
    ask(page, "Who painted the lighthouse of Ytterholm?")
    assert marked(page) == answers(page)[0] == "Tora Lund"
    mark, pane = page.locator(".text mark").bounding_box(), page.locator(".pane").bounding_box()
    assert pane["y"] < mark["y"] < pane["y"] + pane["height"] / 2
    shown = page.locator(".text p").count()
    assert shown < 2000
    page.click("text=Show the text before this")
    page.click("text=Show the text after this")
    assert page.locator(".text p").count() > 1.8 * shown
    texts = page.locator(".text p").all_inner_texts()
    start = filler.index(texts[0])
    assert texts == filler[start : start + len(texts)]


def test_history(page):
    ask(page, "Who designed the lighthouse?")
    ask(page, "Who owns the fuel dock?")
    rows = page.locator("#history-list button")
    assert rows.locator(".gave").all_inner_texts() == ["no answer", "Astrid Nyhus"]
    page.reload()
    rows.nth(1).click()
    page.wait_for_selector(".answers")
    assert answers(page)[0] == "Astrid Nyhus"
    assert page.input_value("#question") == "Who designed the lighthouse?"
    assert rows.locator(".asked").all_inner_texts() == ["Who designed the lighthouse?", "Who owns the fuel dock?"]
    page.click("#history-clear")
    assert page.locator("#history").is_hidden()


def test_copies(page):
    ask(page, "What does a mooring for one night cost?")
    page.click("text=Copy citation")
    page.wait_for_selector("text=Copied")
    cited = page.evaluate("navigator.clipboard.readText()")
    assert cited == (
        "“A mooring for one night costs 25 euros.” — handbook.md, line 14, Harbour handbook › Moorings › Fees"
    )
    page.click("text=Copy answer")
    page.wait_for_selector(".actions button:nth-child(2):has-text('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == "25 euros"

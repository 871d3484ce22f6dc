"""What may go wrong: a server that is away, busy or slow, too much text, a token, no folder; and a proxy before it."""

from serve.browser.harness import HARBOUR
from serve.browser.steps import answers, ask, marked, page_image, use_text


def test_errors_are_told_kindly(own_server, open_page, screenshot):
    server = own_server(HARBOUR)
    page = open_page(server)
    page.expected.append("Failed to load resource")
    ask(page, "Who is the harbour master?")
    server.stop()
    ask(page, "Who designed the lighthouse?")
    problem = page.locator(".problem[role=alert]")
    assert "The server does not answer. Is it still running?" in problem.inner_text()
    assert page.locator("mark").count() == 0  # that of the question before
    screenshot(page, "page-error")
    server.start()
    problem.locator("text=Try again").click()
    page.wait_for_selector(".answers")
    assert answers(page)[0] == "Astrid Nyhus"
    use_text(page, "word " * 1_000_000)
    ask(page, "Who?")
    assert "bytes" in problem.inner_text()  # the sentence of the server: how many there are and how many it takes
    page.check("input[name=source][value=file]")
    page.set_input_files("#file", {"name": "a.zip", "mimeType": "application/zip", "buffer": b"PK\3\4" + bytes(100)})
    page.wait_for_selector(".drop.failed")
    assert "This file was not read" in page.locator("#drop-text").inner_text()
    ask(page, "Who?")
    assert "Choose a file first" in problem.inner_text()


def test_a_busy_server_is_asked_again(page):
    page.expected.append("429")
    calls = []

    def busy(route):
        calls.append(route.request.post_data_json)
        told = {"error": {"code": "busy", "message": "too many questions wait"}}
        route.fulfill(status=429, headers={"Retry-After": "1"}, json=told) if len(calls) < 3 else route.continue_()

    page.route("**/v1/ask", busy)
    page.fill("#question", "Who designed the lighthouse?")
    page.press("#question", "Enter")
    page.wait_for_selector("text=The server is busy. Asking again in 1 second")
    page.wait_for_selector(".answers")
    assert answers(page)[0] == "Astrid Nyhus"
    assert len(calls) == 3


def test_a_question_is_stopped(page):
    page.route("**/v1/ask", lambda route: None)  # no answer ever
    page.fill("#question", "Who designed the lighthouse?")
    page.press("#question", "Enter")
    page.wait_for_selector(".waiting")
    page.keyboard.press("Escape")
    page.wait_for_selector(".waiting", state="detached")
    page.unroute("**/v1/ask")
    ask(page, "Who designed the lighthouse?")
    assert answers(page)[0] == "Astrid Nyhus"


def test_the_token_is_asked_for(own_server, open_page):
    page = open_page(own_server(HARBOUR, token="a-long-secret-token"), wait=False)
    page.expected.append("401")
    page.wait_for_selector("#token-dialog[open]")
    page.fill("#token", "a wrong one")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=That token is not the right one")
    page.fill("#token", "a-long-secret-token")
    page.keyboard.press("Enter")
    page.wait_for_selector("#served:text-is('4 documents')")
    ask(page, "What did the repair of the north pier cost?")
    page_image(page)  # images need the token, too
    assert page.evaluate("Object.keys(localStorage).length") == 0
    page.reload()
    page.wait_for_selector("#served:text-is('4 documents')")


def test_behind_a_proxy_with_a_prefix(server, page):
    prefix, seen = f"{server.url}team/", []
    page.on("request", lambda one: seen.append(one.url))
    page.route(f"{prefix}**", lambda route: route.continue_(url=route.request.url.replace("/team/", "/")))
    page.goto(prefix)
    ask(page, "What did the repair of the north pier cost?")
    page_image(page)
    assert all(url.startswith((prefix, "blob:")) for url in seen)


def test_without_a_folder(own_server, open_page):
    page = open_page(own_server())
    page.wait_for_selector("#text-panel:not([hidden])")
    assert page.locator("#documents-choice").is_hidden()
    ask(page, "Who sings?")
    assert "Paste a text first" in page.locator(".problem").inner_text()
    page.fill("#text", "Nils sings every morning.")
    ask(page, "Who sings?")
    assert marked(page) == "Nils"

"""The page itself: keyboard, focus, phone, colours, accessibility."""

import pytest

from serve.browser.harness import DESKTOP, PHONE
from serve.browser.steps import ask, marked, page_image, use_text, wait_for_document, width_of_content


def test_keyboard_only(page):
    """From the first key to the copied citation, without a pointer."""
    keys = page.keyboard
    assert page.evaluate("document.activeElement.id") == "question"
    keys.type("Who is the harbour master?")
    keys.press("Enter")
    page.wait_for_selector(".answers")
    keys.press("Escape")
    for name in ("rules.html", "log.txt"):
        keys.press("j")
        wait_for_document(page, name)
    keys.press("ArrowUp")
    wait_for_document(page, "rules.html")
    keys.press("c")
    page.wait_for_selector("text=Copied")
    assert "rules.html, line 13" in page.evaluate("navigator.clipboard.readText()")
    keys.press("d")
    page.wait_for_selector("li[role=option] >> text=report.pdf")
    keys.type("rep")
    page.wait_for_selector("li[role=option] >> text=handbook.md", state="detached")
    keys.press("Enter")
    page.wait_for_selector("img[alt^='Page 1 of report.pdf']")
    keys.press("Escape")
    keys.press("n")
    page.wait_for_selector("img[alt^='Page 2 of report.pdf']")
    keys.press("p")
    page.wait_for_selector("img[alt^='Page 1 of report.pdf']")
    keys.press("?")
    assert page.locator("#keys-dialog").is_visible()
    keys.press("Escape")
    assert page.locator("#keys-dialog").is_hidden()
    keys.press("h")
    keys.press("Enter")
    page.wait_for_selector(".answers")
    keys.press("/")
    assert page.evaluate("document.activeElement.id") == "question"


def test_every_control_is_reached_with_tab(page):
    ask(page, "Who is the harbour master?")
    page.evaluate("document.activeElement.blur()")
    seen = []
    for _ in range(60):  # more than once around
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    seen = seen[seen.index("skip") :]
    wanted = [
        "skip",
        "keys-button",
        "theme-button",
        "document",
        "question",
        "ask-button",
        "show",
        "pane",
        "history-clear",
    ]
    assert [one for one in wanted if one not in seen] == []
    order = [seen.index(one) for one in wanted]
    assert order == sorted(order)


def test_the_focus_is_never_lost(page):
    """What is pressed may go away or be drawn anew; the focus then goes to its successor."""

    def press(selector, then):
        page.focus(selector)
        page.keyboard.press("Enter")
        page.wait_for_selector(then)
        return page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.className")

    ask(page, "Who owns the fuel dock?")
    assert press("text=Show weak answers too", ".answers .group:not(.rejected)") == "show"
    ask(page, "What did the repair of the north pier cost?")
    page_image(page)
    assert press("[aria-label='Page before']", "img[alt='Page 1 of report.pdf']") == "The document itself"
    assert press("[aria-label='Page after']", "img[alt^='Page 2 of report.pdf']") == "The document itself"
    assert press(".switch button >> text=Text", ".text") == ""
    assert page.evaluate("document.activeElement.textContent") == "Text"
    press("#history-list li:last-child button", ".abstention")
    assert page.evaluate("document.activeElement.closest('li:first-child') !== null")


def test_single_keys_can_be_switched_off(page):
    page.click("#keys-button")
    page.uncheck("#keys-on")
    page.click("#keys-dialog >> text=Close")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    assert page.locator("#keys-dialog").is_hidden()
    page.reload()
    assert not page.locator("#keys-on").is_checked()


def test_phone(server, open_page, screenshot):
    """Nothing is wider than 360 pixels, and what is tapped is large enough (WCAG 2.5.8: 24 pixels)."""
    page = open_page(server, PHONE, device_scale_factor=2, is_mobile=True, has_touch=True)

    def fits():
        assert width_of_content(page) == 360
        assert page.locator(".pane").evaluate_all("all => all.every((one) => one.scrollWidth <= one.clientWidth)")
        sizes = page.locator("button:visible, .segments label:visible").evaluate_all(
            "all => all.map((one) => [one.getBoundingClientRect().width, one.getBoundingClientRect().height])"
        )
        assert min(min(size) for size in sizes) >= 24

    fits()
    page.tap("#document")
    page.wait_for_selector("li[role=option]")
    fits()
    page.keyboard.press("Escape")
    use_text(page, "A" * 3000 + " is one word. Nils sings.")
    ask(page, "Who sings?")
    fits()
    page.check("input[name=source][value=file]")
    fits()
    page.check("input[name=source][value=documents]")
    ask(page, "What did the repair of the north pier cost?")
    page_image(page)
    fits()
    ask(page, "Who is the harbour master?")
    fits()
    screenshot(page, "page-phone")
    page.tap("text=retired today")
    page.tap("text=Show in the document >> visible=true")
    wait_for_document(page, "log.txt")
    assert page.locator("#viewer").bounding_box()["y"] < 100
    assert marked(page) == "Olav Berg"
    ask(page, "Who owns the fuel dock?")
    fits()


def test_dark(server, open_page, screenshot):
    page = open_page(server, color_scheme="dark")

    def brightness():
        numbers = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number)")
        return sum(numbers[:3]) / 3

    assert brightness() < 60
    ask(page, "Who is the harbour master?")
    assert marked(page) == "Ingrid Solberg"
    screenshot(page, "page-dark")
    page.click("#theme-button")
    assert page.locator("#theme-name").inner_text() == "Light"
    assert brightness() > 200
    page.click("#theme-button")
    assert brightness() < 60
    page.reload()
    assert page.locator("#theme-name").inner_text() == "Dark"
    page.click("#theme-button")
    page.emulate_media(color_scheme="light")
    assert (page.locator("#theme-name").inner_text(), brightness() > 200) == ("Automatic", True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_accessible(server, open_page, scheme, size):
    """axe-core finds nothing, of any severity, in any state of the page."""
    from axe_playwright_python.sync_playwright import Axe

    page = open_page(server, size, color_scheme=scheme)

    def sound(state):
        found = Axe().run(page).response["violations"]
        assert not found, (
            state,
            [(one["id"], one["impact"], [node["html"] for node in one["nodes"]]) for one in found],
        )

    sound("empty")
    ask(page, "Who is the harbour master?")
    sound("answers")
    page.click("#document")
    page.wait_for_selector("li[role=option]")
    sound("list")
    page.keyboard.press("Escape")
    ask(page, "Who owns the fuel dock?")
    sound("no answer")
    ask(page, "What did the repair of the north pier cost?")
    page_image(page)
    sound("PDF")
    page.click("#keys-button")
    sound("shortcuts")
    page.keyboard.press("Escape")
    page.check("input[name=source][value=file]")
    ask(page, "Who?")
    sound("a file is missing")
    use_text(page, "Nils sings.")
    sound("text")

"""What a user does on the page, and what is then seen.

`wait_for_function` of playwright would evaluate a text in the page, which its content-security policy forbids.
"""

DONE = ".answers, .abstention, .problem"


def ask(page, question):
    """Type a question, press Enter, wait for what comes."""
    page.fill("#question", question)
    page.press("#question", "Enter")
    page.wait_for_selector(DONE)


def answers(page):
    """The distinct answers that are shown, best first."""
    return page.locator(".answers .words").all_inner_texts()


def marked(page):
    """What is marked in the text of the document, once it is shown."""
    return page.locator(".text mark").inner_text()


def wait_for_document(page, name):
    page.wait_for_selector(f".viewer-head h2:text-is('{name}')")


def document_name(page):
    return page.locator(".viewer-head h2").inner_text()


def use_text(page, text):
    page.check("input[name=source][value=text]")
    page.fill("#text", text)


def page_image(page):
    """Wait for a page of a PDF, and give its image."""
    page.wait_for_selector(".sheet img")
    return page.locator(".sheet img")


def width_of_content(page):
    return page.evaluate("document.documentElement.scrollWidth")

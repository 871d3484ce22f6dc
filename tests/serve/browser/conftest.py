"""A real server and a headless Chromium that opens its page. Without one of them these tests are skipped."""

import os
from pathlib import Path

import pytest

from serve.browser.harness import DESKTOP, HARBOUR, IMAGES, Server, chromium, reason_to_skip


def pytest_collection_modifyitems(items):
    reason = reason_to_skip()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def server():
    """One that serves the folder of the examples."""
    one = Server(HARBOUR).start()
    yield one
    one.stop()


@pytest.fixture
def own_server():
    """A function that starts a server for one test."""
    started = []

    def start(*arguments, **options):
        started.append(Server(*arguments, **options).start())
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def open_page(browser):
    """A function that opens the page of a server in a fresh profile.

    Each page must do without an error in the console, which is where a breach of the content-security policy is told,
    without a dialog, without a cookie, and without a request to elsewhere. `page.expected` are errors that are meant.
    """
    opened = []

    def start(server, viewport=DESKTOP, wait=True, **options):
        context = browser.new_context(viewport=viewport, permissions=["clipboard-read", "clipboard-write"], **options)
        context.set_default_timeout(30_000)
        page = context.new_page()
        page.expected, page.errors, page.elsewhere = [], [], []
        page.on("console", lambda told: page.errors.append(told.text) if told.type == "error" else None)
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("dialog", lambda dialog: (page.errors.append(dialog.message), dialog.dismiss()))
        page.on(
            "request", lambda one: None if one.url.startswith((server.url, "blob:")) else page.elsewhere.append(one.url)
        )
        opened.append((context, page))
        page.goto(server.url)
        if wait:
            page.wait_for_selector("#served:not(:empty)")
        return page

    yield start
    for context, page in opened:
        cookies = context.cookies()
        context.close()
        assert not cookies
        assert not page.elsewhere
        strange = [text for text in page.errors if not any(known in text for known in page.expected)]
        assert not strange


@pytest.fixture
def page(server, open_page):
    return open_page(server)


@pytest.fixture
def screenshot(tmp_path):
    """A function that takes a screenshot: for the docs if QUOTH_SCREENSHOTS is set, else only to see that it works."""
    folder = IMAGES if os.environ.get("QUOTH_SCREENSHOTS") else tmp_path

    def take(page, name, **options):
        folder.mkdir(exist_ok=True)
        page.mouse.move(0, 0)
        page.screenshot(path=folder / f"{name}.png", animations="disabled", caret="hide", **options)
        assert (folder / f"{name}.png").stat().st_size > 10_000

    return take

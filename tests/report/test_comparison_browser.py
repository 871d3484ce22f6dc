"""The page of a comparison in headless Chromium: three widths, sorting, dark and light, print, axe-core."""

import os

import pytest

from serve.browser.harness import IMAGES, chromium, reason_to_skip

pytestmark = [pytest.mark.slow, pytest.mark.skipif(reason_to_skip() is not None, reason=reason_to_skip() or "")]
WIDTHS = {"desktop": 1280, "tablet": 768, "phone": 360}


@pytest.fixture(scope="session")
def page_file(comparison):
    return comparison.page


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def open_page(browser, page_file):
    """A function that opens the page; it must not say an error nor ask for anything else than itself."""
    opened = []

    def start(width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        page = context.new_page()
        page.said, page.asked = [], []
        page.on("console", lambda told: page.said.append(told.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        opened.append((context, page))
        page.goto(page_file.as_uri())
        return page

    yield start
    for context, page in opened:
        context.close()
        assert not page.said
        assert page.asked == [page_file.as_uri()]


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_nothing_is_wider_than_the_screen(open_page, width):
    page = open_page(width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for selector in ("p", "li", "h1", "figure", "figcaption", "dd"):
        widest = page.locator(selector).evaluate_all(
            "all => Math.max(0, ...all.map((one) => one.getBoundingClientRect().right))"
        )
        assert widest <= width, selector
    sizes = page.locator("button").evaluate_all(
        "all => all.map((one) => [one.getBoundingClientRect().width, one.getBoundingClientRect().height])"
    )
    assert min(min(size) for size in sizes) >= 24


def column(page, number):
    return page.locator("table.sortable tbody tr").evaluate_all(
        "(rows, number) => rows.map((row) => row.cells[number].dataset.value)", number
    )


def test_sorting(open_page):
    """By a click or the keyboard: costs rise first, scores fall, what is not known stays at the end."""
    page = open_page()
    heads = page.locator("table.sortable thead th")
    for number in range(heads.count()):
        head = heads.nth(number)
        first = head.get_attribute("data-first")
        before = head.get_attribute("aria-sort")
        orders = [first, "ascending" if first == "descending" else "descending"]
        for order in orders[::-1] if before == first else orders:
            head.locator("button").focus()
            page.keyboard.press("Enter")
            assert head.get_attribute("aria-sort") == order
            values = column(page, number)
            known = [value for value in values if value != ""]
            assert values[len(known) :] == [""] * (len(values) - len(known))
            if number:
                assert known == sorted(known, key=float, reverse=order == "descending")
            else:
                assert known == page.evaluate(
                    "([known, sign]) => known.toSorted((a, b) => sign * a.localeCompare(b))",
                    [known, 1 if order == "ascending" else -1],
                )
        assert page.locator("th[aria-sort]").count() == 1
    assert len(set(column(page, 0))) == 16


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360], ids=["desktop", "phone"])
def test_accessible(open_page, scheme, width):
    """axe-core finds nothing, contrast of text among it."""
    from axe_playwright_python.sync_playwright import Axe

    page = open_page(width, color_scheme=scheme)
    page.locator("summary").click()
    found = Axe().run(page).response["violations"]
    assert not found, [(one["id"], one["impact"], [node["html"][:200] for node in one["nodes"]]) for one in found]


def test_dark_plots_have_light_ink(open_page):
    colours = {}
    for scheme in ("light", "dark"):
        page = open_page(color_scheme=scheme)
        colours[scheme] = page.evaluate("getComputedStyle(document.querySelector('figure svg')).color")
    assert colours == {"light": "rgb(27, 31, 36)", "dark": "rgb(231, 234, 238)"}


def test_print(open_page, tmp_path):
    """Nothing is cut at the right edge of a page of A4."""
    page = open_page(1050, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1050
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.pdf(path=tmp_path / "p.pdf", prefer_css_page_size=True)
    assert (tmp_path / "p.pdf").stat().st_size > 50_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "width", "scheme", "height"),
    [("compare", 1280, "light", 2100), ("compare-dark", 1280, "dark", 2100), ("compare-phone", 360, "light", 1500)],
)
def test_screenshots(open_page, tmp_path, name, width, scheme, height):
    """For the docs with QUOTH_SCREENSHOTS=1."""
    folder = IMAGES if os.environ.get("QUOTH_SCREENSHOTS") else tmp_path
    page = open_page(width, color_scheme=scheme, device_scale_factor=1 if width > 400 else 2)
    page.screenshot(
        path=folder / f"{name}.png", full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height}
    )
    assert (folder / f"{name}.png").stat().st_size > 10_000

"""The page of the four papers in headless Chromium: three widths, light and dark, sorting, links, axe-core."""

import pytest

from experiments.paper_material import write_paper
from quoth.data import read
from quoth.experiments.paper_items import PAPERS
from quoth.experiments.paper_report import report_facts
from quoth.experiments.run_results import sweeps_in
from quoth.report.paper_page import write_paper_page
from report.test_comparison_browser import WIDTHS
from report.test_comparison_browser import browser as browser
from report.test_comparison_browser import open_page as open_page
from serve.browser.harness import reason_to_skip

pytestmark = [pytest.mark.slow, pytest.mark.skipif(reason_to_skip() is not None, reason=reason_to_skip() or "")]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """All runs of all papers but one."""
    folder = tmp_path_factory.mktemp("papers")
    for name in PAPERS[:-1]:
        write_paper(folder / name, name)
    page = folder / "papers.html"
    write_paper_page(report_facts(sweeps_in(folder), read), page)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS.keys())
def test_nothing_is_wider_than_the_screen(open_page, width, scheme):
    page = open_page(width, color_scheme=scheme)
    page.locator("summary").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for selector in ("p", "li", "h1", "h3", "figure", "figcaption", "dd", "code"):
        widest = page.locator(selector).evaluate_all(
            "all => Math.max(0, ...all.map((one) => one.getBoundingClientRect().right))"
        )
        assert widest <= width, selector


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible(open_page, scheme):
    """axe-core finds nothing, contrast of text among it."""
    from axe_playwright_python.sync_playwright import Axe

    page = open_page(1280, color_scheme=scheme)
    found = Axe().run(page).response["violations"]
    assert not found, [(one["id"], one["impact"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]


def test_claims_are_sorted_and_lead_to_their_tables(open_page):
    page = open_page()
    table = page.locator("table.sortable")
    heads = table.locator("thead th")
    effect = [head.inner_text().strip().rstrip("↕↑↓ ") for head in heads.all()].index("effect")
    heads.nth(effect).locator("button").click()
    values = table.locator("tbody tr").evaluate_all(
        "(rows, at) => rows.map((row) => row.cells[at].dataset.value)", effect
    )
    known = [float(value) for value in values if value]
    assert known == sorted(known, reverse=True)
    assert len(known) > 30
    for link in table.locator("a").all():
        assert page.locator(link.get_attribute("href")).count() == 1


def test_figures_have_a_caption_and_a_size(open_page):
    """12 of 20 figures: those of the last paper have no runs."""
    page = open_page(360)
    assert page.locator("figure").count() == 12
    for figure in page.locator("figure").all():
        assert len(figure.locator("figcaption").inner_text()) > 30
        box = figure.locator("svg").bounding_box()
        assert box["width"] > 250
        assert box["height"] > 150

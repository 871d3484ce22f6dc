"""The page of a comparison: it needs nothing else, escapes all texts, and its plots say what they show."""

import json
import re
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest

from experiments.comparison_material import METHODS, write_questions, write_run
from quoth.data import read
from quoth.experiments.compare import compare_results
from quoth.experiments.run_results import read_results
from quoth.report.comparison_figures import _look, draw_comparison, figure_style
from quoth.report.comparison_page import write_report

HOSTILE = """<script>alert(1)</script><img src=x onerror=alert(2)> "quoted" & 'so' $x_1$ https://example.com"""


class Outline(HTMLParser):
    """What a browser would make of a page: tags, attributes, texts; and that every tag is closed."""

    VOID = ("meta", "br", "img", "link")

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.texts = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def outline(page):
    found = Outline()
    found.feed(page)
    found.close()
    assert not found.open
    return found


@pytest.fixture(scope="session")
def facts(comparison):
    return comparison.facts


@pytest.fixture(scope="session")
def report(comparison):
    return comparison.page, comparison.files


def test_the_page_needs_nothing_else(report):
    page, _ = report
    text = page.read_text()
    found = outline(text)
    assert "http" not in text.replace("http-equiv", "")
    assert not {"link", "img", "iframe", "object", "base", "image"} & set(found.tags)
    for name, value in found.attributes:
        if name in ("href", "src", "xlink:href", "action"):
            assert value.startswith("#"), (name, value)
        assert not name.startswith("on")
    assert "url(#" in text  # clip paths, which point into the page
    assert not re.search(r"url\((?!#)", text)
    assert found.tags.count("script") == 1


def test_identifiers_are_not_repeated_over_figures(report):
    """Each figure has its own, and what is referred to is there."""
    text = report[0].read_text()
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    assert used <= set(ids)


def test_hostile_names_are_text(tmp_path):
    """In the name of a method, of the data and of a failed run: shown as they are, and never a tag."""
    dev = write_questions(tmp_path / "dev.json")
    runs = []
    for method in METHODS[:2]:
        write_run(tmp_path / method[0], dev, method, 0)
        runs.append({"folder": method[0], "method": f"{method[0]} {HOSTILE}", "state": "finished", "error": ""})
    runs.append({"folder": "gone", "method": "gone", "state": "failed", "error": HOSTILE})
    (tmp_path / "sweep.json").write_text(json.dumps({"format": 1, "runs": runs}))
    results, unfinished = read_results([tmp_path])
    facts = compare_results(results, unfinished, read(str(dev)))
    write_report(facts, tmp_path / "r.html")
    found = outline((tmp_path / "r.html").read_text())
    assert found.tags.count("script") == 1
    assert "img" not in found.tags
    assert sum(HOSTILE in text for text in found.texts) >= 5
    assert not any(name.startswith("on") for name, _ in found.attributes)


def test_every_number_of_the_table_is_there(report, facts):
    texts = " ".join(outline(report[0].read_text()).texts)
    for row in facts["rows"]:
        assert row["name"] in texts
        for key in ("f1", "exact", "best_f1"):
            assert f"{row['quality'][key]['mean']:.2f}" in texts
    for line in facts["summary"]:
        assert line in texts
    optimal = sum(len(row["pareto"]) for row in facts["rows"])
    assert texts.count("Pareto-optimal") >= optimal


def test_plots_lie_beside_the_page(report):
    page, files = report
    names = sorted(path.name for path in files)
    assert names == sorted(path.name for path in (page.parent / "report_files").iterdir())
    wanted = [
        "bytes", "data", "epochs", "inference-seconds", "layer-sizes", "layer-weights", "risk-coverage",
        "total-parameters", "train-seconds", "trainable-parameters",
    ]  # fmt: skip
    assert names == sorted(f"{name}.{kind}" for name in wanted for kind in ("png", "svg"))
    for path in files:
        start = path.read_bytes()[:8]
        assert start == b"\x89PNG\r\n\x1a\n" if path.suffix == ".png" else start.startswith(b"<?xml")


@pytest.mark.slow
def test_the_same_facts_make_the_same_page(report, facts, tmp_path):
    write_report(facts, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_bytes() == report[0].read_bytes()


@pytest.fixture(scope="module")
def drawn(facts):
    with matplotlib.rc_context(figure_style()):
        yield draw_comparison(facts)


def test_every_figure_has_labels_and_a_caption(drawn):
    for one in drawn:
        assert len(one.caption) > 40
        assert one.caption.endswith(".")
        for axes in one.figure.axes:
            assert axes.get_xlabel()
            assert axes.get_ylabel()
            units = ("per cent", "seconds", "MB", "parameters", "epochs", "layer", "units", "number", "unit")
            assert any(unit in axes.get_xlabel() for unit in units)
            assert any(unit in axes.get_ylabel() for unit in units)


def test_labels_of_points_do_not_overlap(drawn):
    """In the figures as drawn, by matplotlib's own boxes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    checked = 0
    for one in drawn:
        if "Further up is better" not in one.caption:
            continue
        renderer = FigureCanvasAgg(one.figure).get_renderer()
        (axes,) = one.figure.axes
        boxes = [text.get_window_extent(renderer) for text in axes.texts]
        area = axes.get_window_extent(renderer)
        for i, box in enumerate(boxes):
            assert area.x0 - 1 <= box.x0 <= box.x1 <= area.x1 + 1
            for other in boxes[:i]:
                assert min(box.x1, other.x1) - max(box.x0, other.x0) <= 0.5 or (
                    min(box.y1, other.y1) - max(box.y0, other.y0) <= 0.5
                )
        checked += len(boxes)
    assert checked > 60


def test_points_have_error_bars_and_the_front_is_drawn(drawn, facts):
    (one,) = [one for one in drawn if one.name == "train-seconds"]
    (axes,) = one.figure.axes
    rows = [row for row in facts["rows"] if row["costs"]["train_seconds"] is not None]
    assert len(axes.containers) == len(rows)  # one a point, with its bars
    assert all(container.has_yerr for container in axes.containers)
    fronts = [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
    optimal = [row for row in rows if "train_seconds" in row["pareto"]]
    front = sorted((row["costs"]["train_seconds"], row["quality"]["f1"]["mean"]) for row in optimal)
    assert fronts[0].get_xydata() == pytest.approx(np.array(front))


def test_colours_survive_greyscale(drawn):
    """Two rows of one colour have different marks, so that each pair of colour and mark is one row's."""
    for one in drawn:
        if "Further up is better" in one.caption:
            (axes,) = one.figure.axes
            looks = [(c.lines[0].get_color(), c.lines[0].get_marker()) for c in axes.containers]
            assert len(set(looks)) == len(looks)
    assert len({_look(number) for number in range(1, 65)}) == 64
    assert len({_look(number)[1] for number in range(1, 9)}) == 8

"""A comparison as one HTML page that needs nothing else: style, script and plots are in it, and no address outside.

Every text that comes from files (names, paths, data) is escaped, and a content-security policy lets the page load
nothing. The plots lie beside the page as well, as SVG and PNG.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from quoth.files import atomic_file, write_text
from quoth.report.comparison_figures import Drawn, draw_comparison, figure_style
from quoth.report.comparison_tables import (
    COSTS,
    DASH,
    LEVEL,
    MARK,
    QUALITY,
    cost_text,
    efficiency_text,
    p_text,
    shown_scores,
)
from quoth.report.page_parts import REGION, cell, closing, figure_html, head, inline_svg, opening
from quoth.report.plots import check_plots

Facts = dict[str, Any]

MATRIX = 40  # rows, above which not all pairs are shown
RESOLUTION = 200  # dots per inch of PNG files


def write_report(facts: Facts, page: Path, plots: Path | None = None) -> list[Path]:
    """Write the page, and the plots to `plots` (by default PAGE_files); returns the files of the plots."""
    check_plots()
    import matplotlib

    folder = plots or page.with_name(f"{page.stem}_files")
    with matplotlib.rc_context(figure_style()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that the font lacks is drawn as a box
        drawn = draw_comparison(facts)
        inline = [inline_svg(one.figure, number) for number, one in enumerate(drawn, 1)]
        write_text(page, render_page(facts, list(zip(drawn, inline))))  # first: its place may be a bad one
        return [path for one in drawn for path in _write_files(one, folder)]


def render_page(facts: Facts, figures: Sequence[tuple[Drawn, str]]) -> str:
    """The page; figures: each with its SVG."""
    return "\n".join(_page(facts, figures)) + "\n"


def _page(facts: Facts, figures: Sequence[tuple[Drawn, str]]) -> Iterator[str]:
    yield opening(f"Comparison of {len(facts['rows'])} methods", facts["summary"])
    yield from _rows(facts)
    if figures:
        yield '<section aria-labelledby="plots">\n<h2 id="plots">Plots</h2>\n<div class="figures">'
        yield from (figure_html(drawn, svg) for drawn, svg in figures)
        yield "</div>\n</section>"
    yield from _differences(facts)
    yield from _method(facts)
    yield closing("Made by quoth compare.")


def _rows(facts: Facts) -> Iterator[str]:
    """The table of all rows, sortable by every column."""
    keys = shown_scores(facts)
    yield '<section aria-labelledby="table">\n<h2 id="table">All methods</h2>'
    yield (
        f'<p class="note">Press a heading to sort. {MARK} on a coloured ground: Pareto-optimal for this cost. No other '
        f"row costs as little and has as much {escape(QUALITY[facts['metric']])}. Below a score: its 95 % interval. "
        f"{DASH}: not known.</p>"
    )
    yield f'{REGION.format(of="table")}\n<table class="sortable">\n<thead><tr>'
    yield head("method", "ascending", "name")
    for number, key in enumerate(keys):
        order = ' aria-sort="descending"' if number == 0 else ""
        yield head(QUALITY[key], more=order)
    for heading in COSTS.values():
        yield head(heading, "ascending")
    yield head("score a\ndecade") + head("seeds") + "</tr></thead>\n<tbody>"
    for row in facts["rows"]:
        yield _row(row, keys)
    yield '</tbody>\n</table>\n</div>\n<p class="unseen" id="sorted" aria-live="polite"></p>\n</section>'


def _row(row: Facts, keys: Sequence[str]) -> str:
    name = escape(row["name"])
    cells = [f'<th scope="row" class="name" data-value="{name}"><small>{row["number"]}</small> {name}</th>']
    for key in keys:
        found = row["quality"].get(key)
        interval = found["interval"] if found else None
        below = f"<br><small>{interval[0]:.1f} – {interval[1]:.1f}</small>" if interval else ""
        cells.append(cell(found["mean"], f"{found['mean']:.2f}{below}") if found else cell(None, DASH))
    for cost in COSTS:
        shown = escape(cost_text(cost, row["costs"][cost]))
        optimal = cost in row["pareto"]
        mark = f' <span aria-hidden="true">{MARK}</span><span class="unseen"> Pareto-optimal</span>' if optimal else ""
        cells.append(cell(row["costs"][cost], shown + mark, "optimal" if optimal else ""))
    cells += [cell(row["efficiency"], efficiency_text(row)), cell(len(row["seeds"]), str(len(row["seeds"])))]
    return f"<tr>{''.join(cells)}</tr>"


def _differences(facts: Facts) -> Iterator[str]:
    """All pairs as a matrix, row minus column; with many rows each minus the best."""
    if not facts["pairs"]:
        return
    metric = QUALITY[facts["metric"]]
    yield f'<section aria-labelledby="differences">\n<h2 id="differences">Differences in {escape(metric)}</h2>'
    yield (
        '<p class="note">Row minus column. <span class="clear">Bold</span>: more than noise (corrected p below '
        f"{LEVEL:g}); others are within noise. Rows have the numbers of the table above.</p>"
    )
    yield f"{REGION.format(of='differences')}\n<table>"
    pairs = {tuple(pair["rows"]): pair for pair in facts["pairs"]}
    numbers = sorted({number for pair in pairs for number in pair})
    columns = numbers if len(numbers) <= MATRIX else numbers[:1]
    names = {row["number"]: row["name"] for row in facts["rows"]}
    heads = "".join(f'<th scope="col">{n}</th>' for n in columns)
    yield f'<thead><tr><th scope="col" class="name">method</th>{heads}</tr></thead>\n<tbody>'
    for i in numbers:
        cells = "".join(_difference(pairs, i, j) for j in columns)
        yield f'<tr><th scope="row" class="name">{i}: {escape(names[i])}</th>{cells}</tr>'
    yield "</tbody>\n</table>\n</div>\n</section>"


def _difference(pairs: dict[Any, Facts], i: int, j: int) -> str:
    pair = pairs.get((min(i, j), max(i, j)))
    if i == j or pair is None:
        return "<td>·</td>" if i == j else f"<td>{DASH}</td>"
    difference = pair["difference"] if i < j else 0.0 - pair["difference"]
    kind = "clear" if pair["corrected"] < LEVEL else "noise"
    return f'<td class="{kind}" title="corrected p {p_text(pair["corrected"])}">{difference:+.2f}</td>'


def _method(facts: Facts) -> Iterator[str]:
    """How the numbers were made, and of what."""
    yield '<section aria-labelledby="how">\n<h2 id="how">How to read this</h2>\n<dl>'
    if facts["groups"]:
        groups = f"{facts['groups']['count']:,} {facts['groups']['what']}"
        yield (
            "<dt>95 % intervals</dt><dd>Of the mean over seeds and questions. The variance counts both: questions by "
            f"{escape(groups)} (questions of one text are not independent), and seeds where there are several "
            "(two-way clustering, Cameron, Gelbach and Miller 2011; Student's t). With one seed nothing is said of "
            "other seeds; with two or three the interval over seeds is rough.</dd>"
            "<dt>More than noise</dt><dd>Two rows are compared on the same questions. p-values are corrected for the "
            f"number of pairs, {len(facts['pairs']):,}, by Holm's method.</dd>"
        )
    yield (
        "<dt>Score a decade</dt><dd>(score − 50) / log₁₀(trainable parameters), of Hulburd 2020.</dd>"
        "<dt>best F1</dt><dd>At the threshold that is best on these very questions: an upper bound.</dd>"
        "<dt>Heads on a frozen encoder</dt><dd>Their trainable parameters and bytes are those of the head alone.</dd>"
    )
    if facts["machines"]:
        yield f"<dt>Times and memory</dt><dd>Measured on {escape('; '.join(facts['machines']))}.</dd>"
    runs = sum(len(row["runs"]) for row in facts["rows"])
    yield f"<dt>Models</dt><dd>{runs:,}, in:</dd></dl>\n<details><summary>all folders</summary>\n<ul>"
    for row in facts["rows"]:
        for folder, seed in zip(row["runs"], row["seeds"]):
            yield f"<li>{row['number']}, seed {seed}: {escape(folder)}</li>"
    yield "</ul>\n</details>\n</section>"


def _write_files(drawn: Drawn, folder: Path) -> list[Path]:
    """SVG and PNG of a figure, on white."""
    paths = []
    for kind, settings in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": RESOLUTION})):
        path = folder / f"{drawn.name}.{kind}"
        with atomic_file(path) as part:
            drawn.figure.savefig(part, format=kind, facecolor="white", **settings)
        paths.append(path)
    return paths

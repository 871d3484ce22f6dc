"""The four papers as one HTML page that needs nothing else: claims, tables and figures; and the claims as Markdown."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from quoth.files import write_text
from quoth.report.comparison_figures import figure_style
from quoth.report.comparison_tables import DASH, p_text
from quoth.report.page_parts import REGION, cell, closing, figure_html, head, inline_svg, opening
from quoth.report.paper_figures import draw_item
from quoth.report.plots import check_plots
from quoth.report.reproduce_tables import column_head, effect_text, number_cells, sizes_cells

Facts = dict[str, Any]

TITLE = "The claims of four papers, tested"


def write_paper_page(facts: Facts, page: Path) -> None:
    """Write the page of what `quoth.experiments.paper_report` has gathered."""
    check_plots()
    import matplotlib

    figures = {}
    with matplotlib.rc_context(figure_style()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that the font lacks is drawn as a box
        for number, item in enumerate((item for paper in facts["papers"] for item in paper["items"]), 1):
            drawn = draw_item(item)
            if drawn is not None:
                figures[item["item"]] = figure_html(drawn, inline_svg(drawn.figure, number))
    write_text(page, render_paper_page(facts, figures))


def render_paper_page(facts: Facts, figures: dict[str, str]) -> str:
    """The page; figures: as HTML by item."""
    return "\n".join(_page(facts, figures)) + "\n"


def _page(facts: Facts, figures: dict[str, str]) -> Iterator[str]:
    yield opening(TITLE, facts["summary"])
    yield from _claims(facts)
    for paper in facts["papers"]:
        name = paper["name"]
        yield f'<section aria-labelledby="{name}">\n<h2 id="{name}">{escape(paper["title"])}</h2>'
        for item in paper["items"]:
            if item["state"] == "run":
                yield from _item(item, figures.get(item["item"], ""))
        yield from _not_run(paper["items"])
        yield "</section>"
    yield from _method(facts)
    yield closing("Made by quoth reproduce --report.")


def _claims(facts: Facts) -> Iterator[str]:
    """All claims of items that were run, sortable."""
    if not facts["claims"]:
        return
    yield '<section aria-labelledby="claims">\n<h2 id="claims">Claims</h2>'
    yield (
        '<p class="note">Press a heading to sort. Effect: the difference that says the least for the claim, '
        f"with its 95 % interval; points of F1 unless the claim says otherwise. {DASH}: not known.</p>"
    )
    yield f'{REGION.format(of="claims")}\n<table class="sortable">\n<thead><tr>'
    yield head("what the paper says", "ascending", "name") + head("verdict", "ascending", "name") + head("effect")
    yield head("table or figure", "ascending", "name") + head("p, corrected", "ascending") + head("seeds")
    yield "</tr></thead>\n<tbody>"
    for claim in facts["claims"]:
        yield _claim(claim)
    yield '</tbody>\n</table>\n</div>\n<p class="unseen" id="sorted" aria-live="polite"></p>\n</section>'


def _claim(claim: Facts) -> str:
    says, verdict, item = escape(claim["says"]), escape(claim["verdict"]), escape(claim["item"])
    what, mark = escape(claim["what"] or claim["why"]), item.replace("/", "-")
    effect = escape(effect_text(claim)) or DASH
    shown = p_text(claim["corrected"]) if claim["corrected"] is not None else DASH
    return (
        f'<tr><th scope="row" class="name" data-value="{says}">{says}<br><small>{what}</small></th>'
        f'<td class="name" data-value="{verdict}">{verdict}</td>{cell(claim["effect"], effect)}'
        f'<td class="name" data-value="{item}"><a href="#{mark}">{item}</a></td>'
        f"{cell(claim['corrected'], escape(shown))}{cell(claim['seeds'], str(claim['seeds'] or DASH))}</tr>"
    )


def _item(item: Facts, figure: str) -> Iterator[str]:
    """A table or figure: what was run, numbers in print and here, the figure."""
    mark = item["item"].replace("/", "-")
    yield f'<h3 class="item" id="{mark}">{escape(item["item"])}: {escape(item["title"])}</h3>'
    notes = [item["note"], *(f"Here: {line}." for line in item["settings"])]
    yield from (f'<p class="note">{escape(note)}</p>' for note in notes if note)
    yield f'<p class="note"><code>{escape(item["command"])}</code></p>'
    table = list(_rows(item, mark))
    if figure:
        yield f'<div class="figures">{figure}</div>'
        table = ["<details><summary>numbers</summary>", *table, "</details>"] if table else []
    yield from table
    yield from _sizes(item, mark)


def _rows(item: Facts, mark: str) -> Iterator[str]:
    columns = [key for key in item["columns"] if _is_known(item, key)]
    if not columns:
        return
    words = [escape(column_head(key)).replace("\n", "<br>") for key in columns]
    heads = "".join(f'<th scope="col">{one}<br>{where}</th>' for one in words for where in ("in print", "here"))
    yield f'{REGION.format(of=mark)}\n<table>\n<thead><tr><th scope="col" class="name">row</th>'
    yield f'<th scope="col">seeds</th>{heads}</tr></thead>\n<tbody>'
    for row in item["rows"]:
        why = f"<br><small>{escape(row['why'])}</small>" if row["why"] else ""
        cells = "".join(_number(row, key) for key in columns)
        name = f'<th scope="row" class="name">{escape(row["name"])}{why}</th>'
        yield f"<tr>{name}<td>{len(row['seeds']) or DASH}</td>{cells}</tr>"
    yield "</tbody>\n</table>\n</div>"


def _sizes(item: Facts, mark: str) -> Iterator[str]:
    """Sizes by layer, where the item prints them and no figure shows them."""
    for row in item["rows"] if "sizes" in item["columns"] and item["drawing"] is None else ():
        title, heads, lines = sizes_cells(row)
        cells = "".join(f'<th scope="col">{escape(one)}</th>'.replace("\n", "<br>") for one in heads)
        yield f'<p class="note">{escape(title)}</p>\n{REGION.format(of=mark)}\n<table>\n<thead><tr>{cells}</tr></thead>'
        yield "<tbody>"
        yield from (f"<tr>{''.join(f'<td>{escape(one)}</td>' for one in line)}</tr>" for line in lines)
        yield "</tbody>\n</table>\n</div>"


def _is_known(item: Facts, key: str) -> bool:
    """Whether a row has a number in this column."""
    return any(key in row["found"] or key in row["paper"] for row in item["rows"]) and key != "sizes"


def _number(row: Facts, key: str) -> str:
    printed, here, between = number_cells(row, key)
    below = f"<br><small>{escape(between)}</small>" if between != DASH else ""
    return f"<td>{escape(printed)}</td><td>{escape(here)}{below}</td>"


def _not_run(items: Sequence[Facts]) -> Iterator[str]:
    """What has no stored runs, in short, with the command that runs it."""
    missing = [item for item in items if item["state"] == "not run"]
    if missing:
        yield f"<details><summary>not run: {len(missing)} tables and figures</summary>\n<ul>"
        yield from (f"<li>{escape(item['title'])}: <code>{escape(item['command'])}</code></li>" for item in missing)
        yield "</ul>\n</details>"


def _method(facts: Facts) -> Iterator[str]:
    folders = escape(", ".join(facts["folders"]) or "none")
    yield '<section aria-labelledby="how">\n<h2 id="how">How to read this</h2>\n<dl>'
    yield f"<dt>Verdicts</dt><dd>{escape(facts['rule'])} Not testable here: a run or a seed is missing.</dd>"
    yield (
        "<dt>In print, here</dt><dd>Another encoder on other data has other scores. Differences between rows "
        "are judged.</dd><dt>95 % intervals</dt><dd>Of the mean over seeds and questions (two-way clustering, "
        "Cameron, Gelbach and Miller 2011; Student's t). With one seed nothing is said of other seeds.</dd>"
        "<dt>Commands</dt><dd>They name the settings that all rows have in common. The whole recipe of a run is in its "
        f"recipe.toml.</dd><dt>Stored runs</dt><dd>{folders}</dd></dl>\n</section>"
    )


def claims_markdown(facts: Facts) -> str:
    """The claims that could be tested as a table, the others in short with the reason; and the commands."""
    tested = [claim for claim in facts["claims"] if claim["effect"] is not None]
    lines = [f"# {TITLE}", "", *facts["summary"], "", facts["rule"], ""]
    if tested:
        lines += [
            "| table or figure | what the paper says | effect (95 %) | seeds | verdict |",
            "|---|---|---|---|---|",
        ]
        lines += [_markdown(claim) for claim in tested] + [""]
        commands = {claim["item"]: claim["command"] for claim in tested}
        lines += ["Commands:", "", *(f"- {item}: `{command}`" for item, command in commands.items()), ""]
    untested = [claim for claim in facts["claims"] if claim["effect"] is None]
    if untested:
        lines += ["Not testable here:", "", *(f"- {c['item']}: {c['says']} ({c['why']})" for c in untested), ""]
    missing = [item["item"] for paper in facts["papers"] for item in paper["items"] if item["state"] == "not run"]
    if missing:
        lines += [f"Not run (`quoth reproduce NAME`): {', '.join(missing)}.", ""]
    return "\n".join(lines)


def _markdown(claim: Facts) -> str:
    effect = f"{claim['what']}: {effect_text(claim)}"
    cells = (claim["item"], claim["says"], effect, str(claim["seeds"]), claim["verdict"])
    return f"| {' | '.join(text.replace('|', '/') for text in cells)} |"

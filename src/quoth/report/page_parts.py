"""What the pages of reports have in common: the frame with style and script, cells of sortable tables, figures.

A page needs nothing else: a content-security policy lets it load nothing, and every text that comes from files is
escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from io import StringIO
from typing import TYPE_CHECKING

from quoth.report.comparison_figures import INK, Drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'"
REGION = '<div class="scroll" tabindex="0" role="group" aria-labelledby="{of}">'
NAMESPACES = re.compile(r'\sxmlns(:\w+)?="[^"]*"')


def opening(title: str, summary: Sequence[str]) -> str:
    """The page up to and with its summary."""
    lines = "\n".join(f"<li>{escape(line)}</li>" for line in summary)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<title>{escape(title)}</title>
<style>
{_asset("comparison.css")}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
</header>
<main>
<section aria-labelledby="short">
<h2 id="short">In short</h2>
<ul class="summary">
{lines}
</ul>
</section>"""


def closing(made: str) -> str:
    """The end of the page, with the script."""
    script = f"<script>\n{_asset('comparison.js')}</script>"
    return f'</main>\n<footer><p class="note">{escape(made)}</p></footer>\n{script}\n</body>\n</html>'


def cell(value: float | None, shown: str, kind: str = "") -> str:
    """A cell of a sortable table; value: what it is sorted by."""
    css = f' class="{kind}"' if kind else ""
    return f'<td{css} data-value="{"" if value is None else repr(value)}">{shown}</td>'


def head(text: str, first: str = "descending", kind: str = "", more: str = "") -> str:
    """A heading of a sortable table; first: the order at the first press."""
    css = f' class="{kind}"' if kind else ""
    shown = escape(text).replace("\n", "<br>")
    return f'<th scope="col"{css} data-first="{first}"{more}><button type="button">{shown}</button></th>'


def figure_html(drawn: Drawn, svg: str) -> str:
    """A figure with its title and caption."""
    return (
        f"<figure>\n<h3>{escape(drawn.title)}</h3>\n{svg}\n<figcaption>{escape(drawn.caption)}</figcaption>\n</figure>"
    )


def inline_svg(figure: Figure, number: int) -> str:
    """A figure as SVG inside HTML: no addresses, identifiers of its own, in the colour of the page's text."""
    from matplotlib import rc_context

    out = StringIO()
    with rc_context({"svg.hashsalt": f"figure{number}"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].replace("xlink:href", "href")
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = NAMESPACES.sub("", svg).replace(INK, "currentColor")
    svg = re.sub(r'\bid="', f'id="f{number}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#f{number}-", svg)
    return svg.replace("<svg ", '<svg role="img" aria-hidden="true" focusable="false" ', 1).strip()


def _asset(name: str) -> str:
    return files("quoth.report").joinpath(name).read_text(encoding="utf-8")

"""The lines of a page in reading order, and the lines that are no part of the text: running heads and page numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from quoth.search.pdf_page import Line

NUMBER = re.compile(
    r"[-–—\[(\s|.]*(?:page|seite|p\.)?\s*(?:\d{1,4}|[ivxlc]{1,7})(?:\s*(?:of|/|von)\s*\d{1,4})?[-–—\])\s|.]*", re.I
)
DIGITS = re.compile(r"\d+|\b[ivxlc]+\b")
NEAR = 4.0  # points between the places of the same running head on two pages
SIDES = 6  # lines that a column has at least
Row = list[Line]


def in_order(lines: Sequence[Line]) -> list[Row]:
    """The rows of a page, columns one after the other. The lines of a row stand side by side, from left to right.

    A gutter is a vertical strip that few lines cross, with full lines on both sides of it (cells of a table are short).
    Lines that cross it (a title, a wide figure) divide the page: what is above is read before what is below.
    """
    gutter = _gutter(lines)
    if gutter is None:
        ends = sorted(line.x1 for line in lines)
        for line in lines:
            line.right = ends[len(ends) * 4 // 5]
        return _rows(lines)
    found: list[Row] = []
    left: list[Line] = []
    right: list[Line] = []
    for line in sorted(lines, key=lambda one: -(one.y0 + one.y1)):
        if line.x1 <= gutter + 1:
            left.append(line)
        elif line.x0 >= gutter - 1:
            right.append(line)
        else:
            found += in_order(left) + in_order(right) + [[line]]
            left, right = [], []
    return found + in_order(left) + in_order(right)


def _gutter(lines: Sequence[Line]) -> float | None:
    """The middle of the strip between two columns, if there are two."""
    if len(lines) < 2 * SIDES:
        return None
    low, high = min(line.x0 for line in lines), max(line.x1 for line in lines)
    best: tuple[int, float, float] | None = None
    for middle in _candidates(lines, low, high):
        left = [line for line in lines if line.x1 <= middle]
        right = [line for line in lines if line.x0 >= middle]
        crossing = len(lines) - len(left) - len(right)
        if crossing > 0.25 * len(lines) or not _are_columns(left, right):
            continue
        if min(max(line.y1 for line in left), max(line.y1 for line in right)) <= max(
            min(line.y0 for line in left), min(line.y0 for line in right)
        ):
            continue  # one is above the other
        quality = (crossing, abs(middle - (low + high) / 2), middle)
        best = quality if best is None else min(best, quality)
    return None if best is None else best[2]


def _candidates(lines: Sequence[Line], low: float, high: float) -> list[float]:
    """Places where many lines begin, long ones above all: just to the left of them."""
    widths: Counter[int] = Counter()
    for line in lines:
        if line.x0 > low + 0.15 * (high - low):
            widths[round(line.x0)] += round(line.x1 - line.x0)
    return [place - 2.0 for place, _ in widths.most_common(6)]


def _are_columns(left: Sequence[Line], right: Sequence[Line]) -> bool:
    """Whether these are columns and not the cells of a table.

    Columns are written one after the other, and have full lines. Where the file goes back and forth between the sides,
    as it does in a table, nearly all of the text must be in full lines.
    """
    if min(len(left), len(right)) < SIDES:
        return False
    sides = [side for _, side in sorted([(line.number, 0) for line in left] + [(line.number, 1) for line in right])]
    changes = sum(a != b for a, b in pairwise(sides))
    least = 0.85 if changes > 4 + min(len(left), len(right)) // 5 else 0.3
    return min(_full(left), _full(right)) >= least


def _full(lines: Sequence[Line]) -> float:
    """How much of the text, by its width, is in lines about as wide as all of them together."""
    width = max(line.x1 for line in lines) - min(line.x0 for line in lines)
    wide = [line.x1 - line.x0 for line in lines if line.x1 - line.x0 >= 0.7 * width]
    if len(wide) < 5 or width < 10 * lines[0].size:
        return 0.0
    return sum(wide) / sum(line.x1 - line.x0 for line in lines)


def _rows(lines: Sequence[Line]) -> list[Row]:
    """Lines from top to bottom; those at the same height make a row."""
    rows: list[Row] = []
    bounds: list[list[float]] = []
    for line in sorted(lines, key=lambda one: -(one.y0 + one.y1)):
        height = line.y1 - line.y0
        if rows:
            low, high = bounds[-1]
            apart = all(line.x0 >= other.x1 - 1 or line.x1 <= other.x0 + 1 for other in rows[-1])
            if apart and min(high, line.y1) - max(low, line.y0) > 0.5 * min(height, high - low):
                rows[-1].append(line)
                continue
        rows.append([line])
        bounds.append([line.y0, line.y1])
    return [sorted(row, key=lambda one: one.x0) for row in rows]


def without_running_heads(pages: Sequence[list[Line]]) -> list[list[Line]]:
    """The pages without running heads, feet and page numbers.

    Such a line is among the outermost at the top or the bottom of its page. It is left out if it is a number alone, or
    if lines that differ in their numbers only stand at the same height of at least three pages and of a tenth of them
    (of both, where there are two).
    """
    edges = [_edges(lines) for lines in pages]
    seen: Counter[tuple[str, int]] = Counter()
    for lines in edges:
        seen.update({key for line in lines for key in _keys(line)})
    most = max(3, len(pages) // 10) if len(pages) > 2 else 2
    found = []
    for lines, outer in zip(pages, edges):
        gone = {id(line) for line in outer if max(seen[key] for key in _keys(line)) >= most}
        gone |= {id(line) for line in _numbers(lines)}
        found.append([line for line in lines if id(line) not in gone] or lines)  # a page of heads alone has none
    return found


def _keys(line: Line) -> list[tuple[str, int]]:
    """What the same running head on other pages shares: its words without numbers, and its height within `NEAR`."""
    words = " ".join(DIGITS.sub("", line.text.lower()).split())
    step = int(line.y0 // NEAR)
    return [(words, step), (words, step + 1)]


def _edges(lines: Sequence[Line]) -> list[Line]:
    """The lines of the first two and the last two rows of a page; of one each where it has few."""
    rows = _rows([line for line in lines if line.upright])
    count = 2 if len(rows) > 6 else 1
    return [line for row in rows[:count] + rows[-count:] for line in row]


def _numbers(lines: Sequence[Line]) -> list[Line]:
    """The page number in the first or the last row, and what stands beside it, if the row is apart from the others."""
    rows = _rows([line for line in lines if line.upright])
    if len(rows) < 2:
        return []
    found = []
    for row, inner in ((rows[0], rows[1]), (rows[-1], rows[-2])):
        apart = abs(row[0].y0 - inner[0].y0) > 1.6 * max(row[0].size, inner[0].size)
        if apart and len(row) <= 3 and any(NUMBER.fullmatch(row[i].text) for i in (0, -1)):
            found += row
    return found


def line_pitch(rows: Sequence[Row]) -> float:
    """The usual distance from one row to the next."""
    steps = sorted(a[0].y0 - b[0].y0 for a, b in pairwise(rows) if 0 < a[0].y0 - b[0].y0 < 4 * max(a[0].size, 1))
    return steps[len(steps) // 2] if steps else 0.0

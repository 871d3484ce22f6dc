"""A reproduced table of a paper: for a screen of 80 columns, and as Markdown. In each cell: in print → here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from quoth.report.comparison_tables import DASH, cost_text, p_text
from quoth.report.tables import unbroken

Facts = dict[str, Any]

HEADS = {
    "f1": "F1",
    "exact": "EM",
    "acc": "accuracy",
    "mcc": "Matthews",
    "trainable_parameters": "trainable\nparameters",
    "train_seconds": "training\ns",
    "inference_seconds": "inference\ns",
    "efficiency": "score a\ndecade",
    "loss": "training\nloss",
    "HasAns_f1": "F1, has\nanswer",
    "NoAns_f1": "F1, no\nanswer",
    "called_no_answer": "wrong: no\nanswer, %",
    "second_right": "second\nright, %",
    "average": "average",
}
COSTS = ("trainable_parameters", "train_seconds", "inference_seconds")
EACH = 2  # columns of a table, in print and here each, so that it has at most 80 columns
SHOWN = "fakv"
LETTERS = {"f": "ffn", "a": "heads", "k": "key", "v": "value"}


def print_reproduced(facts: Facts, console: Console) -> None:
    """The table, its curves or sizes, and the verdicts."""
    console.print(f"{facts['item']}: {facts['title']}", style="bold", soft_wrap=True)
    console.print(facts["paper"])
    if not facts["rows"]:
        console.print(f"prints {facts['shows']}", highlight=False)
    if facts["note"]:
        console.print(facts["note"])
    for line in facts["settings"]:
        console.print(f"here: {line}", soft_wrap=True)
    for table in reproduced_tables(facts):
        console.print()
        console.print(table)
    for row in facts["rows"]:
        if row["why"]:
            console.print(f"{row['name']}: {row['why']}", soft_wrap=True)
    if facts["claims"]:
        console.print()
        for claim in facts["claims"]:
            console.print(claim_text(claim))
        console.print(facts["rule"])


def claim_text(claim: Facts) -> str:
    """A claim with its verdict and what it rests on, in a sentence."""
    text = f"{claim['verdict'].upper()}: {claim['says']}"
    if claim["why"]:
        return f"{text} ({claim['why']})"
    return f"{text} ({claim['what']}: {effect_text(claim)}, p {p_text(claim['corrected'])})"


def effect_text(claim: Facts) -> str:
    """The effect with its 95 % interval; "" where there is none. A level or a ratio has no sign."""
    if claim["effect"] is None:
        return ""
    sign = "+" if claim["signed"] else ""
    low, high = claim["interval"]
    return f"{claim['effect']:{sign}.2f} ({low:{sign}.2f} to {high:{sign}.2f})"


def reproduced_tables(facts: Facts) -> Iterator[Table]:
    """Two columns of numbers a table, then curves and sizes."""
    columns = [column for column in facts["columns"] if column != "sizes"]
    for first in range(0, len(columns), EACH):
        some = columns[first : first + EACH]
        if any(column in row["paper"] or column in row["found"] for row in facts["rows"] for column in some):
            yield _numbers(facts, some)
    yield from _curves(facts)
    if "sizes" in facts["columns"]:
        yield from _sizes(facts)


def _numbers(facts: Facts, columns: Sequence[str]) -> Table:
    heads = [head for column in columns for head in (f"{column_head(column)}\nin print", "here", "95 %")]
    table = Table("row", "seeds", *heads)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in facts["rows"]:
        cells = [text for column in columns for text in number_cells(row, column)]
        table.add_row(row["name"], str(len(row["seeds"]) or DASH), *cells)
    _drop_empty(table)
    return unbroken(table, words=0)


def _drop_empty(table: Table) -> None:
    """Leave out columns, such as intervals, that no row has."""
    table.columns = [
        column for i, column in enumerate(table.columns) if i < 2 or any(cell != DASH for cell in column.cells)
    ]
    for i, column in enumerate(table.columns):
        column._index = i


def number_cells(row: Facts, column: str) -> tuple[str, str, str]:
    """In print, here, and the interval."""
    found = row["found"].get(column)
    interval = found["interval"] if found else None
    between = f"{interval[0]:.1f}–{interval[1]:.1f}" if interval else DASH
    return _number(column, row["paper"].get(column)), _number(column, found["mean"] if found else None), between


def _number(column: str, value: float | None) -> str:
    if value is None:
        return DASH
    return cost_text(column, value) if column in COSTS else f"{value:.3f}" if column == "loss" else f"{value:.2f}"


def column_head(column: str) -> str:
    """The words for a column; of a task and a score both."""
    if column in HEADS:
        return HEADS[column]
    task, _, score = column.rpartition("_")
    return f"{task}\n{HEADS.get(score, score)}"


def _curves(facts: Facts) -> Iterator[Table]:
    """Of each row a table of the first seed's, a line a moment."""
    for name in dict.fromkeys(name for row in facts["rows"] for name in row["curves"]):
        key = name.removesuffix("_curve")
        title = "training loss" if key == "loss" else HEADS.get(key, key)
        for row in facts["rows"]:
            points = row["curves"].get(name) or []
            if points and points[0]:
                table = Table()
                for head in ("epochs", f"{row['name']}\n{title}"):
                    table.add_column(head, justify="right")
                for epoch, value in points[0]:
                    table.add_row(f"{epoch:.2f}", f"{value:.3f}" if key == "loss" else f"{value:.2f}")
                yield unbroken(table)


def _sizes(facts: Facts) -> Iterator[Table]:
    """Of each row the sizes by layer, in print where there are any."""
    for row in facts["rows"]:
        title, heads, lines = sizes_cells(row)
        table = Table(title=title, title_justify="left")
        for head in heads:
            table.add_column(head, justify="right")
        for line in lines:
            table.add_row(*line)
        if lines:
            yield unbroken(table)


def sizes_cells(row: Facts) -> tuple[str, list[str], list[list[str]]]:
    """A title, headings, and a line for each layer: sizes in print and here, of the first seed."""
    printed = row["paper"].get("sizes", {})
    here = row["sizes"][0] if row["sizes"] else None
    title = f"{row['name']}; hidden size: in print {printed.get('h', DASH)}, here {here['hidden'] if here else DASH}"
    heads = ["layer", *(f"{LETTERS[letter]}\n{where}" for letter in SHOWN for where in ("in print", "here"))]
    count = len(here["layers"]) if here else max(map(len, (printed[one] for one in SHOWN if one in printed)), default=0)
    lines = []
    for i in range(count):
        cells = [str(i + 1)]
        for letter in SHOWN:
            listed = printed.get(letter, [])
            cells.append(str(listed[i]) if i < len(listed) else DASH)
            cells.append(str(here["layers"][i][LETTERS[letter]]) if here else DASH)
        lines.append(cells)
    return title, heads, lines

"""A comparison as tables of 80 columns, and as CSV. Rows go by their number; the first table says which is which."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from quoth.report.tables import unbroken
from quoth.score.quality import NAMES

Facts = dict[str, Any]

DASH, MARK = "—", "◆"
COSTS = {
    "trainable_parameters": "trainable\nparameters",
    "total_parameters": "all\nparameters",
    "train_seconds": "training\ns",
    "inference_seconds": "inference\ns",
    "bytes": "disk\nMB",
    "peak_memory": "memory\nMB",
}
_SHORT = {"f1": "F1", "exact": "EM", "best_f1": "best F1"}
QUALITY = {**_SHORT, **{name: words for name, words in NAMES.items() if name not in _SHORT}}  # the main score first
LEVEL = 0.05
PAIRS = 12  # rows of the table of differences; --json and the page have all


def print_comparison(facts: Facts, console: Console) -> None:
    """Print the summary, then quality, costs and the differences from the best row."""
    for line in facts["summary"]:
        console.print(line)
    for table in _tables(facts):
        console.print()
        console.print(table)
    console.print(f"{MARK} Pareto-optimal for this cost: no other row costs as little and has as high a score.")
    if facts["pairs"]:
        groups = f"{facts['groups']['count']:,} {facts['groups']['what']}"
        console.print(f"Intervals are over seeds and questions, by {groups}; p-values are corrected by Holm's method.")


def _tables(facts: Facts) -> Iterator[Table]:
    yield _quality(facts)
    yield _costs(facts)
    if facts["pairs"]:
        yield _differences(facts)


def shown_scores(facts: Facts) -> list[str]:
    """The scores that some row has, the one that rows are judged by first."""
    known = [key for key in QUALITY if any(key in row["quality"] for row in facts["rows"])]
    return sorted(known, key=lambda key: key != facts["metric"])


def _quality(facts: Facts) -> Table:
    keys = shown_scores(facts)
    table = Table("row", "method", "seeds", QUALITY[keys[0]], "95 %", *(QUALITY[key] for key in keys[1:3]))
    for column in table.columns[2:]:
        column.justify = "right"
    for row in facts["rows"]:
        found = [row["quality"].get(key) for key in keys[:3]]
        first = found[0]["interval"] if found[0] else None
        cells = [_score(one) for one in found]
        interval = f"{first[0]:.2f}–{first[1]:.2f}" if first else DASH
        table.add_row(str(row["number"]), row["name"], str(len(row["seeds"])), cells[0], interval, *cells[1:])
    return unbroken(table, words=1)


def _costs(facts: Facts) -> Table:
    table = Table("row", *COSTS.values(), "score a\ndecade")
    for column in table.columns:
        column.justify = "right"
    for row in facts["rows"]:
        cells = [cost_text(cost, row["costs"][cost]) + (MARK if cost in row["pareto"] else " ") for cost in COSTS]
        table.add_row(str(row["number"]), *cells, efficiency_text(row))
    return unbroken(table)


def _differences(facts: Facts) -> Table:
    """Each row minus the best."""
    metric = QUALITY[facts["metric"]]
    table = Table("row", f"{metric}\nminus row 1", "95 %", "p", "p\ncorrected", "")
    for column in table.columns[:5]:
        column.justify = "right"
    pairs = [pair for pair in facts["pairs"] if pair["rows"][0] == 1]
    for pair in pairs[:PAIRS]:
        low, high = (0.0 - end for end in reversed(pair["interval"]))  # 0 − 0 is 0, but −(0) is −0
        noise = "within noise" if pair["corrected"] >= LEVEL else "worse" if pair["difference"] > 0 else "better"
        numbers = (f"{0.0 - pair['difference']:+.2f}", f"{low:+.2f} to {high:+.2f}", p_text(pair["p_value"]))
        table.add_row(str(pair["rows"][1]), *numbers, p_text(pair["corrected"]), noise)
    if len(pairs) > PAIRS:
        table.caption = f"{len(pairs) - PAIRS} more; --json and the page have all"
    return unbroken(table)


def _score(found: Facts | None) -> str:
    return DASH if found is None else f"{found['mean']:.2f}"


def cost_text(cost: str, value: float | None) -> str:
    """A cost in its unit: bytes in MB, seconds to three digits, parameters as they are."""
    if value is None:
        return DASH
    if cost in ("bytes", "peak_memory"):
        return f"{value / 1e6:,.1f}"
    if cost.endswith("seconds"):
        return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"
    return f"{round(value):,}"


def efficiency_text(row: Facts) -> str:
    """(F1 − 50) / log₁₀(trainable parameters)."""
    return DASH if row["efficiency"] is None else f"{row['efficiency']:.2f}"


def p_text(p_value: float) -> str:
    """A p-value to three digits; very small ones as a bound."""
    return "<0.0001" if p_value < 1e-4 else f"{p_value:.4f}"


def comparison_csv(facts: Facts) -> str:
    """One line a row, with all numbers; what is not known is empty."""
    keys = shown_scores(facts)
    heads = ["row", "method", "seeds"]
    for key in keys:
        heads += [key, f"{key}_low", f"{key}_high"]
    heads += [*COSTS, "efficiency", "pareto", "difference_from_best", "p_value", "p_corrected"]
    pairs = {pair["rows"][1]: pair for pair in facts["pairs"] if pair["rows"][0] == 1}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    for row in facts["rows"]:
        writer.writerow([_safe(cell) for cell in _csv_cells(row, keys, pairs.get(row["number"]))])
    return out.getvalue()


def _csv_cells(row: Facts, keys: Sequence[str], pair: Facts | None) -> list[Any]:
    cells = [row["number"], row["name"], " ".join(map(str, row["seeds"]))]
    for key in keys:
        found = row["quality"].get(key)
        low, high = (found["interval"] if found else None) or (None, None)
        cells += [found["mean"] if found else None, low, high]
    cells += [row["costs"][cost] for cost in COSTS]
    cells += [row["efficiency"], " ".join(row["pareto"])]
    return cells + ([0.0 - pair["difference"], pair["p_value"], pair["corrected"]] if pair else [None] * 3)


def _safe(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets a quote before it."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t")) else cell

"""An analysis as tables of at most 100 columns. Runs go by their number; the first lines say which is which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from quoth.score.quality import NAMES

ACROSS = 8  # runs side by side
TITLES = 12  # articles shown
SLICES = {
    "context_length": "context length, words",
    "question_length": "question length, words",
    "answer_length": "answer length, words",
    "question_word": "question word",
    "title": "article",
}
PARTS = (("", "all"), ("HasAns_", "has answer"), ("NoAns_", "no answer"))

Facts = dict[str, Any]


def print_analysis(facts: Facts, console: Console) -> None:
    """Print what `quoth analyse --json` would."""
    runs: list[Facts] = facts["runs"]
    console.print(f"{facts['questions']:,} questions of {facts['data']}", soft_wrap=True)
    for number, run in enumerate(runs, 1):
        threshold = "never abstains" if run["threshold"] is None else f"threshold {run['threshold']:.4g}"
        best = f"best F1 {run['best']['f1']:.2f} at {run['best']['threshold']:.4g}"
        console.print(f"run {number}: {run['run']}, {threshold} ({best})", soft_wrap=True)
    for table in _tables(facts, runs):
        console.print()
        console.print(table)
    if "together" in facts:
        found = facts["together"]
        exact, f1 = found["oracle"]["exact"], found["oracle"]["f1"]
        console.print(f"right in all runs: {found['all_right']:,}; in none: {found['none_right']:,}")
        console.print(f"the best run at each question (oracle): exact {exact:.2f}, F1 {f1:.2f}")


def print_curves(facts: Facts, console: Console) -> None:
    """Print what `quoth analyse --curves --json` would: a table a stage and metric, a row a head."""
    for number, stage in enumerate(facts["stages"]):
        if number:
            console.print()
        console.print(stage["stage"], soft_wrap=True)
        for metric in stage["metrics"]:
            for some in _blocks(len(stage["epochs"])):
                console.print()
                console.print(_curves(stage, metric, some))


def _curves(stage: Facts, metric: str, some: range) -> Table:
    epochs = (f"{stage['epochs'][i]:.3g}" for i in some)
    table = _table(f"{NAMES.get(metric, metric)} by epochs of the heads", "head", *epochs)
    if "encoder" in stage:
        table.add_row("the encoder's own", *(f"{stage['encoder'][metric]:.2f}" for _ in some))
    for name, curve in stage["heads"].items():
        table.add_row(_short(name), *(f"{curve[i][metric]:.2f}" for i in some))
    return table


def unbroken(table: Table, words: int | None = None) -> Table:
    """A table none of whose numbers is broken or cut, however narrow the screen; the column `words` gives way."""
    for number, column in enumerate(table.columns):
        if number == words:
            column.overflow = "fold"
            column.min_width = 8
            continue
        lines = [line for cell in (column.header, *column.cells) for line in str(cell).split("\n")]
        column.min_width = max(map(cell_len, lines), default=0)
        column.no_wrap = True
    table.padding = (0, 1, 0, 0)
    table.pad_edge = False
    table.box = box.SIMPLE_HEAD
    return table


def _tables(facts: Facts, runs: Sequence[Facts]) -> Iterator[Table]:
    yield _right(runs)
    yield _confusion(runs)
    yield _second(runs)
    for name in SLICES:
        yield from _slices(name, runs)
    yield from _layer_weights(runs)
    if "together" in facts:
        yield from _together(facts["together"], runs)


def _right(runs: Sequence[Facts]) -> Table:
    table = _table("right answers, per cent", "run", "", "questions", "exact", "95 %", "F1", "95 %", left=2)
    for number, run in enumerate(runs, 1):
        head = str(number)
        for prefix, label in PARTS:
            if f"{prefix}total" in run:
                table.add_row(head, label, f"{run[f'{prefix}total']:,}", *_scores(run, prefix))
                head = ""
    return table


def _confusion(runs: Sequence[Facts]) -> Table:
    """Five boxes, what the wrong abstentions were, and the area under risk and coverage."""
    boxes = ("has answer\nright", "\nwrong", "\nabstained", "no answer\nabstained", "\nanswered")
    table = _table("answers by kind", "run", *boxes, "wrong:\nabstained", "of these\nspan right", "risk–cov.\narea")
    for number, run in enumerate(runs, 1):
        counts = [f"{count:,}" for count in run["confusion"].values()]
        shares = [_percent(run[key]["share"]) for key in ("called_no_answer", "best_span_right")]
        table.add_row(str(number), *counts, *shares, f"{run['calibration']['area_under_risk_coverage']:.4f}")
    return table


def _second(runs: Sequence[Facts]) -> Table:
    title = "where the first answer is wrong: is the second right?"
    heads = ["run", "all\nwrong", "second\nright", "has answer\nwrong", "second\nright", "any of n\nright", "n"]
    heads += ["has answer of\nfirst right", "second\nright"]
    table = _table(title, *heads)
    for number, run in enumerate(runs, 1):
        every, some, any_of = run["second"]["all"], run["second"]["has_answer"], run["any_of_n"]
        shares = [_percent(run["has_answer_share"][which]) for which in ("first", "second")]
        cells = [f"{every['of']:,}", _percent(every["share"]), f"{some['of']:,}", _percent(some["share"])]
        table.add_row(str(number), *cells, _percent(any_of["share"]), str(any_of["n"]), *shares)
    return table


def _slices(name: str, runs: Sequence[Facts]) -> Iterator[Table]:
    """One run with its intervals, several by F1 alone; nothing where all questions are in one slice."""
    rows = [run["slices"][name] for run in runs]
    labels = [row["label"] for row in rows[0]]
    shown = range(min(len(labels), TITLES)) if name == "title" else range(len(labels))
    if len(labels) < 2:
        return
    more = "" if len(shown) == len(labels) else f", the {TITLES} largest of {len(labels):,}; --json has all"
    if len(runs) == 1:
        table = _table(f"by {SLICES[name]}{more}", "", "questions", "exact", "95 %", "F1", "95 %")
        for i in shown:
            table.add_row(_short(labels[i]), f"{rows[0][i]['questions']:,}", *_scores(rows[0][i], ""))
        yield table
        return
    for some in _blocks(len(runs)):
        table = _table(f"F1 by {SLICES[name]}{more}", "run", "questions", *(str(i + 1) for i in some))
        for i in shown:
            scores = (f"{rows[run][i]['f1']:.2f}" for run in some)
            table.add_row(_short(labels[i]), f"{rows[0][i]['questions']:,}", *scores)
        yield table


def _layer_weights(runs: Sequence[Facts]) -> Iterator[Table]:
    columns = [
        (f"{number}\n{name}", weights)
        for number, run in enumerate(runs, 1)
        for name, weights in run.get("layer_weights", {}).items()
    ]
    for some in _blocks(len(columns)):
        table = _table("layer weights", "layer", *(columns[i][0] for i in some))
        for layer in range(max(len(columns[i][1]) for i in some)):
            weights = (columns[i][1] for i in some)
            table.add_row(str(layer), *(f"{w[layer]:.4f}" if layer < len(w) else "" for w in weights))
        yield table


def _together(found: Facts, runs: Sequence[Facts]) -> Iterator[Table]:
    heads = ("run", "right", "context\nwords", "question\nwords", "alone\nright", "context\nwords", "question\nwords")
    table = _table("what each run alone gets right, with mean lengths", *heads)
    for number, (run, alone) in enumerate(zip(runs, found["uniquely_right"]), 1):
        table.add_row(str(number), *_lengths(run["right"]), *_lengths(alone))
    yield table
    for some in _blocks(len(runs)):
        table = _table("right in both", "run", *(str(i + 1) for i in some))
        for number, counts in enumerate(found["both_right"], 1):
            table.add_row(str(number), *(f"{counts[i]:,}" for i in some))
        yield table
    table = _table("difference from run 1", "run", "exact", "95 %", "p", "F1", "95 %", "p")
    for number, other in enumerate(found["against_first"], 2):
        cells: list[str] = []
        for key in ("exact", "f1"):
            cells += [f"{other[key]['difference']:+.2f}", _range(other[key]["interval"], "+")]
            cells.append(f"{other[key]['p_value']:.4f}")
        table.add_row(str(number), *cells)
    yield table


def _table(title: str, *heads: str, left: int = 1) -> Table:
    """A table whose first `left` columns are words and the others figures."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for i, head in enumerate(heads):
        words = i < left
        table.add_column(head, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    return table


def _scores(row: Facts, prefix: str) -> list[str]:
    cells: list[str] = []
    for key in (f"{prefix}exact", f"{prefix}f1"):
        cells += [f"{row[key]:.2f}", _range(row["interval"][key])]
    return cells


def _lengths(row: Facts) -> list[str]:
    means = (row["context_words"], row["question_words"])
    return [f"{row['questions']:,}", *("–" if mean is None else f"{mean:.1f}" for mean in means)]


def _blocks(count: int) -> Iterator[range]:
    for start in range(0, count, ACROSS):
        yield range(start, min(start + ACROSS, count))


def _range(interval: Sequence[float], sign: str = "") -> str:
    return f"{interval[0]:{sign}.1f} – {interval[1]:{sign}.1f}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1f} %"


def _short(label: str) -> str:
    return label if len(label) <= 30 else label[:29] + "…"

"""The tables and figures of the four papers, as data: which runs give their rows, the numbers in print, the claims.

`papers/PAPER.toml` has them. A row names a run and what of it is meant: its own model, a head on the encoder of some
epoch, a moment of its curve, an ensemble, or the models that were tuned on a pruned one, a task each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from quoth.config import fill, nearest, overridden, read_table
from quoth.errors import QuothError
from quoth.recipes import find_recipe

FOLDER = Path(__file__).parent / "papers"
PAPERS = ("hulburd", "bertvision", "schubert", "silva")
UNPRUNED = "unpruned"
# What the report can draw of an item: a cost of each row against F1; F1 over epochs, or over the part of the data, of
# rows that are moments of a run; the curve of each row; learned layer weights; a size by layer.
DRAWN = (
    "train_seconds", "inference_seconds", "trainable_parameters", "epochs", "data", "curve", "layer_weights",
    "ffn", "heads", "key", "value",
)  # fmt: skip


@dataclass(frozen=True)
class PaperRun:
    """A run that rows are made of.

    recipe, set: a shipped recipe and overrides; also: what stored sweeps may call the method
    data: "squad2", "squad1", "text" or a task of GLUE: what it is trained and scored on; windows: of its data
    other_encoder: not the one that `model` of the other runs names, so that it is left out if all get one model
    folder: of a pruning run, where its model lies; by default that of its target
    after: the pruning run whose model it starts from
    """

    recipe: str
    set: dict[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    data: str = "squad2"
    windows: int = 0
    other_encoder: bool = False
    folder: str = ""
    after: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table.

    run: where its numbers are from; head, epoch: of a head on the frozen encoder of that epoch; "encoder" is its own
    at: the moment of a curve, in epochs of the encoder, or of the head if there is one
    members: of an ensemble of heads of that epoch; tuned: a pruning run, or "unpruned": scores after tuning, by task
    paper: the numbers in print, by column; sizes: in print, of a pruned model; missing: why the row cannot be run
    """

    name: str
    run: str = ""
    head: str = ""
    epoch: float | None = None
    at: float | None = None
    members: tuple[str, ...] = ()
    tuned: str = ""
    paper: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)
    missing: str = ""

    def runs(self, tasks: tuple[str, ...]) -> list[str]:
        """The names of its runs; of a tuned one the pruning run first."""
        if self.missing:
            return []
        if not self.tuned:
            return [self.run]
        return [*([self.tuned] if self.tuned != UNPRUNED else []), *(f"{self.tuned} {task}" for task in tasks)]


@dataclass(frozen=True)
class Claim:
    """What the paper says of rows; `says` in words, and one of these (`quoth.experiments.verdicts` judges it):

    above: the first is above each of the others; above_each: each is above `than`; order: each is above the next
    pairs: the first of each pair is above the second; near: the two differ by at most `within` points
    ratio: the first over the second is at least `least`, at most `most`; level: so is each of these rows
    grows: the sizes or weights of these rows grow from the first layer to the last (Spearman's rank correlation)
    by: the column that it is about, by default that of the table
    """

    says: str
    above: tuple[str, ...] = ()
    above_each: tuple[str, ...] = ()
    than: str = ""
    order: tuple[str, ...] = ()
    pairs: tuple[tuple[str, ...], ...] = ()
    near: tuple[str, ...] = ()
    within: float = 0.0
    ratio: tuple[str, ...] = ()
    level: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    grows: tuple[str, ...] = ()
    by: str = ""

    @property
    def differences(self) -> list[tuple[str, str]]:
        """The pairs of rows whose difference it is about."""
        found = [(self.above[0], other) for other in self.above[1:]]
        found += [(each, self.than) for each in self.above_each]
        found += list(zip(self.order, self.order[1:]))
        found += [(one, other) for one, other in self.pairs]
        return found + ([(self.near[0], self.near[1])] if self.near else [])

    @property
    def rows(self) -> list[str]:
        """All rows that it names."""
        named = [name for pair in self.differences for name in pair]
        return list(dict.fromkeys([*named, *self.ratio, *self.level, *self.grows]))


@dataclass(frozen=True)
class Item:
    """A table or figure. shows: what is printed; columns: of it; by: the one that claims are about; note: a remark

    rows_of: items that the rows are taken from; more_rows: beside those
    draw: what the report draws of it (`DRAWN`)
    """

    title: str
    shows: str
    columns: tuple[str, ...] = ("f1", "exact")
    by: str = "f1"
    note: str = ""
    rows: tuple[Row, ...] = ()
    rows_of: tuple[str, ...] = ()
    more_rows: tuple[Row, ...] = ()
    claims: tuple[Claim, ...] = ()
    draw: str = ""


@dataclass(frozen=True)
class Paper:
    """A paper. encoder: that of its runs; windows: of its training data; tasks: what pruned models are tuned on."""

    title: str
    encoder: str
    windows: int
    runs: dict[str, PaperRun] = field(default_factory=dict)
    tasks: dict[str, PaperRun] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)

    def run(self, name: str) -> PaperRun:
        """A run by its name; "all 88M MRPC" is the task MRPC after the pruning run "all 88M"."""
        if name in self.runs:
            return self.runs[name]
        before, _, task = name.rpartition(" ")
        if before != UNPRUNED:
            return replace(self.tasks[task], after=before)
        return replace(self.tasks[task], set={**self.tasks[task].set, "model": self.encoder})


@cache
def read_paper(name: str) -> Paper:
    """The tables and figures of a paper."""
    path = FOLDER / f"{name}.toml"
    paper = fill(Paper, read_table(path), str(path))
    items = {key: replace(item, rows=_rows(paper, item)) for key, item in paper.items.items()}
    return replace(paper, items=items)


def _rows(paper: Paper, item: Item) -> tuple[Row, ...]:
    """The rows of an item with those that it takes from others, each once."""
    found = {row.name: row for name in item.rows_of for row in paper.items[name].rows}
    return (*found.values(), *item.rows, *item.more_rows)


def item_names() -> list[str]:
    """`PAPER/ITEM` of all items of all papers, in their order."""
    return [f"{paper}/{item}" for paper in PAPERS for item in read_paper(paper).items]


def find_item(name: str) -> tuple[str, Paper, Item]:
    """The paper's name, the paper and the item `PAPER/ITEM`."""
    if name not in item_names():
        raise QuothError(
            f"{name}: no such table or figure; did you mean {nearest(name, item_names())}? (quoth reproduce --list)"
        )
    paper, _, item = name.partition("/")
    return paper, read_paper(paper), read_paper(paper).items[item]


def runs_of(paper: Paper, item: Item, rows: tuple[str, ...] = (), tasks: tuple[str, ...] = ()) -> dict[str, PaperRun]:
    """The runs that an item needs, by name, pruning runs first. rows, tasks: some alone, by default all."""
    chosen = tasks or tuple(paper.tasks)
    names = [run for row in chosen_rows(item, rows) for run in row.runs(chosen)]
    found = {name: paper.run(name) for name in dict.fromkeys(names)}
    return dict(sorted(found.items(), key=lambda one: bool(one[1].after)))


def chosen_rows(item: Item, rows: tuple[str, ...]) -> tuple[Row, ...]:
    """The rows of an item of these names; all of them without names."""
    known = [row.name for row in item.rows]
    for name in rows:
        if name not in known:
            raise QuothError(f"--rows {name}: it has {', '.join(known) or 'no rows'}")
    return tuple(row for row in item.rows if not rows or row.name in rows)


def listing() -> Iterator[dict[str, Any]]:
    """What `quoth reproduce --list --json` prints of each item; windows: of training, one seed, at the paper's size."""
    for name in item_names():
        _, paper, item = find_item(name)
        runs = runs_of(paper, item)
        yield {
            "name": name,
            "title": item.title,
            "shows": item.shows,
            "rows": len(item.rows),
            "claims": [claim.says for claim in item.claims],
            "runs": len(runs),
            "windows": _sum(run_windows(paper, run) for run in runs.values()),
            "impossible": [f"{row.name}: {row.missing}" for row in item.rows if row.missing],
            "note": item.note,
        }


def run_table(run: PaperRun) -> dict[str, Any]:
    """The recipe of a run with the paper's settings, as a table."""
    return overridden(read_table(find_recipe(run.recipe)), run.set)


def run_windows(paper: Paper, run: PaperRun) -> int | None:
    """The windows that a run is trained on, those of heads on frozen states too; None if the text decides it."""
    table, windows = run_table(run), run.windows or paper.windows
    if "target" in table:
        return None
    frozen = table.get("frozen", {})
    heads = len(frozen.get("at", [0])) * frozen.get("epochs", 1.0) if frozen.get("heads") else 0.0
    epochs: float = table["optimisation"]["epochs"] + heads
    return round(windows * float(table["data"].get("fraction", 1.0)) * epochs)


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(number for number in found if number is not None)

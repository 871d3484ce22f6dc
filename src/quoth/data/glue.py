"""GLUE (Wang et al. 2019), eight tasks: its tab-separated files with GLUE's own columns, or the hub's copy.

Quotes are plain characters in these files, some copies begin with a BOM, and CoLA's train and dev have no header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quoth.data.dataset import Report, Sentences
from quoth.data.read import load_hub
from quoth.data.source import read_source
from quoth.errors import QuothError

NO_CONSENSUS = "-"  # MNLI's gold label where the annotators disagree


@dataclass(frozen=True)
class Task:
    """Where a task keeps its texts and its label. `values[i]` in the file is class i, called `names[i]`."""

    columns: tuple[str, ...]
    label: str
    values: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


ENTAILMENT = ("entailment", "not_entailment")
INFERENCE = ("entailment", "neutral", "contradiction")
BINARY = ("0", "1")
TASKS = {
    "MRPC": Task(("#1 String", "#2 String"), "Quality", BINARY, ("not_equivalent", "equivalent")),
    "QQP": Task(("question1", "question2"), "is_duplicate", BINARY, ("not_duplicate", "duplicate")),
    "STS-B": Task(("sentence1", "sentence2"), "score"),
    "MNLI": Task(("sentence1", "sentence2"), "gold_label", INFERENCE, INFERENCE),
    "QNLI": Task(("question", "sentence"), "label", ENTAILMENT, ENTAILMENT),
    "RTE": Task(("sentence1", "sentence2"), "label", ENTAILMENT, ENTAILMENT),
    "SST-2": Task(("sentence",), "label", BINARY, ("negative", "positive")),
    "CoLA": Task(("sentence",), "label", BINARY, ("unacceptable", "acceptable")),
}
COLA_HEADER = ["source", "label", "star", "sentence"]
HUB = re.compile(r"([\w.-]+/[\w.-]+)/([\w-]+)(?::(\w+))?")  # nyu-mll/glue/mrpc:train
HUB_COLUMNS = {"MRPC": ("sentence1", "sentence2"), "MNLI": ("premise", "hypothesis")}  # where they are not GLUE's own
HUB_UNLABELLED = -1


def read_glue(path: str | Path, task: str | None = None) -> Sentences:
    """Read a GLUE file, `.tsv` or `.tsv.gz`. The task is told by a folder's name or the header, if not given.

    What is no file but ends like `nyu-mll/glue/mrpc:train` is that task and split of a hub dataset (without a
    split: validation).

    A file without the label's column is a test split: its labels are None. A row that is short of a column
    (QQP has some), or an MNLI row without consensus, is left out and stands in `report.skipped` by its line.
    """
    hub = HUB.fullmatch(str(path))
    if hub and (task is None or find_task(task) == find_task(hub[2])) and find_task(hub[2]) and not Path(path).exists():
        return _from_hub(*hub.groups(default="validation"))
    rows = [line.rstrip("\r").split("\t") for line in read_source(path).split("\n")]
    if not any(rows[0]):
        raise QuothError(f"{path}: is empty, a GLUE file is wanted")
    name = _task(Path(path), rows[0], task)
    headless = name == "CoLA" and "sentence" not in rows[0]
    header = COLA_HEADER if headless else rows[0]
    return _sentences(str(path), name, header, list(enumerate(rows, start=1))[0 if headless else 1 :])


def _sentences(path: str, name: str, header: list[str], rows: list[tuple[int, list[str]]]) -> Sentences:
    task = TASKS[name]
    missing = [column for column in task.columns if column not in header]
    if missing:
        raise QuothError(f"{path}: no column {missing[0]!r} for {name} in its first line, which has {header}")
    texts: list[list[str]] = [[] for _ in task.columns]
    labels: list[float] = []
    skipped: list[str] = []
    places = [header.index(column) for column in task.columns]
    label = header.index(task.label) if task.label in header else None
    for line, row in rows:
        if row == [""]:
            continue
        if len(row) < len(header) or (label is not None and row[label] == NO_CONSENSUS):
            skipped.append(f"line {line}")
            continue
        for column, place in zip(texts, places, strict=True):
            column.append(row[place])
        if label is not None:
            labels.append(_label(task, row[label], f"{path}, line {line}"))
    if not texts[0]:
        raise QuothError(f"{path}: no row has the columns of {name}: {header}")
    kind = np.int64 if task.values else np.float64
    return Sentences(
        name,
        texts[0],
        texts[1] if len(texts) > 1 else None,
        None if label is None else np.array(labels, dtype=kind),
        task.names,
        Report(path, len(texts[0]) + len(skipped), skipped=tuple(skipped)),
    )


def _from_hub(dataset: str, part: str, split: str) -> Sentences:
    """The hub's columns as GLUE's own: there a label is its number, and −1 where a row has none."""
    name = find_task(part) or part
    task = TASKS[name]
    source = f"{dataset}/{part}:{split}"
    found: list[tuple[int, list[str]]] = []
    labelled = False
    for number, row in enumerate(load_hub(dataset, split, part), start=1):
        label = _cell(row, "label", source, number)
        labelled |= label != HUB_UNLABELLED
        texts = [_cell(row, column, source, number) for column in HUB_COLUMNS.get(name, task.columns)]
        found.append((number, [*texts, _hub_label(task, label, f"{source}, row {number}")]))
    return _sentences(source, name, [*task.columns, task.label if labelled else "none"], found)


def _cell(row: Any, column: str, source: str, number: int) -> Any:
    if column not in row:
        raise QuothError(f"{source}, row {number}: no column {column!r}; it has {', '.join(row)}")
    return row[column]


def _hub_label(task: Task, label: Any, where: str) -> str:
    """As GLUE's files have it."""
    if label == HUB_UNLABELLED:
        return NO_CONSENSUS
    if not task.values:
        return str(label)
    if type(label) is not int or not 0 <= label < len(task.values):
        raise QuothError(f"{where}: the label is {label!r}, a number from 0 to {len(task.values) - 1} is wanted")
    return task.values[label]


def _label(task: Task, cell: str, where: str) -> float:
    if task.values:
        if cell not in task.values:
            raise QuothError(f"{where}: the label is {cell!r}, one of {', '.join(task.values)} is wanted")
        return task.values.index(cell)
    try:
        return float(cell)
    except ValueError:
        raise QuothError(f"{where}: the score is {cell!r}, a number is wanted") from None


def find_task(name: str) -> str | None:
    """GLUE's spelling of a task: sst2, SST-2 and Sst-2 are one."""
    plain = name.upper().replace("-", "")
    return next((task for task in TASKS if task.upper().replace("-", "") == plain), None)


def _task(path: Path, header: list[str], given: str | None) -> str:
    if given is not None:
        task = find_task(given)
        if task is None:
            raise QuothError(f"{given!r} is not a GLUE task known here; one of {', '.join(TASKS)} is wanted")
        return task
    for folder in reversed(path.parts[:-1]):
        task = find_task(folder)
        if task is not None:
            return task
    for name, spec in TASKS.items():
        if {*spec.columns, spec.label} <= set(header):
            return name
    raise QuothError(f"{path}: which GLUE task is it? Put it in a folder of that name ({', '.join(TASKS)})")

"""What several verbs share: options, the reader, the dataset, the progress bar."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import numpy as np
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from quoth.answer import Abstention, Decoded, Reader, Rule
from quoth.answer.reader import Progress as Tell
from quoth.cli.screen import console, print_json, say
from quoth.data import Dataset, read
from quoth.errors import QuothError

Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="A file (SQuAD .json, .jsonl, .csv, also .gz) or a hub dataset."),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        help="Abstain if null − best is above this, whatever calibration there is; by default the model's own, else 0."
    ),
]
MinScore = Annotated[
    float | None,
    typer.Option(
        help="Abstain if the probability that the answer is right is below this (0: never); by default if it is more "
        "probable that there is no answer."
    ),
]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="A folder or a hub id; by default `embedded`, the reader inside Quoth."),
]
Device = Annotated[str | None, typer.Option(help="Compute on cpu or cuda; by default on a GPU if there is one.")]
Precision = Annotated[
    str | None, typer.Option(help="Compute in fp32, bf16 or fp8 (Hopper GPUs); by default bf16 if a GPU has it.")
]
AnswerTokens = Annotated[int, typer.Option(help="Allow at most this many tokens in an answer.", min=1)]
RuleName = Annotated[str, typer.Option(help="Decode by the rule devlin, probability or bertvision.")]
Recipe = Annotated[str, typer.Argument(metavar="RECIPE", help="A .toml file, or the name of a shipped recipe.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Override keys of the recipe: data.train=train.json."),
]
RunFolder = Annotated[Path | None, typer.Option(help="The run folder; by default runs/NAME.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


PAUSE = 5.0  # seconds between two lines of progress where stderr is no terminal


def output(facts: Any, as_json: bool, show: Callable[[], None]) -> None:
    """Print facts as one JSON object, or show them to people."""
    if as_json:
        print_json(facts)
    else:
        show()


@contextmanager
def facts_of(path: Path) -> Iterator[None]:
    """A table is made of facts that may come from a file of an earlier run: if it cannot be made, name the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise QuothError(f"{path}: is not what Quoth writes there; was it changed by hand? Use another --out") from None


def figures_table(*heads: str, left: int = 1, caption: str | None = None) -> Table:
    """A table whose first `left` columns are words and the others figures."""
    table = Table(*heads, caption=caption)
    for column in table.columns[left:]:
        column.justify = "right"
    return table


def read_dataset(path: str) -> Dataset:
    """Read questions, and tell on stderr what was found wrong with them."""
    dataset = read(path)
    for line in dataset.report.lines():
        say(line)
    if not dataset.questions:
        raise QuothError(f"{path}: has no questions")
    return dataset


def is_calibrated(reader: Reader, threshold: float | None, rule: Rule) -> bool:
    """Whether the reader's calibration decides: it holds for Devlin's rule, and a threshold given goes before it."""
    return reader.confidence is not None and threshold is None and rule == "devlin"


def limited(
    reader: Reader, dataset: Dataset, decoded: Decoded, threshold: float | None, min_score: float | None, rule: Rule
) -> tuple[Decoded, float]:
    """The answers, and the threshold on their null − best above which they are not given.

    The threshold given, else the reader's own, which holds for Devlin's rule alone, else 0; +inf for SQuAD 1.1. With a
    calibration it is 0: null and best are then logarithms of probabilities; with `min_score` null is its logarithm.
    Without, `min_score` becomes the threshold where the reader's temperature and bias give that probability.
    """
    if threshold is not None:
        return decoded, threshold
    if is_calibrated(reader, threshold, rule):
        if min_score is not None:
            lowest = np.log(max(min_score, 1e-300))
            return replace(decoded, null=np.full(len(decoded), lowest)), 0.0 if min_score else math.inf
        return decoded, Abstention(0.0).limit(dataset.version)
    own = reader.abstention if rule == "devlin" else Abstention(0.0)
    if min_score is None:
        return decoded, own.limit(dataset.version)
    if min_score in (0.0, 1.0):
        return decoded, math.inf if min_score == 0 else -math.inf
    return decoded, own.bias + own.temperature * math.log((1 - min_score) / min_score)


def check_rule(rule: str) -> Rule:
    """The decoding rule of this name."""
    if rule not in get_args(Rule):
        raise QuothError(f"--rule {rule}: choose {', '.join(get_args(Rule))}")
    return cast(Rule, rule)


@contextmanager
def progress(what: str) -> Iterator[Tell]:
    """Progress on stderr: a bar at a terminal, elsewhere a line every `PAUSE` seconds."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield _lines(what)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(what: str) -> Tell:
    begun = last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > PAUSE:
            last = now
            left = f", about {(now - begun) * (total - done) / done:,.0f} s left" if done else ""
            say(f"quoth: {what}, {100 * done / max(1, total):.0f} %{left}")

    return tell

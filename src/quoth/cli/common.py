"""What several verbs share: options, the reader, the dataset, the progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from quoth.answer import Abstention, Reader, Rule
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
    typer.Option(help="Abstain if null − best is above this; by default the threshold of the model, else 0."),
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


def threshold_for(reader: Reader, dataset: Dataset, given: float | None, rule: Rule) -> float:
    """The threshold given, else the reader's own, which holds for Devlin's rule alone, else 0; +inf for SQuAD 1.1."""
    if given is not None:
        return given
    return (reader.abstention if rule == "devlin" else Abstention(0.0)).limit(dataset.version)


def check_rule(rule: str) -> Rule:
    """The decoding rule of this name."""
    if rule not in get_args(Rule):
        raise QuothError(f"--rule {rule}: choose {', '.join(get_args(Rule))}")
    return cast(Rule, rule)


@contextmanager
def progress(what: str) -> Iterator[Tell]:
    """A bar on stderr, for people: nothing is drawn where stderr is not a terminal."""
    screen = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)

"""`quoth advise`: which method to train on one's own data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from quoth.cli.common import PAUSE, AsJson, Device, figures_table, output, read_dataset
from quoth.cli.screen import console, say
from quoth.errors import QuothError
from quoth.report.tables import unbroken

if TYPE_CHECKING:
    from quoth.experiments.advise_race import Board, Tell

MODEL = "microsoft/MiniLM-L12-H384-uncased"  # small, and good for its size


def advise(
    data: Annotated[str, typer.Option(help="Your questions: a file (SQuAD .json, .jsonl, .csv) or a hub dataset.")],
    model: Annotated[str, typer.Option("--model", "-m", help="The encoder to start from: a folder or hub id.")] = MODEL,
    max_latency: Annotated[
        str | None, typer.Option(metavar="TIME", help="The most time that one question may take, such as 20ms.")
    ] = None,
    max_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="The most bytes of the exported model, such as 30MB.")
    ] = None,
    max_train: Annotated[
        str | None, typer.Option(metavar="TIME", help="The most time that the whole training may take, such as 10min.")
    ] = None,
    device: Device = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="Train for about so long in all; by default a tenth of training every candidate whole.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the search; by default runs/advise-NAME.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find the method that answers best within your limits: a short search over tuning methods, heads and sizes.

    Interrupted at any moment, the same command goes on where it stopped. See docs/advise.md.
    """
    try:
        from quoth.experiments.advise import Ask  # needs torch, which is optional
        from quoth.experiments.advise import advise as search  # likewise
        from quoth.experiments.advise_limits import Limits, parse_bytes, parse_seconds  # likewise
        from quoth.train.training import Interrupted  # likewise
    except ModuleNotFoundError as error:
        raise QuothError(f"advise needs {error.name}: pip install 'quoth[train]'") from None
    limits = Limits(
        parse_seconds(max_latency, "--max-latency") if max_latency is not None else None,
        parse_bytes(max_size, "--max-size") if max_size is not None else None,
        parse_seconds(max_train, "--max-train") if max_train is not None else None,
    )
    if budget is not None and not 0 < budget < float("inf"):
        raise QuothError(f"--budget {budget:g}: minutes above 0 are wanted")
    dataset = read_dataset(data)
    folder = out or Path("runs") / f"advise-{Path(data.partition(':')[0]).name.split('.')[0]}"
    ask = Ask(data, model, limits, None if budget is None else 60 * budget, device)
    try:
        with _watch() as tell:
            facts = search(ask, folder, dataset=dataset, tell=tell)
    except Interrupted as stopped:
        say("quoth: stopped; the same command goes on from there")
        raise SystemExit(128 + stopped.signal) from None
    output(facts, as_json, lambda: _show(facts))


@contextmanager
def _watch() -> Iterator[Tell]:
    """A bar on a terminal; elsewhere a line for each candidate in each round, and one every few seconds."""
    screen = console(stderr=True)
    begun = last = time.monotonic()
    if screen.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn())
        with Progress(*columns, console=screen, transient=True) as bar:
            task = bar.add_task("getting ready", total=None)

            def show(board: Board, line: str) -> None:
                if line:
                    screen.print(line, soft_wrap=True)
                if board.rounds:
                    bar.update(task, completed=_done(board), total=board.windows, description=_status(board, begun))

            yield show
        return

    def tell(board: Board, line: str) -> None:
        nonlocal last
        if line:
            say(f"quoth: {line}")
        elif board.rounds and time.monotonic() - last > PAUSE:
            last = time.monotonic()
            say(f"quoth: {_status(board, begun)}")

    yield tell


def _done(board: Board) -> float:
    """Windows of all that are done."""
    before = board.rounds[board.round - 1].windows if board.round else 0.0
    share = board.status.step / max(1, board.status.steps) if board.status else 0.0
    now = max(0.0, share * board.rounds[board.round].windows - before)
    return board.done + now


def _status(board: Board, begun: float) -> str:
    """Which round it is, which candidate, and the time left at the pace so far."""
    done = _done(board)
    seconds = (time.monotonic() - begun) * (board.windows - done) / done if done else None
    left = "time left unknown" if seconds is None else f"about {seconds:,.0f} s left"
    count = board.rounds[board.round].candidates
    loss = f", loss {board.status.loss:.3f}" if board.status else ""
    return (
        f"round {board.round + 1} of {len(board.rounds)}, {board.number} of {count}: {board.name}{loss}; "
        f"{100 * done / max(board.windows, 1):.0f} %, {left}"
    )


def _show(facts: dict[str, Any]) -> None:
    screen = console()
    for line in facts["summary"]:
        screen.print(line)
    screen.print()
    screen.print(unbroken(_scores(facts["rows"])))
    screen.print(unbroken(_costs(facts["rows"])))
    for name, why in facts["left_out"].items():
        screen.print(f"left out: {name}: {why}", soft_wrap=True)
    screen.print("train it on all questions:")
    for command in facts["commands"]:
        screen.print(f"  {command}", soft_wrap=True)


def _scores(rows: list[dict[str, Any]]) -> Table:
    """F1 with its interval, and the difference from the best candidate in the last round that both were in."""
    table = figures_table("candidate", "windows", "F1", "95 %", "minus\nbest", "", left=1)
    for row in rows:
        if row["error"]:
            table.add_row(row["name"], "—", "—", "—", "—", "failed")
            continue
        low, high = row["interval"]
        cells = [row["name"], f"{row['windows']:,}", f"{row['score']:.2f}", f"{low:.2f}–{high:.2f}"]
        against = row["against_best"]
        noise = "" if against is None else "within noise" if against["corrected"] >= 0.05 else "worse"
        table.add_row(*cells, *(("", "best") if against is None else (f"{against['difference']:+.2f}", noise)))
    return table


def _costs(rows: list[dict[str, Any]]) -> Table:
    """Parameters and sizes; and times, where a limit made them be measured."""
    from quoth.experiments.advise_limits import show_bytes, show_seconds  # needs torch, which is optional

    timed = {
        head: key
        for head, key in (("latency", "latency"), ("whole\ntraining", "train_seconds"))
        if any(row[key] is not None for row in rows)
    }
    table = figures_table("candidate", "trainable\nparameters", "size", "", *timed, left=1)
    for row in rows:
        times = ("—" if row[key] is None else show_seconds(row[key]) for key in timed.values())
        size = show_bytes(row["bytes"])
        table.add_row(row["name"], f"{row['trainable_parameters']:,}", size, row["form"], *times)
    return table

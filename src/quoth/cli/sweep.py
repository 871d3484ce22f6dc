"""`quoth sweep`: train all runs of a grid."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from quoth.cli.common import PAUSE, AsJson, Device, figures_table, output
from quoth.cli.screen import console, say
from quoth.errors import QuothError
from quoth.report.comparison_tables import QUALITY
from quoth.report.tables import unbroken

if TYPE_CHECKING:
    from quoth.experiments.grid import Planned
    from quoth.experiments.sweep import Board, Tell
    from quoth.experiments.sweep_record import SweepRun

SHOWN = 12  # runs in the live table
SCORES = ("f1", "best_f1", "acc", "mlm_loss")  # of which the first that a run has is shown


def sweep(
    grid: Annotated[Path, typer.Argument(metavar="GRID.toml", help="The grid: a recipe, seeds, runs, values.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Override keys of all recipes; seeds=[0,1] the seeds."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The sweep folder; by default runs/NAME.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs, their parameters and the time, and train nothing.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Train this many runs at a time; by default one, or one a GPU.", min=1)
    ] = None,
    no_models: Annotated[
        bool, typer.Option("--no-models", help="Remove the models of each run when it has finished; keep its scores.")
    ] = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train all runs of a grid. Interrupted at any moment, the same command goes on where it stopped."""
    try:
        from quoth.experiments.grid import read_grid  # needs torch, which is optional
        from quoth.experiments.sweep import SweepStopped  # likewise
        from quoth.experiments.sweep import sweep as run_sweep  # likewise
    except ModuleNotFoundError as error:
        raise QuothError(f"training needs {error.name}: pip install 'quoth[train]'") from None
    planned = read_grid(grid, overrides or [])
    folder = out or Path("runs") / grid.stem
    if dry_run:
        _dry_run(planned, folder, as_json)
        return
    try:
        with watch() as tell:
            runs = run_sweep(planned, folder, device=device, jobs=jobs, keep_models=not no_models, tell=tell)
    except SweepStopped as stopped:
        say(f"quoth: {stopped}")
        raise SystemExit(128 + stopped.signal) from None
    facts = _facts(folder, runs)
    output(facts, as_json, lambda: _show(facts))
    failed = facts["failed"]
    if failed:
        say(f"quoth: {failed} of {len(runs)} runs failed; the same command tries them again")
        raise SystemExit(1)  # not 2: what was asked for was right, and the others are done


def _dry_run(planned: Sequence[Planned], folder: Path, as_json: bool) -> None:
    from quoth.experiments.sweep_plan import plan_facts  # needs torch, which is optional

    facts = plan_facts(planned, folder)
    output(facts, as_json, lambda: show_plan(facts))


def show_plan(facts: dict[str, Any]) -> None:
    """The runs of a plan with their parameters, and the time that is left."""
    screen = console()
    table = figures_table("run", "seed", "state", "trainable\nparameters", "all\nparameters", "time", left=1)
    for run in facts["runs"]:
        sizes = [_count(run["trainable_parameters"]), _count(run["total_parameters"])]
        seconds = run["seconds"] if run["state"] == "finished" else run["estimated_seconds"]
        table.add_row(run["method"], str(run["seed"]), run["state"], *sizes, _clock(seconds))
    screen.print(unbroken(table, words=0))
    for line in dict.fromkeys(run["error"] for run in facts["runs"] if run["error"]):
        screen.print(line, soft_wrap=True)
    left = _clock(facts["seconds_left"]) if facts["seconds_left"] is not None else "unknown, since no run has finished"
    screen.print(f"{len(facts['runs'])} runs, {facts['finished']} finished; time left, one at a time: {left}")


def _facts(folder: Path, runs: Sequence[SweepRun]) -> dict[str, Any]:
    """What `--json` prints: of each run what became of it, and its metrics."""
    from quoth.experiments.sweep_plan import run_facts  # needs torch, which is optional

    found = [run_facts(folder, run) for run in runs]
    counts = {state: sum(run.state == state for run in runs) for state in ("finished", "failed")}
    return {"sweep": str(folder), **counts, "runs": found}


def _show(facts: dict[str, Any]) -> None:
    screen = console()
    keys = [key for key in SCORES if any(key in run["quality"] for run in facts["runs"])][:2]
    table = figures_table("run", "seed", "state", *(QUALITY[key] for key in keys), "trainable\nparameters", "time")
    for run in facts["runs"]:
        scores = (f"{run['quality'][key]:.2f}" if key in run["quality"] else "—" for key in keys)
        cells = (run["method"], str(run["seed"]), run["state"], *scores, _count(run["trainable_parameters"]))
        table.add_row(*cells, _clock(run["seconds"]))
    screen.print(unbroken(table, words=0))
    for run in facts["runs"]:
        if run["error"]:
            screen.print(f"{run['folder']}: {run['error']}", soft_wrap=True)
    screen.print(f"compare them: quoth compare {facts['sweep']}", soft_wrap=True)


@contextmanager
def watch() -> Iterator[Tell]:
    """A live table on a terminal; elsewhere a line for each run that ends, and one every few seconds."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield _lines()
        return
    with Live(console=screen, transient=True, refresh_per_second=4) as live:

        def show(board: Board, line: str) -> None:
            if line:
                screen.print(line, soft_wrap=True)
            live.update(_board(board))

        yield show


def _lines() -> Tell:
    last = 0.0

    def tell(board: Board, line: str) -> None:
        nonlocal last
        if line:
            say(f"quoth: {line}")
        elif time.monotonic() - last > PAUSE:
            last = time.monotonic()
            say(f"quoth: {_summary(board)}")

    return tell


def _summary(board: Board) -> str:
    """How many runs have ended, what the running ones do, and the time left."""
    failed = f", {board.count('failed')} failed" if board.count("failed") else ""
    parts = [f"{board.count('finished')} of {len(board.runs)} runs finished{failed}"]
    parts += [f"{folder}: {_status(status)}" for folder, status in board.status.items()]
    left = board.seconds_left
    return "; ".join([*parts, "time left unknown" if left is None else f"about {_clock(left)} left"])


def _board(board: Board) -> Table:
    """The runs that are on, failed or came last, and how many there are in all."""
    order = {"running": 0, "failed": 1, "waiting": 2, "finished": 3}
    chosen = sorted(board.runs, key=lambda run: order[run.state])[:SHOWN]
    table = Table("run", "state", "", title=_title(board), title_justify="left")
    for run in chosen:
        status = board.status.get(run.folder)
        said = run.error or (_status(status) if status else "")
        table.add_row(run.folder, run.state, said)
    if len(board.runs) > SHOWN:
        table.caption = f"{len(board.runs) - SHOWN} more"
    return table


def _title(board: Board) -> str:
    left = board.seconds_left
    return (
        f"{board.count('finished')} of {len(board.runs)} runs finished, {board.count('failed')} failed, "
        f"{'time left unknown' if left is None else f'about {_clock(left)} left'}"
    )


def _status(status: dict[str, Any]) -> str:
    pace = f"{status['windows_per_second']:,.0f} windows/s"
    return f"epoch {status['epoch']:.2f}, loss {status['loss']:.4f}, {pace}, {_clock(status['seconds_left'])} left"


def _count(number: int | None) -> str:
    return "—" if number is None else f"{number:,}"


def _clock(seconds: float | None) -> str:
    """Seconds as hours, minutes and seconds; they may be more than a day."""
    if seconds is None:
        return "unknown"
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"

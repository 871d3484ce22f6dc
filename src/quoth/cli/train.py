"""`quoth train`: run a recipe."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from quoth.cli.common import AsJson, Device, Overrides, Recipe, RunFolder, facts_of, figures_table, output
from quoth.cli.screen import console, say
from quoth.errors import QuothError
from quoth.recipes import find_recipe
from quoth.score.quality import NAMES

if TYPE_CHECKING:
    from quoth.train.log import Status, Tell
    from quoth.train.metrics import StageMetrics, TrainMetrics

PAUSE = 30.0  # seconds between two lines of progress where stderr is no terminal


def train(
    recipe: Recipe,
    overrides: Overrides = None,
    out: RunFolder = None,
    device: Device = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard events too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a reader by a recipe. Interrupted at any moment, the same command goes on where it stopped."""
    try:
        from quoth.train import read_recipe  # needs torch, which is optional
        from quoth.train import train as run_recipe  # likewise
    except ModuleNotFoundError as error:
        raise QuothError(f"training needs {error.name}: pip install 'quoth[train]'") from None
    made = read_recipe(find_recipe(recipe), overrides or [])
    run = out or Path("runs") / Path(recipe).stem
    with watch() as tell:
        metrics = run_recipe(made, run, device=device, tensorboard=tensorboard, tell=tell)
    if metrics is not None:  # None comes from processes beside the main one
        output(metrics.to_json(), as_json, lambda: _show(metrics, run))


@contextmanager
def watch() -> Iterator[Tell]:
    """Show the progress of a run. If it is interrupted, say so and end with the exit code of the signal."""
    from quoth.train.training import Interrupted  # needs torch, which is optional

    try:
        with _lines() as tell:
            yield tell
    except Interrupted as stopped:
        say(f"quoth: {stopped}")
        raise SystemExit(128 + stopped.signal) from None


@contextmanager
def _lines() -> Iterator[Tell]:
    """A live line on a terminal; elsewhere a plain line every half minute and for each evaluation."""
    screen = console(stderr=True)
    if not screen.is_terminal or os.environ.get("RANK", "0") != "0":  # of several processes one has something to tell
        last = time.monotonic()

        def plain(news: Status | str) -> None:
            nonlocal last
            if isinstance(news, str) or time.monotonic() - last > PAUSE:
                last = time.monotonic()
                say(news if isinstance(news, str) else _line(news))

        yield plain
        return
    with Progress(BarColumn(), TextColumn("{task.description}"), console=screen, transient=True) as bar:
        task = bar.add_task("getting ready", total=None)

        def live(news: Status | str) -> None:
            if isinstance(news, str):
                screen.print(news)
            else:
                bar.update(task, completed=news.step, total=news.steps, description=_line(news))

        yield live


def _line(status: Status) -> str:
    left = time.strftime("%H:%M:%S", time.gmtime(status.seconds_left))
    return (
        f"epoch {status.epoch:.2f}, step {status.step:,} of {status.steps:,}, loss {status.loss:.4f}, "
        f"{status.windows_per_second:,.0f} windows/s, {left} left"
    )


def _show(metrics: TrainMetrics, run: Path) -> None:
    with facts_of(run / "metrics.json"):
        tables = [_table(metrics, run), *([_heads(metrics.frozen)] if metrics.frozen else [])]
    screen = console()
    for table in tables:
        screen.print(table)


def _table(metrics: TrainMetrics, run: Path) -> Table:
    table = Table("", "", show_header=False, box=None)
    quality = metrics.quality
    for key, name in NAMES.items():
        if key in quality:
            table.add_row(name, f"{quality[key]:.2f}")
    table.add_row("trainable parameters", f"{metrics.trainable_parameters:,}")
    table.add_row("all parameters", f"{metrics.total_parameters:,}")
    table.add_row("training", f"{metrics.train_seconds:.1f} s, {metrics.windows_per_second:,.0f} windows/s")
    if metrics.inference_seconds is not None:
        table.add_row("inference", f"{metrics.inference_seconds:.1f} s for {metrics.inference_windows:,} windows")
    table.add_row("model", f"{run / 'model'}, {metrics.bytes / 1e6:.1f} MB")
    return table


def _heads(stages: dict[str, StageMetrics]) -> Table:
    """The heads on frozen states, by the encoder's epoch."""
    heads = [(epoch, name, head) for epoch, stage in stages.items() for name, head in stage.heads.items()]
    keys = [key for key in NAMES if any(key in head.quality for _, _, head in heads)]
    table = figures_table("epoch", "head", "parameters", *(NAMES[key] for key in keys), left=2)
    for epoch, name, head in heads:
        scores = (f"{head.quality[key]:.2f}" if key in head.quality else "" for key in keys)
        table.add_row(epoch, name, "" if head.parameters is None else f"{head.parameters:,}", *scores)
    return table

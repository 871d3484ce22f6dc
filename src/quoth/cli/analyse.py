"""`quoth analyse`: what runs get wrong, and how they differ."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from quoth.answer.record import Recorded, read_answers
from quoth.cli.common import AsJson, read_dataset
from quoth.cli.screen import console, print_json, say
from quoth.config import read_table
from quoth.data import Dataset
from quoth.errors import QuothError
from quoth.files import read_json
from quoth.report import plot_analysis, plot_curves, print_analysis, print_curves
from quoth.report.plots import check_plots
from quoth.score.compare_runs import analyse_runs
from quoth.score.curves import read_curves

ANSWERS = ("answers.jsonl.gz", "answers.jsonl")
WIDE = 160  # columns of tables that go to a file or a pipe


def analyse(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN...", help="The run folders, each with answers.jsonl.gz.", show_default=False),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Read the questions from here; by default data.evaluate in recipe.toml.")
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(help="Abstain if null − best is above this number, or `best`. [default: 0 for SQuAD 2.0]"),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write SVG plots to this folder; needs quoth[report].")
    ] = None,
    curves: Annotated[
        bool,
        typer.Option("--curves", help="Show learning curves of frozen heads instead; RUN may be frozen/epoch-X."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what runs get wrong, by kind, length, question word and article, and what only one of them gets right."""
    if not runs:
        raise QuothError("name at least one run folder to analyse")
    limit = _threshold(threshold)
    if plots:
        check_plots()
    if curves:
        if data or threshold:
            raise QuothError("--curves shows the scores in metrics.json; it takes no --data and no --threshold")
        facts, draw, show = read_curves(runs), plot_curves, print_curves
    else:
        facts, draw, show = _facts(runs, data, limit), plot_analysis, print_analysis
    drawn = draw(facts, plots) if plots else []
    if as_json:
        print_json(facts)
    else:
        piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
        show(facts, console(width=WIDE if piped else None))  # no heading is cut
    if drawn:
        say(f"{len(drawn)} plot{'s' if len(drawn) > 1 else ''} in {plots}")


def _facts(runs: list[Path], data: str | None, limit: float | Literal["best"] | None) -> dict[str, Any]:
    """The analysis of the answers that runs have kept."""
    recorded = [_answers(run) for run in runs]
    weights = [_layer_weights(run) for run in runs]
    dataset = read_dataset(data) if data else _evaluated(runs)
    facts = analyse_runs(dataset, [(str(run), answers) for run, answers in zip(runs, recorded)], limit)
    for run, found in zip(facts["runs"], weights):
        run |= {"layer_weights": found} if found else {}
    return facts


def _threshold(text: str | None) -> float | Literal["best"] | None:
    if text is None:
        return None
    if text == "best":
        return "best"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value) or value == -math.inf:
        raise QuothError(f"--threshold {text}: give a number (inf never abstains) or best")
    return value


def _answers(run: Path) -> Recorded:
    if not run.is_dir():
        raise QuothError(f"{run}: {'is not a folder' if run.exists() else 'no such folder'}; name a run folder")
    for name in ANSWERS:
        if (run / name).exists():
            return read_answers(run / name)
    raise QuothError(f"{run}: has no {ANSWERS[0]}; a training run leaves one if its recipe has data.evaluate")


def _evaluated(runs: list[Path]) -> Dataset:
    """The questions that all runs were evaluated on, by their recipes."""
    sources = [_evaluated_on(run) for run in runs]
    for run, source in zip(runs, sources):
        if source != sources[0]:
            both = f"{runs[0]}: was evaluated on {sources[0]}, {run} on {source}"
            raise QuothError(f"{both}; give --data if these are the same questions")
    try:
        return read_dataset(sources[0])
    except QuothError as error:
        raise QuothError(f"{error} (data.evaluate of {runs[0] / 'recipe.toml'}; give --data)") from None


def _evaluated_on(run: Path) -> str:
    # A head that was trained on frozen states lies some folders below the recipe of its run.
    above = (folder / "recipe.toml" for folder in (run, *run.resolve().parents[:3]))
    path = next((path for path in above if path.exists()), run / "recipe.toml")
    if not path.exists():
        raise QuothError(f"{run}: has no recipe.toml that names its questions; give --data")
    try:
        section = read_table(path).get("data")
    except QuothError as error:
        raise QuothError(f"{error}; give --data") from None
    source = section.get("evaluate") if isinstance(section, dict) else None
    if not isinstance(source, str) or not source:
        raise QuothError(f"{path}: names no data.evaluate; give --data")
    return source


def _layer_weights(run: Path) -> dict[str, list[float]]:
    """What metrics.json has of them: {name: a number for each layer}."""
    path = run / "metrics.json"
    found = read_json(path) if path.exists() else {}
    weights = found.get("layer_weights") or {} if isinstance(found, dict) else {}
    good = isinstance(weights, dict) and all(
        isinstance(values, list) and values and all(type(x) in (int, float) and math.isfinite(x) for x in values)
        for values in weights.values()
    )
    if not good:
        raise QuothError(f"{path}: layer_weights must be lists of finite numbers by name")
    return {name: list(map(float, values)) for name, values in weights.items()}

"""`quoth compare`: methods on the same axes, from finished runs and sweeps."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from quoth.cli.common import AsJson, progress, read_dataset
from quoth.cli.screen import console, print_json, say
from quoth.data import Dataset
from quoth.errors import QuothError
from quoth.experiments.compare import compare_results
from quoth.experiments.run_results import Result, Unfinished, read_results
from quoth.files import write_text
from quoth.report.comparison_page import write_report
from quoth.report.comparison_tables import comparison_csv, print_comparison
from quoth.report.plots import check_plots

WIDE = 100  # columns of tables that go to a file or a pipe


def compare(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN|SWEEP...", help="Folders of runs and sweeps.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="REPORT.html", help="Write a page with tables and plots; needs quoth[report]."),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the plots, SVG and PNG, here; by default REPORT_files."),
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table as CSV.")] = None,
    data: Annotated[
        str | None, typer.Option(help="Read the questions from here; by default data.evaluate of the recipes.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Sort and judge by f1, exact, best_f1, acc …; by default f1.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare methods by quality and cost: intervals, Pareto-optimal rows, which differences are more than noise."""
    if not runs:
        raise QuothError("name at least one run or sweep to compare")
    if plots and not out:
        raise QuothError("--plots goes with --out REPORT.html")
    if out:
        check_plots()
    results, unfinished = read_results(runs)
    facts = _facts(results, unfinished, data, by)
    if csv:
        write_text(csv, comparison_csv(facts))
    files = write_report(facts, out, plots) if out else []
    if as_json:
        print_json(facts)
    else:
        piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
        print_comparison(facts, console(width=WIDE if piped else None))
    if out:
        say(f"{out}, plots in {files[0].parent}" if files else f"{out}, without plots: there is nothing to draw")


def _facts(
    results: Sequence[Result], unfinished: Sequence[Unfinished], data: str | None, by: str | None
) -> dict[str, Any]:
    """The comparison, with intervals where the questions can be read."""
    source = data or _evaluated_on(results)
    dataset = _questions(source, named=bool(data)) if any(result.answers for result in results) else None
    with progress("scoring answers") as tell:
        return compare_results(results, unfinished, dataset, by, tell)


def _evaluated_on(results: Sequence[Result]) -> str:
    """What all results were evaluated on, by their recipes."""
    first = results[0]
    for result in results:
        if result.data != first.data:
            both = [f"{one.folder} was evaluated on {one.data or 'nothing'}" for one in (first, result)]
            raise QuothError(f"{', '.join(both)}; compare them apart, or give --data if these are the same questions")
    return first.data


def _questions(source: str, named: bool) -> Dataset | None:
    """The questions; None, with a warning, where the recipes' file is not there any more."""
    try:
        return read_dataset(source)
    except QuothError as error:
        if named:
            raise
        say(f"quoth: warning: {error}; without the questions there are no intervals (--data names them)")
        return None

"""`quoth reproduce`: the tables and figures of the papers, in print and here."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quoth.cli.common import AsJson, Device, output, read_dataset
from quoth.cli.screen import console, say
from quoth.cli.sweep import show_plan, watch
from quoth.data import Dataset
from quoth.errors import QuothError
from quoth.experiments.paper_items import chosen_rows, find_item, listing, runs_of
from quoth.experiments.paper_report import report_facts
from quoth.experiments.reproduce import reproduce_facts
from quoth.experiments.reproduce_values import Finished
from quoth.experiments.run_results import sweeps_in
from quoth.files import write_text
from quoth.report.paper_page import claims_markdown, write_paper_page
from quoth.report.plots import check_plots
from quoth.report.reproduce_tables import print_reproduced

if TYPE_CHECKING:
    from quoth.experiments.grid import Planned
    from quoth.experiments.paper_items import Item, Paper
    from quoth.experiments.reproduce_plan import Settings

WIDE = 100  # columns of tables that go to a file or a pipe


def reproduce(
    item: Annotated[
        str | None, typer.Argument(metavar="PAPER/TABLE", help="Such as hulburd/table1.", show_default=False)
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Override keys of all its recipes.")
    ] = None,
    every: Annotated[bool, typer.Option("--list", help="List all tables and figures, and what they cost.")] = False,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Another encoder than the paper's.")] = None,
    data: Annotated[str | None, typer.Option(help="Train on these questions; by default all of SQuAD 2.0.")] = None,
    evaluate: Annotated[str | None, typer.Option(help="Score on these questions.")] = None,
    text: Annotated[str | None, typer.Option(help="Plain text for pruning, in place of BERT's.")] = None,
    glue: Annotated[str | None, typer.Option(help="A folder with TASK/train.tsv.gz and TASK/dev.tsv.gz.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Epochs of the longest run; the others in proportion.")] = None,
    fraction: Annotated[float | None, typer.Option(help="Train on this part of the data.")] = None,
    seeds: Annotated[int, typer.Option(help="Train with so many seeds.", min=1)] = 1,
    rows: Annotated[list[str] | None, typer.Option(help="Some of its rows; may be given more than once.")] = None,
    tasks: Annotated[list[str] | None, typer.Option(help="Of schubert: squad2, squad1, MNLI, MRPC …")] = None,
    out: Annotated[Path | None, typer.Option(help="The sweep folder; by default runs/reproduce/PAPER.")] = None,
    runs: Annotated[
        list[Path] | None, typer.Option(help="Take finished runs from here too; not trained again.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="PAGE.html", help="Write a page of all stored results; needs quoth[report].")
    ] = None,
    claims: Annotated[
        Path | None, typer.Option(metavar="CLAIMS.md", help="Write all claims of stored results as a table.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Train nothing: show what there is.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs, and train nothing.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Train this many runs at a time.", min=1)] = None,
    no_models: Annotated[bool, typer.Option("--no-models", help="Remove models when they are scored.")] = False,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Make a table or figure of a paper again: the numbers in print beside those of your runs, and verdicts.

    Interrupted at any moment, the same command goes on where it stopped. See docs/reproduce.md.
    """
    if every:
        facts = list(listing())
        output(facts, as_json, lambda: _show_list(facts))
        return
    kept = [path for folder in runs or [] for path in sweeps_in(folder)]
    if report or claims:
        if item:
            raise QuothError(f"{item}: --report and --claims are of all tables; leave out its name")
        _report(kept, evaluate, report, claims, as_json)
        return
    if item is None:
        raise QuothError("name a table or figure, such as hulburd/table1; quoth reproduce --list shows all")
    name, paper, chosen = find_item(item)
    wanted, some = tuple(rows or ()), tuple(tasks or ())
    _check(paper, chosen, wanted, some)
    folder = out or Path("runs") / "reproduce" / name
    failed = 0
    if show and out and not (out / "sweep.json").exists():
        raise QuothError(f"{out}: has no sweep.json; name the folder of a sweep, or leave out --out")
    if chosen.rows and not show:
        settings = {
            "model": model or "", "train": data or "", "evaluate": evaluate or "", "text": text or "",
            "glue": glue or "", "epochs": epochs, "fraction": fraction, "seeds": tuple(range(seeds)),
            "overrides": tuple(overrides or ()), "rows": wanted, "tasks": some,
        }  # fmt: skip
        waves, made = _plan(paper, chosen, settings, folder, kept)
        if dry_run:
            _dry_run([plan for wave in waves for plan in wave], folder, as_json)
            return
        failed = _train(waves, folder, (name, paper, chosen), made, (device, jobs, no_models))
    folders = [*([folder] if (folder / "sweep.json").exists() else []), *kept]
    found = reproduce_facts(item, folders, lambda source: _questions(evaluate or source, bool(evaluate)), wanted, some)
    output(found, as_json, lambda: _show(found))
    if failed:
        say(f"quoth: {failed} run{'s' if failed > 1 else ''} failed; the same command tries them again")
        raise SystemExit(1)


def _check(paper: Paper, item: Item, rows: tuple[str, ...], tasks: tuple[str, ...]) -> None:
    chosen_rows(item, rows)
    for task in tasks:
        if task not in paper.tasks:
            raise QuothError(f"--tasks {task}: this paper has {', '.join(paper.tasks) or 'none'}")


def _plan(
    paper: Paper, item: Item, given: dict[str, Any], folder: Path, kept: Sequence[Path]
) -> tuple[list[list[Planned]], Settings]:
    """The runs that are wanted, without those that folders of finished runs have already; and the settings."""
    try:
        from quoth.experiments.reproduce_plan import Settings, plan_item, still_needed  # needs torch, which is optional
    except ModuleNotFoundError as error:
        raise QuothError(f"training needs {error.name}: pip install 'quoth[train]'; or give --show") from None
    settings = Settings(**given)
    for run, made in runs_of(paper, item, settings.rows, settings.tasks).items():
        if settings.model and made.other_encoder:
            say(f"quoth: {run} is left out: it is of another encoder than the other rows, and --model is for all")
    waves = plan_item(paper, item, settings, folder)
    finished = Finished(paper)
    for one in kept:
        finished.add(one)
    methods = {plan.method for wave in waves for plan in wave}
    return still_needed(waves, {(method, one.seed) for method in methods for one in finished.of(method)}), settings


def _train(
    waves: list[list[Planned]],
    folder: Path,
    what: tuple[str, Paper, Item],
    settings: Settings,
    how: tuple[str | None, int | None, bool],
) -> int:
    """Train all runs, wave after wave, and score the ensembles; how many runs have failed."""
    from quoth.experiments.ensembles import score_ensembles  # needs torch, as the plan does
    from quoth.experiments.model_folders import remove_models
    from quoth.experiments.reproduce_plan import check_sources
    from quoth.experiments.sweep import SweepStopped, sweep

    _, paper, item = what
    device, jobs, no_models = how
    check_sources(waves, folder)
    failed = 0
    try:
        for wave in waves:
            with watch() as tell:
                ended = sweep(wave, folder, device=device, jobs=jobs, keep_others=True, tell=tell)
            failed += sum(run.state == "failed" for run in ended)
    except SweepStopped as stopped:
        say(f"quoth: {stopped}")
        raise SystemExit(128 + stopped.signal) from None
    chosen = chosen_rows(item, settings.rows)
    for plan in (plan for wave in waves for plan in wave):
        path = folder / plan.folder
        if (path / "metrics.json").exists():
            if plan.method in paper.runs:
                score_ensembles(paper, chosen, path, plan.method, lambda line: say(f"quoth: {line}"))
            if no_models:
                remove_models(path)
    return failed


def _dry_run(planned: Sequence[Planned], folder: Path, as_json: bool) -> None:
    from quoth.experiments.sweep_plan import plan_facts  # needs torch, which is optional

    facts = plan_facts(planned, folder, keep_others=True)
    output(facts, as_json, lambda: show_plan(facts))


def _report(kept: list[Path], evaluate: str | None, page: Path | None, claims: Path | None, as_json: bool) -> None:
    """The page and the table of claims, from stored runs."""
    if page:
        check_plots()

    @cache
    def questions(source: str) -> Dataset | None:
        return _questions(evaluate or source, bool(evaluate)) if evaluate or Path(source).exists() else None

    facts = report_facts(kept, questions)
    if page:
        write_paper_page(facts, page)
    if claims:
        write_text(claims, claims_markdown(facts))
    output(facts, as_json, lambda: console().print("\n".join(facts["summary"]), soft_wrap=True))


def _questions(source: str, named: bool) -> Dataset | None:
    """The questions that runs were scored on; None, with a warning, where they are not there any more."""
    try:
        return read_dataset(source)
    except QuothError as error:
        if named:
            raise
        say(f"quoth: warning: {error}; without the questions there are no intervals (--evaluate names them)")
        return None


def _show(facts: dict[str, Any]) -> None:
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    print_reproduced(facts, console(width=WIDE if piped else None))


def _show_list(facts: list[dict[str, Any]]) -> None:
    screen = console()
    for one in facts:
        screen.print(f"{one['name']}: {one['title']}", style="bold")
        screen.print(f"  prints {one['shows']}")
        if one["runs"]:
            claims = f", {len(one['claims'])} claims" if one["claims"] else ""
            windows = "as the text has" if one["windows"] is None else f"{one['windows'] / 1e6:.2f} million"
            runs = f"{one['runs']} run{'s' if one['runs'] > 1 else ''}"
            screen.print(f"  {one['rows']} rows{claims}; {runs}, windows: {windows}")
        for line in one["impossible"]:
            screen.print(f"  {line}")
        if one["note"]:
            screen.print(f"  {one['note']}")
    screen.print(
        "Windows: that one seed trains on at the paper's settings, heads on frozen states included. Tables of one "
        "paper share their runs. docs/reproduce.md has times."
    )

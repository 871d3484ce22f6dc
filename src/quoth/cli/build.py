"""`quoth build`: a small reader from a pretrained encoder, by one recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from quoth.cli.common import AsJson, Device, Overrides, Recipe, RunFolder, facts_of, figures_table, output
from quoth.cli.screen import console
from quoth.cli.train import watch
from quoth.errors import QuothError
from quoth.recipes import find_recipe


def build(
    recipe: Recipe,
    overrides: Overrides = None,
    out: RunFolder = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Tune a teacher, cut and distil it, and export it in int8. The reader lies in OUT/model.

    Interrupted at any moment, the same command goes on where it stopped. See docs/export.md.
    """
    try:
        from quoth.experiments.build_reader import build_reader, read_build_recipe  # needs torch, which is optional
    except ModuleNotFoundError as error:
        raise QuothError(f"building needs {error.name}: pip install 'quoth[export]'") from None
    made = read_build_recipe(find_recipe(recipe), overrides or [])
    run = out or Path("runs") / Path(recipe).stem
    with watch() as tell:
        facts = build_reader(made, run, device=device, tell=tell)
    output(facts, as_json, lambda: _show(facts, run))


def _show(facts: dict[str, Any], run: Path) -> None:
    with facts_of(run / "build.json"):
        table, size = _table(facts), f"{facts['exported']['int8_bytes'] / 1e6:.1f} MB"
    screen = console()
    screen.print(table)
    screen.print("F1 at the best threshold, which the reader keeps")
    screen.print(f"{run / 'model'}, {size}", soft_wrap=True)


def _table(facts: dict[str, Any]) -> Table:
    """The stages, and what the quantised reader scores."""
    table = figures_table("", "parameters", "F1", "with an answer, always answering", "minutes")
    quality = facts["quality"]
    rows = [
        (name, stage["parameters"], stage["quality"].get("best_f1"), stage["quality"].get("answered_f1"))
        for name, stage in facts["stages"].items()
    ]
    rows.append(("quantise", facts["parameters"], quality["f1"], quality["answered_f1"]))
    for name, parameters, *scores in rows:
        shown = ("" if score is None else f"{score:.2f}" for score in scores)
        table.add_row(name, f"{parameters:,}", *shown, f"{facts['seconds'][name] / 60:.1f}")
    return table

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
    """Tune teachers, train a student on their logits, cut it, export it in int8 and calibrate it, all in OUT/model.

    Interrupted at any moment, the same command goes on where it stopped. See docs/embedded.md.
    """
    try:
        from quoth.experiments.build_reader import build_reader  # needs torch, which is optional
        from quoth.experiments.build_recipe import read_build_recipe
    except ModuleNotFoundError as error:
        raise QuothError(f"building needs {error.name}: pip install 'quoth[export]'") from None
    made = read_build_recipe(find_recipe(recipe), overrides or [])
    run = out or Path("runs") / Path(recipe).stem
    with watch() as tell:
        facts = build_reader(made, run, device=device, tell=tell)
    output(facts, as_json, lambda: _show(facts, run))


def _show(facts: dict[str, Any], run: Path) -> None:
    with facts_of(run / "build.json"):
        table, calibrated = _table(facts), _calibrated(facts)
        exported = facts["exported"]
        size = f"{(exported['int8_bytes'] or exported['bytes']) / 1e6:.1f} MB"
    screen = console()
    screen.print(table)
    screen.print("F1 at the best threshold")
    if calibrated is not None:
        screen.print(calibrated)
    screen.print(f"{run / 'model'}, {size}", soft_wrap=True)


def _table(facts: dict[str, Any]) -> Table:
    """The stages, and what the exported reader scores."""
    table = figures_table("", "parameters", "F1", "with an answer, always answering", "minutes")
    quality = facts["quality"]
    rows = [
        (name, stage["parameters"], stage["quality"].get("best_f1"), stage["quality"].get("answered_f1"))
        for name, stage in facts["stages"].items()
    ]
    rows.append(("quantise", facts["parameters"], quality["f1"], quality["answered_f1"]))
    for name, parameters, *scores in rows:
        table.add_row(name, f"{parameters:,}", *map(_shown, scores), f"{facts['seconds'][name] / 60:.1f}")
    return table


def _calibrated(facts: dict[str, Any]) -> Table | None:
    """Scores at the calibration, where there is one."""
    if "calibration" not in facts:
        return None
    table = figures_table("calibrated, cross-fitted by article", "F1", "with an answer", "without", "ECE")
    for name, of in facts["calibration"]["cross_fitted"].items():
        scores = (of["f1"], of["HasAns_f1"], of["NoAns_f1"])
        table.add_row(name, *map(_shown, scores), f"{of['expected_calibration_error']:.3f}")
    return table


def _shown(score: float | None) -> str:
    return "" if score is None else f"{score:.2f}"

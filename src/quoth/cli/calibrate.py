"""`quoth calibrate`: fit how probable it is that an answer is right, and store it with the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from quoth.answer import Reader, store_confidence
from quoth.answer.abstention import check_storable
from quoth.cli import common
from quoth.cli.screen import console
from quoth.embedded import NAME
from quoth.errors import QuothError
from quoth.score.calibrate_reader import check_weights, fit_reader


def calibrate(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA…", help="Questions with and without an answer; each file counts the same, or by --weights."
        ),
    ],
    model: Annotated[str, typer.Option("--model", "-m", help="The model folder that is to keep it.")],
    weights: Annotated[
        str | None, typer.Option(metavar="W,W,…", help="How much each file counts, such as 1,1,0.25.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the scores and store nothing.")] = False,
    device: common.Device = None,
    precision: common.Precision = None,
    as_json: common.AsJson = False,
) -> None:
    """Fit the probability that an answer is right, on datasets that the model was not trained on, and store it.

    The scores are those of articles that the calibration was not fitted on.
    """
    if not dry_run:
        if model == NAME and not Path(model).is_dir():
            raise QuothError("the embedded reader keeps its own calibration; name the folder that is to keep this one")
        check_storable(model)
    counted = parse_weights(weights, len(data))
    datasets = [common.read_dataset(path) for path in data]
    names = [Path(path).name for path in data]
    reader = Reader.load(model, device=device, precision=precision)
    confidence, facts = fit_reader(reader, datasets, names, counted, common.progress)
    if not dry_run:
        store_confidence(reader.source, confidence)
    facts["stored"] = None if dry_run else str(reader.source)
    common.output(facts, as_json, lambda: _show(facts))


def parse_weights(given: str | None, count: int) -> tuple[float, ...]:
    """The numbers of `--weights`; none if it was left out."""
    if given is None:
        return ()
    try:
        found = tuple(float(part) for part in given.split(","))
    except ValueError:
        raise QuothError(f"--weights {given}: numbers with commas between them are wanted, such as 1,0.25") from None
    check_weights(found, count, "--weights")
    return found


def _show(facts: dict[str, Any]) -> None:
    screen = console()
    heads = ("cross-fitted by article", "questions", "F1", "with an answer", "without", "ECE", "AURC", "of the margin")
    table = common.figures_table(*heads)
    for name, of in facts["cross_fitted"].items():
        f1 = [f"{of[key]:.2f}" if of[key] is not None else "" for key in ("f1", "HasAns_f1", "NoAns_f1")]
        areas = [f"{part['area_under_risk_coverage']:.3f}" for part in (of, of["raw"])]
        table.add_row(name, f"{of['questions']:,}", *f1, f"{of['expected_calibration_error']:.3f}", *areas)
    screen.print(table)
    weights = common.figures_table("weight", "right", "no answer")
    fitted = facts["calibration"]
    for i, name in enumerate(fitted["features"]):
        weights.add_row(name, *(f"{fitted[kind]['weights'][i]:.3f}" for kind in ("right", "no_answer")))
    weights.add_row("bias", *(f"{fitted[kind]['bias']:.3f}" for kind in ("right", "no_answer")))
    screen.print(weights)
    screen.print(f"kept in {facts['stored']}" if facts["stored"] else "nothing was stored")

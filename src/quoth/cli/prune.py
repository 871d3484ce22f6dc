"""`quoth prune`: make a model smaller."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from quoth.cli.common import AsJson, Device, Overrides, RunFolder, facts_of, figures_table, output
from quoth.cli.screen import console
from quoth.cli.train import watch
from quoth.config import set_key
from quoth.embedded import is_embedded
from quoth.errors import QuothError
from quoth.model import open_checkpoint
from quoth.recipes import find_recipe, recipe_names
from quoth.score.quality import NAMES

if TYPE_CHECKING:
    from quoth.prune.metrics import PruneMetrics
    from quoth.prune.recipe import PruneRecipe

LOSSES = {"task": "the task's loss", "distillation": "distillation", "both": "the task's loss and distillation"}


def prune(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL|RECIPE.toml", help="A model with a head, or a recipe, of your own or shipped."),
    ],
    overrides: Overrides = None,
    keep: Annotated[
        list[float] | None, typer.Option(help="The fraction to keep; give it several times for several models.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="What the fraction is of: parameters, flops or latency.")] = None,
    data: Annotated[list[str] | None, typer.Option(help="The data to train gates and weights on.")] = None,
    evaluate: Annotated[str | None, typer.Option(help="The data to score the models on.")] = None,
    out: RunFolder = None,
    search: Annotated[
        int | None,
        typer.Option(metavar="N", help="Search gamma, learning_rate and steps of the gates in N trials first."),
    ] = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Cut the sizes of a model, layer by layer, and train what is left, into OUT/keep-…/model.

    With a model, gates and recovery are trained by distillation from the unpruned model; with a recipe, as it says.

    Interrupted at any moment, the same command goes on where it stopped. See docs/prune.md.
    """
    try:
        from quoth.prune.recipe import read_prune_recipe  # needs torch, which is optional
        from quoth.prune.schedule import prune as run_recipe  # likewise
    except ModuleNotFoundError as error:
        raise QuothError(f"pruning needs {error.name}: pip install 'quoth[train]'") from None
    changes = [*(overrides or []), *([] if search is None else [f"hpo.trials={search}"])]
    if model.endswith(".toml") or (model in recipe_names() and not is_embedded(model)):
        if keep or by or data or evaluate:
            raise QuothError(f"{model}: a recipe names target and data itself; write target.keep=0.5 and so on")
        made = read_prune_recipe(find_recipe(model), changes)
    else:
        made = _simple(model, changes, keep or [], by, data or [], evaluate)
    run = out or Path("runs") / Path(model).stem
    with watch() as tell:
        metrics = run_recipe(made, run, device=device, tell=tell)
    output(metrics.to_json(), as_json, lambda: _show(metrics, run))


def _simple(
    model: str, overrides: list[str], keep: list[float], by: str | None, data: list[str], evaluate: str | None
) -> PruneRecipe:
    """The recipe of the simple case: windows and task are those of the model."""
    from quoth.prune.recipe import make_prune_recipe  # needs torch, which is optional

    if not keep:
        raise QuothError("--keep is missing: which part of the model should be left, such as 0.5")
    if not data:
        raise QuothError("--data is missing: pruning trains on data of the task, such as those of training")
    checkpoint = open_checkpoint(model)
    kind = (checkpoint.head or {}).get("kind")
    if kind == "class":
        raise QuothError("--data of classes needs a recipe, which says data.task: answerable or glue")
    table: dict[str, Any] = {
        "model": model,
        "data": {"train": data, "evaluate": evaluate or "", **(checkpoint.windows or {})},
        "target": {"keep": sorted(keep, reverse=True), "by": by or "parameters", "multiple": 8, "give_back": True},
        "gates": {"task_weight": 0.0, "logits_weight": 1.0, "floor": 0.1},
        "distillation": {"task_weight": 0.0, "logits_weight": 1.0, "states_weight": 1.0},
    }
    if kind == "mlm":
        table["data"] |= {"task": "pretrain", "held_out": 0.0 if evaluate else 0.05}
    for one in overrides:
        set_key(table, one)
    return make_prune_recipe(table, "quoth prune")


def _show(metrics: PruneMetrics, run: Path) -> None:
    with facts_of(run / "metrics.json"):
        tables = [*([_trials(metrics.hpo)] if metrics.hpo else []), _models(metrics, run)]
    screen = console()
    for table in tables:
        screen.print(table)
    for line in (_losses(metrics), *metrics.unreachable.values()):
        screen.print(line, highlight=False, soft_wrap=True)


def _losses(metrics: PruneMetrics) -> str:
    """By which loss gates and recovery were trained, and who taught."""
    parts = [f"{part} by {LOSSES[name]}" for part, name in metrics.loss.items()]
    teachers = [metrics.teacher] if isinstance(metrics.teacher, str) else list(metrics.teacher)
    taught = any(name != "task" for name in metrics.loss.values())
    return ", ".join(parts) + (
        f"; teacher: {', '.join(filter(None, teachers)) or 'the unpruned model'}" if taught else ""
    )


def _models(metrics: PruneMetrics, run: Path) -> Table:
    """The models, the unpruned one first."""
    rows: list[tuple[str, float | None, Any]] = [("unpruned", metrics.unpruned.loss, metrics.unpruned)]
    rows += [(str(run / row.model), row.losses["recovered"], row) for row in metrics.targets.values()]
    keys = [key for key in NAMES if any(key in row.quality for _, _, row in rows)]
    table = figures_table("model", "parameters", "non-embedding", metrics.by, "loss", *(NAMES[key] for key in keys))
    for name, loss, row in rows:
        scores = (f"{row.quality[key]:.2f}" if key in row.quality else "" for key in keys)
        sizes = (f"{row.parameters:,}", f"{row.non_embedding_parameters:,}", f"{row.cost:.3f}")
        table.add_row(name, *sizes, f"{loss:.4f}", *scores)
    return table


def _trials(search: dict[str, Any]) -> Table:
    """The trials of a search, from the best to the worst, then those that failed."""
    by = search["by"]
    unpruned = f"unpruned {search['unpruned']:.4g}"
    table = figures_table("trial", "γ", "learning rate", "steps", NAMES.get(by, by), left=0, caption=unpruned)
    for row in sorted(search["trials"], key=lambda row: (row["score"] is None, -(row["score"] or 0), row["number"])):
        score = row["state"] if row["score"] is None else f"{row['score']:.4g}"
        table.add_row(
            str(row["number"]), f"{row['gamma']:.3g}", f"{row['learning_rate']:.3g}", str(row["steps"]), score
        )
    return table

"""Which runs `quoth reproduce` makes: those of a table, at the paper's settings or at those that are given.

Runs of one paper lie in one sweep folder, so that tables share them. Models that are tuned after pruning begin from the
model that the pruning run leaves there, so they are a second sweep in the same folder.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from quoth.config import overridden
from quoth.errors import QuothError
from quoth.experiments.grid import Grid, Planned, plan_runs
from quoth.experiments.paper_items import Item, Paper, PaperRun, run_table, runs_of
from quoth.experiments.run_results import METRICS
from quoth.hub import find_description
from quoth.prune.plan import folder_of
from quoth.prune.recipe import PruneRecipe
from quoth.train.recipe import Recipe

SQUAD, TEXT = "squad2", "text"
TRAIN, DEV = "train.tsv.gz", "dev.tsv.gz"
FILES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt")  # data of other names are on the hub


@dataclass(frozen=True)
class Settings:
    """What is given in place of the paper's settings.

    train, evaluate: data of SQuAD 2.0; text: of pre-training; glue: a folder with TASK/train.tsv.gz and dev.tsv.gz
    epochs: of the longest run, the others in proportion; fraction: of the training data; overrides: key=value, for runs
    that have such a key; rows, tasks: some of the table alone
    """

    model: str = ""
    train: str = ""
    evaluate: str = ""
    text: str = ""
    glue: str = ""
    epochs: float | None = None
    fraction: float | None = None
    seeds: tuple[int, ...] = (0,)
    overrides: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()


def plan_item(paper: Paper, item: Item, settings: Settings, folder: Path) -> list[list[Planned]]:
    """The sweeps of an item, one after the other: its runs, and those that begin from a pruned model."""
    needed = runs_of(paper, item, settings.rows, settings.tasks)
    runs = {name: run for name, run in needed.items() if not (settings.model and run.other_encoder)}
    if needed and not runs:
        raise QuothError(f"{', '.join(needed)}: is of another encoder than the other rows, so leave out --model")
    factor = _factor(runs, settings)
    first = {name: run for name, run in runs.items() if not run.after}
    tables = {name: _table(run, settings, factor) for name, run in first.items()}
    words = _words(runs, settings.overrides)
    waves = [_planned(tables, words, settings.seeds)] if tables else []
    after = {name: run for name, run in runs.items() if run.after}
    second: list[Planned] = []
    for seed in settings.seeds if after else ():
        made = {plan.method: plan for plan in waves[0] if plan.seed == seed}
        tables = {
            name: _table(run, settings, factor)
            | {"model": str(folder / _model_of(made[run.after], paper.runs[run.after]))}
            for name, run in after.items()
        }
        second += _planned(tables, words, (seed,))
    return [*waves, *([second] if second else [])]


def still_needed(waves: Sequence[Sequence[Planned]], finished: Container[tuple[str, int]]) -> list[list[Planned]]:
    """The waves without what is finished elsewhere (method and seed). A pruning run stays if others need its model."""
    left: list[list[Planned]] = []
    models: list[Path] = []
    for wave in reversed(waves):
        chosen = [plan for plan in wave if (plan.method, plan.seed) not in finished or _holds(plan, models)]
        models += [Path(plan.recipe.model) for plan in chosen]
        left.insert(0, chosen)
    return [wave for wave in left if wave]


def _holds(plan: Planned, models: Sequence[Path]) -> bool:
    """Whether one of these models lies in the folder of a run."""
    return any(plan.folder in model.parts for model in models)


def check_sources(waves: Sequence[Sequence[Planned]], folder: Path) -> None:
    """Raise an error for a model or a file of data that is not there, before anything is trained."""
    for plan in waves[0] if waves else ():
        recipe = plan.recipe
        if (folder / plan.folder / METRICS).exists():
            continue
        find_description(recipe.model)
        for name in (*recipe.data.train, recipe.data.evaluate):
            if name.lower().removesuffix(".gz").endswith(FILES) and not Path(name).exists():
                raise QuothError(f"{name}: no such file")


def _model_of(plan: Planned, run: PaperRun) -> Path:
    """Where a pruning run leaves its model, in the sweep folder."""
    assert isinstance(plan.recipe, PruneRecipe)
    return Path(plan.folder) / (run.folder or folder_of(plan.recipe.target.keep[-1])) / "model"


def _planned(
    tables: Mapping[str, dict[str, Any]], words: Mapping[str, list[str]], seeds: Sequence[int]
) -> list[Planned]:
    """Runs of these tables, each with its overrides."""
    found: list[Planned] = []
    for name, table in tables.items():
        found += plan_runs(Grid(runs={name: table}, seeds=tuple(seeds)), "reproduce", words[name])
    return found


def _words(runs: Mapping[str, PaperRun], overrides: Sequence[str]) -> dict[str, list[str]]:
    """The overrides of each run: a key that only others have is left out. What no run has, all get: it is a mistake."""
    known = {name: _keys(run) for name, run in runs.items()}
    every = set().union(*known.values())
    sections = {word: word.partition("=")[0].partition(".")[0] for word in overrides}
    return {name: [w for w, key in sections.items() if key in own or key not in every] for name, own in known.items()}


def _keys(run: PaperRun) -> set[str]:
    """The sections of the recipe of a run."""
    kind = PruneRecipe if "target" in run_table(run) else Recipe
    return {field.name for field in fields(kind)}


def _table(run: PaperRun, settings: Settings, factor: float | None) -> dict[str, Any]:
    """The table of a named run of a grid: its recipe and what is overridden in it."""
    table: dict[str, Any] = {"recipe": run.recipe, **run.set}
    if settings.model:
        table["model"] = settings.model
    table = overridden(table, {"data": _data(run, settings)})
    if settings.fraction is not None and run.data != TEXT:
        table = overridden(table, {"data": {"fraction": settings.fraction * table["data"].get("fraction", 1.0)}})
    return overridden(table, _epochs(run, factor)) if factor is not None else table


def _data(run: PaperRun, settings: Settings) -> dict[str, Any]:
    """Which of the data that are given a run takes."""
    if run.data == SQUAD:
        given = {"train": settings.train, "evaluate": settings.evaluate}
        return {key: value for key, value in given.items() if value}
    if run.data == TEXT:
        if not settings.text:
            raise QuothError("a pruning run of this table needs plain text: give --text FILE (paragraphs, blank lines)")
        return {"train": settings.text}
    folder = Path(settings.glue) / run.data
    if not settings.glue:
        return {}
    for name in (TRAIN, DEV):
        if not (folder / name).exists():
            raise QuothError(f"{folder / name}: no such file; --tasks names those of the table that --glue has")
    return {"train": str(folder / TRAIN), "evaluate": str(folder / DEV)}


def _factor(runs: Mapping[str, PaperRun], settings: Settings) -> float | None:
    """By how much all epochs are multiplied, so that the longest run has those that are asked for."""
    if settings.epochs is None:
        return None
    tables = [run_table(run) for run in runs.values()]
    nominal = [table["optimisation"]["epochs"] for table in tables if "optimisation" in table]
    nominal = nominal or [table["recovery"]["epochs"] for table in tables]
    if settings.epochs <= 0:
        raise QuothError(f"--epochs is {settings.epochs:g}; a number above 0 is wanted")
    return settings.epochs / max(nominal, default=1.0)


def _epochs(run: PaperRun, factor: float) -> dict[str, Any]:
    """The epochs of a run, and all moments in it, multiplied."""
    table = run_table(run)
    if "target" in table:
        return {"recovery": {"epochs": table["recovery"]["epochs"] * factor}}

    def times(values: Sequence[float]) -> list[float]:
        return [float(f"{value * factor:.6g}") for value in values]

    evaluation, frozen = table.get("evaluation", {}), table.get("frozen", {})
    found: dict[str, Any] = {"optimisation": {"epochs": times([table["optimisation"]["epochs"]])[0]}}
    if evaluation.get("at"):
        found["evaluation"] = {"at": times(evaluation["at"])}
    if frozen.get("at"):
        own = {name: {**head, "at": times(head["at"])} for name, head in frozen["heads"].items()
               if isinstance(head, Mapping) and "at" in head}  # fmt: skip
        found["frozen"] = {"at": times(frozen["at"]), **({"heads": own} if own else {})}
    return found

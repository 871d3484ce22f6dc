"""sweep.json: which runs a sweep has, and how far each is; and the folder that it lies in.

SWEEP/sweep.json           the runs: method, seed, recipe, state, seconds, and the error of one that failed
SWEEP/METHOD-seedN/        a run of `quoth train`
SWEEP/windows/             tokenised questions, for all runs on the same data
SWEEP/teacher-logits/      of the teachers, for all runs with the same ones
SWEEP/logs/METHOD-seedN.log   what a run said on standard error

metrics.json in a run folder, which is written last, says that the run has finished; sweep.json repeats it for people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from quoth.config import differences, fill
from quoth.errors import QuothError
from quoth.experiments.grid import Planned, recipe_of
from quoth.files import read_json, write_json
from quoth.folders import remove_leftovers
from quoth.prune.recipe import PruneRecipe
from quoth.train.metrics import FILE as METRICS
from quoth.train.recipe import Recipe
from quoth.train.run_folder import RunFolder
from quoth.train.settings import LOGITS

FILE = "sweep.json"
FORMAT = 1
LOGS, WINDOWS = "logs", "windows"
LEFT = re.compile(r"sweep\.json|windows-[0-9a-f]+\.npz")  # what a killed sweep may leave half-written

State = Literal["waiting", "running", "finished", "failed"]


@dataclass(frozen=True)
class SweepRun:
    """A run of a sweep. seconds: of its process, over all interruptions; error: the one line of its failure."""

    folder: str
    method: str
    seed: int
    recipe: dict[str, Any]
    state: State = "waiting"
    seconds: float = 0.0
    error: str = ""

    def full_recipe(self, sweep: Path) -> Recipe | PruneRecipe:
        """The recipe that is trained: with the logits of teachers in a folder of the sweep, unless it names one."""
        recipe = recipe_of(self.recipe, str(sweep / FILE))
        if isinstance(recipe, PruneRecipe) or not recipe.teachers or recipe.distillation.cache_folder:
            return recipe
        kept = str((sweep / LOGITS).resolve())
        return replace(recipe, distillation=replace(recipe.distillation, cache_folder=kept))


@dataclass(frozen=True)
class SweepRecord:
    """What sweep.json holds."""

    format: int
    runs: list[dict[str, Any]] = field(default_factory=list)


def read_sweep(folder: Path) -> list[SweepRun]:
    """The runs of a sweep folder, in the order of its grid."""
    path = folder / FILE
    record = fill(SweepRecord, _object(path), str(path))
    if record.format != FORMAT:
        raise QuothError(f"{path}: format {record.format} is not {FORMAT}, which this version reads; upgrade Quoth")
    runs = [fill(SweepRun, table, str(path), f"runs.{i}.") for i, table in enumerate(record.runs)]
    for run in runs:
        if Path(run.folder).name != run.folder or run.folder in (".", ".."):
            raise QuothError(f"{path}: {run.folder!r} is not the name of a folder beside it; was it changed by hand?")
    return runs


def write_sweep(folder: Path, runs: Sequence[SweepRun]) -> None:
    """Write sweep.json."""
    write_json(folder / FILE, {"format": FORMAT, "runs": [asdict(run) for run in runs]})


def claim_sweep(folder: RunFolder, planned: Sequence[Planned], keep_others: bool = False) -> list[SweepRun]:
    """The runs of the sweep, those of an earlier one in the folder with their seconds; half-written files go."""
    strange = next((p for p in folder.path.iterdir() if not p.name.startswith((".lock", ".sweep.json."))), None)
    if strange is not None and not (folder.path / FILE).exists():
        raise QuothError(
            f"{folder.path}: exists and is not a sweep folder (it has {strange.name}); choose another --out"
        )
    remove_leftovers(folder.path, LEFT)
    return merge_runs(folder.path, planned, keep_others)


def merge_runs(folder: Path, planned: Sequence[Planned], keep_others: bool = False) -> list[SweepRun]:
    """The planned runs, as far as an earlier sweep has brought them. Runs may be added, none changed or left out.

    keep_others: those of the folder that are not planned come after the planned ones
    """
    known = {run.folder: run for run in read_sweep(folder)} if (folder / FILE).exists() else {}
    found = [_merged(folder, plan, known.pop(plan.folder, None)) for plan in planned]
    if keep_others:
        found += [other if other.state == "finished" else replace(other, state="waiting") for other in known.values()]
    elif known:
        gone = next(iter(known))
        raise QuothError(
            f"{folder / FILE}: has a run {gone}, which the grid has not; put it back, or use another --out"
        )
    return found


def _merged(folder: Path, plan: Planned, known: SweepRun | None) -> SweepRun:
    recipe = json.loads(json.dumps(asdict(plan.recipe)))
    changed = differences(known.recipe, recipe) if known else ()
    if changed:
        raise QuothError(
            f"{folder / FILE}: the run {plan.folder} has changed (there, in the grid: {changed[0]}); "
            "put it back, give the new one another name, or use another --out"
        )
    run = SweepRun(plan.folder, plan.method, plan.seed, recipe, seconds=known.seconds if known else 0.0)
    if (folder / run.folder / METRICS).exists():
        return replace(run, state="finished")
    failed = known is not None and known.state == "failed"
    return replace(run, state="failed", error=known.error) if failed and known else run


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise QuothError(f"{path}: is not what Quoth writes there; was it changed by hand?")
    return value

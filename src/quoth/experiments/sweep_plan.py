"""What `quoth sweep` tells of its runs: before they are trained, with `--dry-run`, and afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quoth.errors import QuothError
from quoth.experiments.grid import Planned
from quoth.experiments.sizes import Sizes, sizes_of
from quoth.experiments.sweep_record import SweepRun, merge_runs
from quoth.experiments.time_left import run_seconds, seconds_left
from quoth.files import read_object
from quoth.prune.recipe import PruneRecipe
from quoth.train.metrics import FILE as METRICS


def plan_facts(planned: Sequence[Planned], folder: Path, keep_others: bool = False) -> dict[str, Any]:
    """What `quoth sweep --dry-run --json` prints; nothing is written, and no weights are read."""
    runs = merge_runs(folder, planned, keep_others)[: len(planned)]
    known: dict[str, Sizes | QuothError | None] = {}
    for plan in planned:  # seeds do not change sizes
        if isinstance(plan.recipe, PruneRecipe):
            known[plan.method] = None
        elif plan.method not in known:
            try:
                known[plan.method] = sizes_of(plan.recipe)
            except QuothError as error:
                known[plan.method] = error
    return {
        "sweep": str(folder),
        "finished": sum(run.state == "finished" for run in runs),
        "seconds_left": seconds_left(runs, {}, 1),
        "runs": [_planned_facts(run, known[run.method], runs) for run in runs],
    }


def _planned_facts(run: SweepRun, sizes: Sizes | QuothError | None, runs: Sequence[SweepRun]) -> dict[str, Any]:
    found = sizes if isinstance(sizes, Sizes) else None
    return {
        "folder": run.folder,
        "method": run.method,
        "seed": run.seed,
        "state": run.state,
        "trainable_parameters": found.trainable if found else None,
        "total_parameters": found.total if found else None,
        "heads": found.heads if found else {},
        "seconds": run.seconds,
        "estimated_seconds": None if run.state == "finished" else run_seconds(run, runs),
        "error": str(sizes) if isinstance(sizes, QuothError) else "",
    }


def run_facts(folder: Path, run: SweepRun) -> dict[str, Any]:
    """What `quoth sweep --json` prints of a run."""
    path = folder / run.folder / METRICS
    metrics = read_object(path) if run.state == "finished" else {}
    return {
        "folder": run.folder,
        "method": run.method,
        "seed": run.seed,
        "state": run.state,
        "seconds": run.seconds,
        "error": run.error,
        "quality": metrics.get("quality", {}),
        "trainable_parameters": metrics.get("trainable_parameters"),
        "total_parameters": metrics.get("total_parameters"),
        "train_seconds": metrics.get("train_seconds"),
    }

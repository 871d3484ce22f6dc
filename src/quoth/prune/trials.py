"""The hyper-parameter search of `quoth prune`: trials one after the other, judged by data that they are not trained on.

A tenth of the training data (whole passages of questions, rows of GLUE, windows of text; at most about 2,048 questions
or rows) is held out of all trials, for their scores: `data.evaluate` is never looked at. The run that follows is
trained on all of it.

RUN/study.log             the study, to go on from
RUN/hpo.json           all trials, the best one, and by what they were judged
RUN/hpo/recipe.toml    the recipe as it was asked for
RUN/hpo/trial-3/       a pruning run to the first target, until its score is kept
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from quoth.errors import QuothError
from quoth.files import write_json
from quoth.prune.hpo import Row, Study, open_study
from quoth.prune.metrics import PruneMetrics
from quoth.prune.plan import folder_of
from quoth.prune.recipe import GateSettings, PruneRecipe
from quoth.prune.shrink import Workbench
from quoth.tasks import Task
from quoth.train import Interrupted
from quoth.train.settings import LOGITS

PART, MOST = 0.1, 2048  # of the questions or rows, held out

RunTrial = Callable[[PruneRecipe, Path, Task], PruneMetrics]


def search_gates(bench: Workbench, run: Path, source: str | Path, keep: float, trial: RunTrial) -> PruneRecipe:
    """Run the trials that are still to be run; the recipe with the best gates, and no search.

    source: the unpruned model, with its heads; keep: the first target; trial: prunes, and gives its metrics
    """
    recipe, search, why = bench.recipe, bench.recipe.hpo, ""
    try:
        held = bench.task.hold_out(PART, MOST, recipe.seed)
    except QuothError as error:
        raise QuothError(f"{', '.join(recipe.data.train)}: {error}") from None
    quality = held.evaluate(bench.unpruned, bench.device).quality
    by, unpruned = held.main_score(quality)
    about = {"by": by, "windows": quality["windows"], "unpruned": unpruned}
    study = open_study(run, search, recipe.seed)
    while study.over < search.trials:
        if bench.stop.signal:
            raise Interrupted(study.over, search.trials, bench.stop.signal)
        number = study.ask()[0]
        folder, why = run / "hpo" / f"trial-{number}", ""
        if recipe.target.by == "latency":
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(run / "latency.json", folder / "latency.json")  # measured once, the same for all
        try:
            metrics = trial(_recipe(recipe, study.row(number), source, keep, run), folder, held)
            quality = metrics.targets[folder_of(keep)].quality
            study.tell(number, held.main_score(quality)[1])
        except QuothError as error:  # such as a loss that is no longer finite
            study.tell_failed(number)
            why = str(error)
        shutil.rmtree(folder, ignore_errors=True)
        _write(run, study, about)
        bench.tell(f"trial {study.over} of {search.trials}: {_line(study, number, by, why)}")
    best = study.best
    if best is None:
        raise QuothError(f"{run}: all {search.trials} trials of the search failed; {why or 'see hpo.json'}")
    _write(run, study, about)
    return replace(recipe, gates=_gates(recipe, best), hpo=replace(search, trials=0))


def _recipe(recipe: PruneRecipe, row: Row, source: str | Path, keep: float, run: Path) -> PruneRecipe:
    """A trial: to the first target, with little recovery; all trials share the logits of teachers."""
    return replace(
        recipe,
        model=str(source),
        target=replace(recipe.target, keep=(keep,)),
        gates=_gates(recipe, row),
        recovery=replace(recipe.recovery, epochs=recipe.hpo.epochs),
        distillation=replace(recipe.distillation, cache_folder=recipe.distillation.cache_folder or str(run / LOGITS)),
        hpo=replace(recipe.hpo, trials=0),
    )


def _gates(recipe: PruneRecipe, row: Row) -> GateSettings:
    return replace(recipe.gates, gamma=row["gamma"], learning_rate=row["learning_rate"], steps=row["steps"])


def _line(study: Study, number: int, by: str, why: str) -> str:
    row, best = study.row(number), study.best
    gates = f"γ {row['gamma']:.3g}, learning rate {row['learning_rate']:.3g}, {row['steps']} steps"
    if row["score"] is None or best is None:
        return f"{gates}: failed, {why or 'its score is not finite'}"
    return f"{gates}: {by} {row['score']:.4g}, best {best['score']:.4g}"


def _write(run: Path, study: Study, about: dict[str, Any]) -> None:
    best = study.best
    write_json(run / "hpo.json", {**about, "best": best and best["number"], "trials": study.table()})

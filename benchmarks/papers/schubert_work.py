"""What a worker process of benchmarks.papers.schubert does: train, prune, or fit heads of pre-training."""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.papers.schubert_runs import Run
from benchmarks.pool import Facts
from quoth.errors import QuothError
from quoth.files import read_json, write_json

KEPT = ("losses", "steps", "seconds", "quality", "shape")  # of a target
LATE = "not begun: the time is up"

_tasks: dict[Any, Any] = {}
_until = [0.0]


def receive(tasks: dict[Any, Any], until: float) -> None:
    """A worker receives the data, tokenised once for all, and the time after which it begins nothing."""
    import torch

    torch.set_num_threads(1)
    _tasks.update(tasks)
    _until[0] = until


def work(run: Run, out: str) -> tuple[Run, Facts]:
    """Do one run: the facts that tables need or, under `error`, why there are none."""
    import torch

    if time.time() > _until[0]:
        return run, {"error": LATE}
    begin, folder = time.perf_counter(), f"{out}/{run.name}"
    made_by = Path(f"{folder}.json")
    if not made_by.exists() or read_json(made_by) != list(run.overrides):  # the folder is another run's
        shutil.rmtree(folder, ignore_errors=True)
        write_json(made_by, list(run.overrides))
    try:
        facts = {"prune": do_prune, "train": do_train, "heads": do_heads}[run.how](run, folder)
    except (QuothError, RuntimeError) as error:  # such as a rate that is too high: no reason to end the others
        facts = {"error": f"{type(error).__name__}: {error}"}
    if not run.keep:
        shutil.rmtree(folder, ignore_errors=True)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return run, {**facts, "wall": time.perf_counter() - begin}


def do_prune(run: Run, folder: str) -> Facts:
    """Prune to the one target of a run."""
    from quoth.prune import prune  # needs torch

    recipe = run.recipe()
    prune(recipe, folder, task=_tasks[recipe.data])
    facts = read_json(Path(folder) / "metrics.json")
    kept = {name: {key: target[key] for key in KEPT if key in target} for name, target in facts["targets"].items()}
    start = {"start": kept.pop("start")} if "start" in kept else {}
    (target,) = kept.values()
    return {**target, **start, "unpruned": {key: facts["unpruned"].get(key) for key in ("loss", "quality", "shape")}}


def do_train(run: Run, folder: str) -> Facts:
    """Tune all weights of a model."""
    from quoth.train import train

    recipe = run.recipe()
    train(recipe, folder, task=_tasks[recipe.data])
    facts = read_json(Path(folder) / "metrics.json")
    return {key: facts[key] for key in ("quality", "steps", "train_seconds", "hardware", "versions")}


def do_heads(run: Run, folder: str) -> Facts:
    """Fit heads of pre-training on the frozen encoder, once for all runs on text."""
    import torch
    from accelerate import Accelerator

    from quoth.model.loading import load
    from quoth.model.saving import save
    from quoth.train import warm_up

    recipe = run.recipe()
    task, model = _tasks[recipe.data], load(recipe.model)
    names = task.add_head(model, recipe.head, recipe.seed)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    found = warm_up(model, task, names, accelerator, seed=recipe.seed, most=run.facts["most"])
    save(model.to("cpu"), f"{folder}/model")
    return {"steps": found.steps, "losses": list(found.losses), "every": found.every, "flat": found.flat}


def tokenised(runs: Iterable[Run], model: str) -> dict[Any, Any]:
    """The tasks of these runs, with their data. All models have the tokenizer of the one that they come from."""
    from quoth.model.loading import load
    from quoth.tasks import prepare

    found: dict[Any, Any] = {}
    base = load(model)
    for run in runs:
        recipe = run.recipe()
        if recipe.data not in found:
            found[recipe.data] = prepare(recipe.data, base, recipe.seed)
    return found

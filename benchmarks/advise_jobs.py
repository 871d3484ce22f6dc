"""The jobs of `benchmarks.advise`: searches, whole trainings, and candidates through all rounds of a search."""

from __future__ import annotations

import math
import shutil
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from quoth.data import read
from quoth.errors import QuothError
from quoth.files import write_json

Facts = dict[str, Any]
LARGEST = 0.1  # of the questions: an article that has more is not taken, as "_untitled" of SQuAD


@dataclass(frozen=True)
class Settings:
    """What all jobs have in common. work: the folder of weights; rounds of a search by their candidates' number."""

    model: str
    device: str | None
    work: str
    seeds: int
    size: float


@dataclass(frozen=True)
class Job:
    """A search, a whole training (with recipe), or a candidate in all rounds (with recipe and curve).

    name: of its results; folder: where its weights lie; curve: of how many candidates the search is
    """

    name: str
    folder: str
    data: str
    settings: Settings
    size: float | None = None
    latency: float | None = None
    recipe: Any = None
    windows: str = ""
    curve: int = 0


class _PlannedError(Exception):
    """The plan of a search is written."""


def prepare(name: str, source: str, folder: Path, questions: int, test: int) -> tuple[Path, Path]:
    """The user's questions, and those of the test: whole articles, or passages where there are few articles."""
    from quoth.experiments.advise_data import ARTICLES, squad

    paths = folder / f"{name}.json", folder / f"{name}-test.json"
    dataset = read(source)
    few = len({question.title for question in dataset.questions}) < ARTICLES
    groups: dict[str, list[int]] = {}
    for number, one in enumerate(dataset.questions):
        groups.setdefault(one.context if few else one.title, []).append(number)
    keys = [key for key, found in groups.items() if len(found) <= LARGEST * len(dataset.questions)]
    order = [groups[keys[i]] for i in np.random.default_rng(0).permutation(len(keys))]
    taken = 0
    for path, wanted in zip(paths, (questions, test)):
        numbers: list[int] = []
        while len(numbers) < wanted and taken < len(order):
            numbers += order[taken]
            taken += 1
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, squad([dataset.questions[i] for i in numbers[:wanted]], dataset.version))
    return paths


def search_jobs(name: str, data: Path, settings: Settings, latency: float) -> list[Job]:
    """The three searches on a data set."""
    limits: dict[str, Facts] = {"free": {}, "size": {"size": settings.size}, "latency": {"latency": latency}}
    return [
        Job(f"{name}-search-{kind}", f"{settings.work}/{name}/{kind}", str(data), settings, **limit)
        for kind, limit in limits.items()
    ]


def sweep_jobs(name: str, data: Path, test: Path, settings: Settings) -> list[Job]:
    """Every candidate, whole, with every seed: the first seed of all of them first."""
    from quoth.experiments.advise_candidates import final_epochs, read_candidates
    from quoth.tasks import prepare as tokenise
    from quoth.train import build_model

    found: list[Job] = []
    some = read_candidates(settings.model, str(data), 1, 0)[0][0].recipe
    epochs = final_epochs(len(tokenise(some.data, build_model(some)).examples))
    for seed in range(settings.seeds):
        for one in read_candidates(settings.model, str(data), epochs, seed)[0]:
            recipe = replace(one.recipe, data=replace(one.recipe.data, evaluate=str(test)))
            folder, windows = f"{settings.work}/{name}/sweep/{one.folder}-{seed}", f"{settings.work}/{name}/windows"
            job = f"{name}-train-{one.folder}-seed{seed}"
            found.append(Job(job, folder, str(data), settings, recipe=recipe, windows=windows))
    return found


def curve_jobs(trainings: list[Job]) -> list[Job]:
    """The candidates of these trainings, each in all rounds of a search."""
    first = [job for job in trainings if job.name.endswith("-seed0")]
    return [
        replace(
            job,
            name=job.name.replace("-train-", "-curve-").removesuffix("-seed0"),
            folder=f"{job.folder}-curve",
            curve=len(first),
        )
        for job in first
    ]


def half_latency(data: Path, settings: Settings) -> float:
    """A limit that candidates of half the depth keep and whole ones do not, in seconds."""
    from quoth.experiments.advise_candidates import read_candidates
    from quoth.experiments.advise_limits import measure_latency
    from quoth.tasks import prepare as tokenise
    from quoth.train import build_model

    found = read_candidates(settings.model, str(data), 1, 0)[0]
    some = [found[0], next(one for one in found if one.name.startswith("half depth"))]
    task: Any = tokenise(found[0].recipe.data, build_model(found[0].recipe))
    first, half = measure_latency(some, task, settings.device)
    return math.sqrt(first * half)


def plan(job: Job) -> float:
    """Measure what a search measures, while nothing else runs, and keep it in its folder: the seconds."""
    from quoth.experiments.advise import advise

    def stop(board: Any, line: str) -> None:
        if board.rounds:
            raise _PlannedError

    begin = time.perf_counter()
    with suppress(_PlannedError, QuothError):  # such as limits that nothing keeps: the search will say so
        advise(_ask(job), job.folder, tell=stop)
    return time.perf_counter() - begin


def work(job: Job) -> Facts:
    """Do a job: what is kept of it. What goes wrong is told under `failed`."""
    begin = time.perf_counter()
    try:
        facts = _search(job) if job.recipe is None else _curve(job) if job.curve else _train(job)
    except Exception:  # out of memory, say: the other jobs go on
        facts = {"failed": traceback.format_exc()}
    shutil.rmtree(job.folder, ignore_errors=True)
    return {**facts, "process_seconds": time.perf_counter() - begin}


def _ask(job: Job) -> Any:
    from quoth.experiments.advise import Ask
    from quoth.experiments.advise_limits import Limits

    return Ask(job.data, job.settings.model, Limits(job.latency, job.size), device=job.settings.device)


def _search(job: Job) -> Facts:
    from quoth.experiments.advise import advise

    try:
        return advise(_ask(job), job.folder)
    except QuothError as error:  # such as limits that nothing keeps
        return {"rows": [], "best": "none", "why": str(error)}


def _train(job: Job) -> Facts:
    from quoth.train import train

    made = train(job.recipe, job.folder, device=job.settings.device, windows=Path(job.windows))
    assert made is not None
    return {"quality": made.quality, "windows": made.windows, "train_seconds": made.train_seconds}


def _curve(job: Job) -> Facts:
    """The scores of a candidate at the end of every round, on the held-out part of the user's questions."""
    from quoth.experiments import advise_data
    from quoth.experiments.advise_training import Trainer
    from quoth.experiments.halving import plan_rounds
    from quoth.tasks import prepare as tokenise
    from quoth.train import build_model
    from quoth.train.guard import Stop
    from quoth.train.run import make_accelerator

    dataset = read(job.data)
    folder = Path(job.folder)
    files = advise_data.write_split(dataset, advise_data.split(dataset.questions, job.data), folder)
    recipe = replace(job.recipe, data=replace(job.recipe.data, train=(str(files[0]),), evaluate=str(files[1])))
    task: Any = tokenise(recipe.data, build_model(recipe))
    whole = recipe.optimisation.epochs * (len(task.examples) + len(task.evaluation))
    with Stop() as stop:
        trainer = Trainer(task, make_accelerator(job.settings.device), stop, folder)
        rounds = plan_rounds(job.curve, 0.1 * job.curve * whole, whole)
        scores = [trainer.train("one", recipe, r, one.windows, last=False) for r, one in enumerate(rounds)]
    return {"rounds": [{**asdict(score), "scores": []} for score in scores]}

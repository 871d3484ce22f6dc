"""Many training runs in parallel on one GPU: a small encoder does not fill it.

The parent tokenises the data once. Every worker process receives them when it starts, then does one job after another.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quoth.errors import QuothError
from quoth.files import read_json
from quoth.recipes import find_recipe

Facts = dict[str, Any]
Outcome = tuple[str, Facts]


@dataclass(frozen=True)
class Job:
    """One run: the name of a shipped recipe, overrides, the most tokens of a step, and the folder of the run."""

    recipe: str
    overrides: tuple[str, ...]
    batch_tokens: int
    out: str

    @property
    def identity(self) -> list[str]:
        """What a run of earlier is recognised by."""
        return [*self.overrides, f"optimisation.batch_tokens={self.batch_tokens}"]


def overrides(model: Any, train: Any, evaluate: Any, learning_rate: float, epochs: float) -> tuple[str, ...]:
    """The overrides that bring a recipe of a paper to this model, these data, this rate and so many epochs."""
    return (
        f"model={model}",
        f"data.train={train}",
        f"data.evaluate={evaluate}",
        f"optimisation.epochs={epochs}",
        f"optimisation.learning_rate={learning_rate}",
        "checkpoints.seconds=3600",
    )


def read(job: Job) -> Any:
    """The recipe of a job. The papers' few windows a step give way to a budget of tokens."""
    from quoth.train.recipe import read_recipe  # needs torch

    recipe = read_recipe(find_recipe(job.recipe), job.overrides)
    return replace(recipe, optimisation=replace(recipe.optimisation, batch_size=None, batch_tokens=job.batch_tokens))


_tasks: dict[Any, Any] = {}


def receive(tasks: dict[Any, Any]) -> None:
    """A worker receives the data, tokenised once for all."""
    import torch

    torch.set_num_threads(1)
    _tasks.update(tasks)


def prepared_task(job: Job) -> Any:
    """In a worker: the task of a job, with its data."""
    return _tasks[read(job).data]


def work(job: Job) -> Outcome:
    """Run one job, or resume it: its folder, and its metrics or, under `error`, why it has none."""
    from quoth.train.run import train

    recipe = read(job)
    begin = time.perf_counter()
    try:
        train(recipe, job.out, task=_tasks[recipe.data])
        facts = dict(read_json(Path(job.out) / "metrics.json"))
    except QuothError as error:  # such as a rate that is too high: no reason to end the others
        facts = {"error": str(error)}
    return job.out, {**facts, "wall": time.perf_counter() - begin}


def tokenised(jobs: Iterable[Job]) -> dict[Any, Any]:
    """The tasks of these jobs, with their data, by the data settings."""
    from quoth.tasks import prepare  # needs torch
    from quoth.train.build import build_model

    found: dict[Any, Any] = {}
    for recipe in map(read, jobs):
        if recipe.data not in found:
            longest = recipe.evaluation.max_answer_tokens
            found[recipe.data] = prepare(recipe.data, build_model(recipe), recipe.seed, longest)
    return found


@contextmanager
def workers(count: int, samples: Iterable[Job]) -> Iterator[ProcessPoolExecutor]:
    """So many processes with the data of these jobs. If one dies, all end; jobs that wait are cancelled."""
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), receive, (tokenised(samples),))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def submit(pool: ProcessPoolExecutor, jobs: Iterable[Job]) -> list[Future[Outcome]]:
    """Queue jobs, in this order."""
    return [pool.submit(work, job) for job in jobs]


def finished(waiting: Sequence[Future[Outcome]]) -> Iterator[Outcome]:
    """Jobs as they end, each shown in a line."""
    for future in as_completed(waiting):
        out, facts = future.result()
        quality = facts.get("quality", {})
        scores = f"F1 {quality['f1']:6.2f}  best {quality['best_f1']:6.2f}" if quality else facts.get("error")
        print(f"{'/'.join(Path(out).parts[-2:]):44s} {scores}  {facts['wall']:6.1f} s", flush=True)
        yield out, facts


def collect(waiting: Sequence[Future[Outcome]]) -> dict[str, Facts]:
    """Wait for jobs, all of which must succeed: their metrics, by folder."""
    found = dict(finished(waiting))
    for out, facts in found.items():
        if "error" in facts:
            raise QuothError(f"{out}: {facts['error']}")
    return found


def best_rate(scores: dict[str, float]) -> float:
    """The learning rate with the highest score."""
    return float(max(scores, key=lambda rate: scores[rate]))


def slug(name: str) -> str:
    """A name as a part of a path."""
    return "".join(c if c.isalnum() else "-" for c in name.lower()).replace("--", "-").strip("-")


def spread(values: Sequence[float]) -> str:
    """Mean ± deviation, or the one value."""
    mean = statistics.mean(values)
    return f"{mean:.1f} ± {statistics.stdev(values):.1f}" if len(values) > 1 else f"{mean:.1f}"

"""Many runs beside each other on one GPU: a small encoder does not fill it.

The parent tokenises the data once; every worker is handed them when it starts, then takes one job after another.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from quoth.data.source import read_source
from quoth.errors import QuothError

Facts = dict[str, Any]
Found = tuple[str, Facts]


@dataclass(frozen=True)
class Job:
    """One run: a recipe, the overrides over it, the most tokens of a step, and the folder it goes to."""

    recipe: Path
    words: tuple[str, ...]
    tokens: int
    out: str


def overrides(model: Any, train: Any, evaluate: Any, rate: float, epochs: float) -> tuple[str, ...]:
    """The words that bring a recipe of a paper to this model, these data, this rate and so many epochs."""
    return (
        f"model={model}",
        f"data.train={train}",
        f"data.evaluate={evaluate}",
        f"optimisation.epochs={epochs}",
        f"optimisation.rate={rate}",
        "checkpoints.seconds=3600",
    )


def read(job: Job) -> Any:
    """The recipe of a job. The papers' few windows a step give way to a budget of tokens."""
    from quoth.train.recipe import read_recipe

    recipe = read_recipe(job.recipe, job.words)
    return replace(recipe, optimisation=replace(recipe.optimisation, windows=None, tokens=job.tokens))


def hold_out(train: Path, folder: Path, part: float) -> tuple[Path, Path]:
    """Split a SQuAD file by article: about `part` of the questions, at least one article, go to the second file."""
    data = json.loads(read_source(train))
    sizes = [sum(len(p["qas"]) for p in article["paragraphs"]) for article in data["data"]]
    order = np.random.default_rng(0).permutation(len(sizes))
    count = max(1, int((np.cumsum(np.array(sizes)[order]) <= part * sum(sizes)).sum()))
    held = set(order[:count].tolist())
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "search-train.json", folder / "search-held-out.json"
    for path, inside in zip(paths, (False, True)):
        articles = [article for i, article in enumerate(data["data"]) if (i in held) == inside]
        path.write_text(json.dumps({"version": "v2.0", "data": articles}), encoding="utf-8")
    return paths


_prepared: dict[Any, Any] = {}


def receive(prepared: dict[Any, Any]) -> None:
    """A worker takes the data, tokenised once for all."""
    import torch

    torch.set_num_threads(1)
    _prepared.update(prepared)


def work(job: Job) -> Found:
    """Run one job, or go on with it: its folder, and its metrics or, under `error`, why it has none."""
    from quoth.train.run import train

    recipe = read(job)
    begin = time.perf_counter()
    try:
        facts = train(recipe, job.out, prepared=_prepared[recipe.data])
    except QuothError as error:  # a rate too high, say: no reason to end the others
        facts = {"error": str(error)}
    return job.out, {**facts, "wall": time.perf_counter() - begin}


def tokenised(jobs: Iterable[Job]) -> dict[Any, Any]:
    """The data of these jobs."""
    from quoth.train.build import build_model, prepare

    found: dict[Any, Any] = {}
    for recipe in map(read, jobs):
        if recipe.data not in found:
            found[recipe.data] = prepare(recipe, build_model(recipe))
    return found


@contextmanager
def workers(count: int, samples: Iterable[Job]) -> Iterator[ProcessPoolExecutor]:
    """So many processes beside each other, with the data of these jobs. One that dies ends all; none is waited for."""
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), receive, (tokenised(samples),))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def submit(pool: ProcessPoolExecutor, jobs: Iterable[Job]) -> list[Future[Found]]:
    """Queue jobs, first come, first served."""
    return [pool.submit(work, job) for job in jobs]


def finished(waiting: Sequence[Future[Found]]) -> Iterator[Found]:
    """Jobs as they end, each shown in a line."""
    for future in as_completed(waiting):
        out, facts = future.result()
        quality = facts.get("quality", {})
        scores = f"F1 {quality['f1']:6.2f}  best {quality['best_f1']:6.2f}" if quality else facts.get("error")
        print(f"{'/'.join(Path(out).parts[-2:]):44s} {scores}  {facts['wall']:6.1f} s", flush=True)
        yield out, facts


def collect(waiting: Sequence[Future[Found]]) -> dict[str, Facts]:
    """Wait for jobs, all of which must succeed: what they found, by folder."""
    found = dict(finished(waiting))
    for out, facts in found.items():
        if "error" in facts:
            raise QuothError(f"{out}: {facts['error']}")
    return found


def best_rate(scores: dict[str, float]) -> float:
    """The rate with the highest score."""
    return float(max(scores, key=lambda rate: scores[rate]))


def slug(name: str) -> str:
    """A name as a part of a path."""
    return "".join(c if c.isalnum() else "-" for c in name.lower()).replace("--", "-").strip("-")


def spread(values: Sequence[float]) -> str:
    """Mean ± deviation, or the one value."""
    mean = statistics.mean(values)
    return f"{mean:.1f} ± {statistics.stdev(values):.1f}" if len(values) > 1 else f"{mean:.1f}"

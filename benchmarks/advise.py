"""`quoth advise` against the whole sweep: is its choice as good as the best of all candidates, and what does it cost?

    python -m benchmarks.advise --model M --squad train.json --reddit reddit.json --out runs/advise-proof
    python -m benchmarks.advise --table runs/advise-proof/results.json

For each data set `--questions` questions are the user's, whole articles (of one article: whole passages), and `--test`
questions of other articles or passages are for the test alone. Then

1. advise, without limits, with --max-size and with --max-latency, on the user's questions
2. the whole sweep: every candidate trained on all of the user's questions, `--seeds` seeds, scored on the test part
3. the choices of 1. by the scores of 2.: regret is the F1 of the best candidate that keeps the limits, less that of the
   choice; cost is what the search took, as a part of what the sweep of these candidates took

4. with `--curves`: every candidate through all rounds of the search, none dropped, to try other rules of dropping

What --max-latency needs is measured first, alone. All else runs in `--workers` processes that share the device; seconds
are of these processes, so they are longer than alone, for the search as for the sweep. Every job that ends is written
to OUT/results.json at once; with `--resume results.json` none of those is done again. Weights lie in `--work`, a
temporary folder by default.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from benchmarks.advise_jobs import (
    Job,
    Settings,
    curve_jobs,
    half_latency,
    plan,
    prepare,
    search_jobs,
    sweep_jobs,
    work,
)
from benchmarks.advise_table import main_score, tables
from benchmarks.race import machine
from quoth.errors import QuothError
from quoth.files import read_json, write_json

Facts = dict[str, Any]
SIZE = 35e6  # bytes: in int8 MiniLM-L12 keeps it, but not with adapters or the largest heads
KEYS = ("questions", "test", "seeds", "size")  # of what is asked: the same in all parts of one result


def main() -> None:
    """Do what is left, then print the tables."""
    options = _options()
    if options.table:
        print(tables(read_json(options.table)))
        return
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as temporary, ProcessPoolExecutor(options.workers, spawn, begin) as pool:
        for _ in range(options.workers):  # they import torch while this process gets ready
            pool.submit(int)
        results = _run(options, Path(options.work or temporary), pool)
    print(tables(results), flush=True)


def _run(options: argparse.Namespace, work_folder: Path, pool: ProcessPoolExecutor) -> Facts:
    started = time.monotonic()
    settings = Settings(options.model, options.device, str(work_folder), options.seeds, options.size)
    sources = {name: source for name in ("squad", "reddit") if (source := getattr(options, name))}
    results = _earlier(options, list(sources))
    files = {name: prepare(name, source, work_folder, options.questions, options.test)
             for name, source in sources.items()}  # fmt: skip
    results["latency"] = results["latency"] or half_latency(next(iter(files.values()))[0], settings)
    searches: list[list[Job]] = []
    trainings: list[list[Job]] = []
    for name, (data, test) in files.items():
        searches.append(search_jobs(name, data, settings, results["latency"]))
        trainings.append(sweep_jobs(name, data, test, settings))
    curves = [curve_jobs(found) for found in trainings] if options.curves else []
    jobs = [job for group in (searches, trainings, curves) for job in _in_turns(group)]
    left = [job for job in jobs if job.name not in results["jobs"]]
    alone = {job.name: plan(job) for job in left if job.latency is not None}
    _say(f"ready after {time.monotonic() - started:.0f} s; {len(left)} jobs of {len(jobs)} are left")
    _do(left, alone, results, options.out / "results.json", options.workers, started + options.stop_after, pool)
    return results


def _earlier(options: argparse.Namespace, data: list[str]) -> Facts:
    """The results that there are, else none. asked: what all of them have in common."""
    asked = {**{key: getattr(options, key) for key in KEYS}, "data": data, "workers": options.workers}
    source = options.resume or options.out / "results.json"
    if not Path(source).exists():
        return {"asked": asked, "hardware": _hardware(options.device), "latency": None, "jobs": {}, "left": []}
    results: Facts = read_json(source)
    for key in KEYS:
        if results["asked"][key] != asked[key]:
            raise QuothError(f"{source}: was made with --{key} {results['asked'][key]}, not {asked[key]}")
    return results


def _in_turns(groups: Sequence[Sequence[Job]]) -> list[Job]:
    """The first job of each group, then the second of each, and so on."""
    return [job for job in chain.from_iterable(zip_longest(*groups)) if job is not None]


def _do(
    left: list[Job], alone: Facts, results: Facts, path: Path, workers: int, until: float, pool: ProcessPoolExecutor
) -> None:
    """Do these jobs, and write each that ends; none is started once the clock shows `until`."""
    waiting = list(left)
    running: dict[Future[Facts], Job] = {}
    results["left"] = [job.name for job in left]
    write_json(path, results)
    while running or (waiting and time.monotonic() < until):
        while waiting and len(running) < workers and time.monotonic() < until:
            job = waiting.pop(0)
            running[pool.submit(work, job)] = job
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            job = running.pop(future)
            facts = future.result()
            _say(f"{job.name}: {_said(facts)}, {facts['process_seconds']:.1f} s")
            if "failed" in facts:  # it is tried again by the next call
                if job.recipe is None:  # without a search nothing is shown
                    waiting.clear()
                continue
            results["jobs"][job.name] = facts | ({"plan_seconds": alone[job.name]} if job.name in alone else {})
            results["left"].remove(job.name)
            write_json(path, results)


def begin() -> None:
    """A worker begins."""
    import torch

    import quoth.experiments.advise  # noqa: F401 - now, while nothing waits for it

    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would else go on with its job."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _hardware(device: str | None) -> str:
    import torch

    cuda = device != "cpu" and torch.cuda.is_available()
    return machine("cuda" if cuda else "cpu", ["torch"])


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def _said(facts: Facts) -> str:
    if "failed" in facts:
        return f"failed: {facts['failed']}"
    if "quality" in facts:
        return f"F1 {main_score(facts['quality']):.2f}, training {facts['train_seconds']:.1f} s"
    if "why" in facts:
        return str(facts["why"])
    if "best" in facts:
        return f"{facts['best']}, training {facts['cost']['train_seconds']:.1f} s"
    return " ".join(f"{one['score']:.1f}/{one['loss']:.2f}" for one in facts["rounds"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--squad", help="a SQuAD file of many articles")
    parser.add_argument("--reddit", help="the Reddit file of SQuADShifts")
    parser.add_argument("--out", type=Path, help="the folder of results.json")
    parser.add_argument("--resume", type=Path, help="results.json of an earlier call; by default that of --out")
    parser.add_argument("--table", type=Path, help="print the tables of this results.json, and do nothing else")
    parser.add_argument("--work", help="the folder of weights")
    parser.add_argument("--questions", type=int, default=3000)
    parser.add_argument("--test", type=int, default=3000)
    parser.add_argument("--size", type=float, default=SIZE, help="the bytes of the search with --max-size")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--device")
    parser.add_argument("--curves", action="store_true", help="train all candidates through all rounds too")
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="start no job after so many seconds")
    options = parser.parse_args()
    if not options.table and not (options.model and options.out and (options.squad or options.reddit)):
        parser.error("--model, --out, and --squad or --reddit are needed, or --table")
    return options


if __name__ == "__main__":
    main()

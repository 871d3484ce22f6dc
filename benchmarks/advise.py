"""`quoth advise` against the whole sweep: is its choice as good as the best of all candidates, and what does it cost?

    python -m benchmarks.advise --model M --squad train.json --reddit reddit.json --out runs/advise-proof

For each data set `--questions` questions are the user's, whole articles (of one article: whole passages), and `--test`
questions of other articles or passages are for the test alone. Then

1. advise, without limits, with --max-size and with --max-latency, on the user's questions
2. the whole sweep: every candidate trained on all of the user's questions, `--seeds` seeds, scored on the test part
3. the choices of 1. by the scores of 2.: regret is the F1 of the best candidate that keeps the limits, less that of the
   choice

4. with `--curves`: every candidate through all rounds of the search, none dropped, to try other rules of dropping

All but the search with --max-latency runs in `--workers` processes that share the GPU; seconds are of these processes,
so they are longer than alone, for the search as for the sweep. A job that is done is a file in OUT/jobs, and is not
done again. Weights lie in `--work`, a temporary folder by default.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.race import markdown
from quoth.data import read
from quoth.errors import QuothError
from quoth.files import read_json, write_json

Facts = dict[str, Any]
SIZE = 35e6  # bytes: in int8 MiniLM-L12 keeps it, but not with adapters or the largest head


@dataclass(frozen=True)
class Job:
    """A search, a whole training (with recipe), or a candidate in all rounds (with recipe and curve).

    name: of its file in OUT/jobs; folder: where its weights lie; curve: of how many candidates the search is
    """

    name: str
    folder: str
    data: str
    model: str
    device: str | None
    size: float | None = None
    latency: float | None = None
    recipe: Any = None
    windows: str = ""
    curve: int = 0


def prepare(name: str, source: str, folder: Path, questions: int, test: int) -> tuple[Path, Path]:
    """The user's questions, and those of the test: whole articles, or passages where there are few articles."""
    from quoth.experiments.advise_data import ARTICLES, squad

    paths = folder / f"{name}.json", folder / f"{name}-test.json"
    if all(path.exists() for path in paths):
        return paths
    dataset = read(source)
    few = len({question.title for question in dataset.questions}) < ARTICLES
    groups: dict[str, list[int]] = {}
    for number, one in enumerate(dataset.questions):
        groups.setdefault(one.context if few else one.title, []).append(number)
    keys = list(groups)
    order = [groups[keys[i]] for i in np.random.default_rng(0).permutation(len(keys))]
    taken = 0
    for path, wanted in zip(paths, (questions, test)):
        numbers: list[int] = []
        while len(numbers) < wanted and taken < len(order):
            numbers += order[taken]
            taken += 1
        found = [dataset.questions[i] for i in numbers[:wanted]]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, squad(found, dataset.version))
    return paths


def search_jobs(name: str, data: Path, options: argparse.Namespace, latency: float) -> list[Job]:
    """The three searches on a data set."""
    limits: dict[str, Facts] = {"free": {}, "size": {"size": options.size}, "latency": {"latency": latency}}
    return [
        Job(f"{name}-search-{kind}", f"{options.work}/{name}/{kind}", str(data), options.model, options.device, **limit)
        for kind, limit in limits.items()
    ]


def sweep_jobs(name: str, data: Path, test: Path, options: argparse.Namespace) -> list[Job]:
    """Every candidate, whole, with every seed: the first seed of all of them first."""
    from quoth.experiments.advise_candidates import final_epochs, read_candidates
    from quoth.tasks import prepare as tokenise
    from quoth.train import build_model

    found: list[Job] = []
    some = read_candidates(options.model, str(data), 1, 0)[0][0].recipe
    epochs = final_epochs(len(tokenise(some.data, build_model(some)).examples))
    for seed in range(options.seeds):
        for one in read_candidates(options.model, str(data), epochs, seed)[0]:
            recipe = replace(one.recipe, data=replace(one.recipe.data, evaluate=str(test)))
            folder = f"{options.work}/{name}/sweep/{one.folder}-{seed}"
            job = Job(f"{name}-train-{one.folder}-seed{seed}", folder, str(data), options.model, options.device,
                      recipe=recipe, windows=f"{options.work}/{name}/windows")  # fmt: skip
            found.append(job)
    return found


def curve_jobs(name: str, data: Path, options: argparse.Namespace) -> list[Job]:
    """Every candidate in all rounds."""
    trainings = [job for job in sweep_jobs(name, data, data, options) if job.name.endswith("-seed0")]
    return [
        replace(
            job,
            name=job.name.replace("-train-", "-curve-").removesuffix("-seed0"),
            folder=f"{job.folder}-curve",
            curve=len(trainings),
        )
        for job in trainings
    ]


def curve(job: Job) -> Facts:
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
        trainer = Trainer(task, make_accelerator(job.device), stop, folder)
        rounds = plan_rounds(job.curve, 0.1 * job.curve * whole, whole)
        scores = [trainer.train("one", recipe, r, one.windows, last=False) for r, one in enumerate(rounds)]
    return {"rounds": [{**asdict(score), "scores": []} for score in scores]}


def half_latency(data: Path, options: argparse.Namespace) -> float:
    """A limit that candidates of half the depth keep and whole ones do not, in seconds."""
    from quoth.experiments.advise_candidates import read_candidates
    from quoth.experiments.advise_limits import measure_latency
    from quoth.tasks import prepare as tokenise
    from quoth.train import build_model

    found = read_candidates(options.model, str(data), 1, 0)[0]
    some = [found[0], next(one for one in found if one.name.startswith("half depth"))]
    task: Any = tokenise(found[0].recipe.data, build_model(found[0].recipe))
    first, half = measure_latency(some, task, options.device)
    return math.sqrt(first * half)


def begin() -> None:
    """A worker begins."""
    import torch

    torch.set_num_threads(1)


def work(job: Job) -> tuple[Job, Facts]:
    """Do a job: what is kept of it."""
    from quoth.train import train

    started = time.perf_counter()
    if job.recipe is None:
        from quoth.experiments.advise import Ask, advise
        from quoth.experiments.advise_limits import Limits

        try:
            facts = advise(Ask(job.data, job.model, Limits(job.latency, job.size), device=job.device), job.folder)
        except QuothError as error:  # such as limits that nothing keeps
            facts = {"error": str(error), "rows": [], "best": str(error)}
    elif job.curve:
        facts = curve(job)
    else:
        made = train(job.recipe, job.folder, device=job.device, windows=Path(job.windows))
        assert made is not None
        facts = {"quality": made.quality, "windows": made.windows, "train_seconds": made.train_seconds}
    shutil.rmtree(job.folder, ignore_errors=True)
    return job, {**facts, "process_seconds": time.perf_counter() - started}


def run(jobs: Sequence[Job], out: Path, workers: int, until: float) -> None:
    """Do all jobs that are not done; none is started once the clock shows `until`."""
    left = [job for job in jobs if not (out / f"{job.name}.json").exists()]
    for job in left:
        if job.latency is not None:  # alone, since it measures; and what is compiled now, the workers find
            _keep(*work(job), out)
    left = [job for job in left if job.latency is None]
    running: set[Future[tuple[Job, Facts]]] = set()
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), begin) as pool:
        while running or (left and time.monotonic() < until):
            while left and len(running) < workers and time.monotonic() < until:
                running.add(pool.submit(work, left.pop(0)))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                _keep(*future.result(), out)


def _keep(job: Job, facts: Facts, out: Path) -> None:
    write_json(out / f"{job.name}.json", facts)
    print(f"{time.strftime('%H:%M:%S')} {job.name}: {_said(facts)}, {facts['process_seconds']:.1f} s", flush=True)


def _said(facts: Facts) -> str:
    if "rounds" in facts and "best" not in facts:
        return " ".join(f"{one['score']:.1f}/{one['loss']:.2f}" for one in facts["rounds"])
    return f"F1 {main_score(facts['quality']):.2f}" if "quality" in facts else f"{facts['best']}"


def main_score(quality: Facts) -> float:
    """F1, at the best threshold where questions may have no answer."""
    return float(quality["best_f1"] if "best_f1" in quality else quality["f1"])


def judge(name: str, jobs: Sequence[Job], out: Path) -> Facts:
    """What the choices of the searches on a data set come to by the whole trainings that are done."""
    done = {job.name: read_json(out / f"{job.name}.json") for job in jobs if (out / f"{job.name}.json").exists()}
    runs: dict[str, list[Facts]] = {}
    for job_name, facts in done.items():
        if "-train-" in job_name:
            runs.setdefault(job_name.split("-train-")[1].rpartition("-seed")[0], []).append(facts)
    sweep = {
        method: {
            "f1": mean(main_score(facts["quality"]) for facts in found),
            "seeds": [main_score(facts["quality"]) for facts in found],
            "windows": mean(facts["windows"] for facts in found),
            "seconds": mean(facts["process_seconds"] for facts in found),
            "train_seconds": mean(facts["train_seconds"] for facts in found),
        }
        for method, found in runs.items()
    }
    searches = [_judged(key.split("-search-")[1], facts, sweep) for key, facts in done.items() if "-search-" in key]
    curves = {key.split("-curve-")[1]: facts["rounds"] for key, facts in done.items() if "-curve-" in key}
    return {"data": name, "sweep": sweep, "searches": searches, "curves": curves}


def _judged(kind: str, facts: Facts, sweep: Facts) -> Facts:
    """One search: its choice, the best of what it could choose from, and both costs."""
    names = [row["name"].replace(" ", "-") for row in facts["rows"]]
    allowed = {name: sweep[name] for name in names if name in sweep}
    chosen = facts["best"].replace(" ", "-")
    found: Facts = {"limits": kind, "choice": chosen, "candidates": len(names), "trained": len(allowed)}
    if not names or len(allowed) < len(names):
        return found
    best = max(allowed, key=lambda name: allowed[name]["f1"])
    totals = {key: sum(one[key] for one in allowed.values()) for key in ("windows", "seconds", "train_seconds")}
    return found | {
        "best": best,
        "choice_f1": allowed[chosen]["f1"],
        "best_f1": allowed[best]["f1"],
        "regret": allowed[best]["f1"] - allowed[chosen]["f1"],
        "share_of_windows": facts["cost"]["windows"] / totals["windows"],
        "share_of_seconds": facts["process_seconds"] / totals["seconds"],
        "share_of_train_seconds": facts["cost"]["train_seconds"] / totals["train_seconds"],
        "seconds": facts["process_seconds"],
        "sweep_seconds": totals["seconds"],
    }


def show(judged: Sequence[Facts]) -> None:
    """Tables for people."""
    heads = ["data", "limits", "candidates", "choice", "F1", "best", "F1", "regret", "windows", "seconds"]
    rows = [
        [one["data"], s["limits"], str(s["candidates"]), s["choice"], f"{s['choice_f1']:.2f}", s["best"],
         f"{s['best_f1']:.2f}", f"{s['regret']:.2f}", f"{s['share_of_windows']:.3f}", f"{s['share_of_seconds']:.3f}"]
        for one in judged for s in one["searches"] if "regret" in s
    ]  # fmt: skip
    print(markdown(heads, rows))
    for one in judged:
        ordered = sorted(one["sweep"].items(), key=lambda item: -item[1]["f1"])
        print(f"\n{one['data']}, whole sweep")
        print(markdown(["candidate", "F1", "seeds"], [[n, f"{s['f1']:.2f}", str(len(s["seeds"]))] for n, s in ordered]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--squad", help="a SQuAD file of many articles")
    parser.add_argument("--reddit", help="the Reddit file of SQuADShifts")
    parser.add_argument("--out", type=Path, required=True, help="the folder of results.json and jobs/")
    parser.add_argument("--work", help="the folder of weights")
    parser.add_argument("--questions", type=int, default=3000)
    parser.add_argument("--test", type=int, default=6000)
    parser.add_argument("--size", type=float, default=SIZE, help="the bytes of the search with --max-size")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--device")
    parser.add_argument("--curves", action="store_true", help="train all candidates through all rounds too")
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="start no job after so many seconds")
    options = parser.parse_args()
    until = time.monotonic() + options.stop_after
    jobs_folder = options.out / "jobs"
    jobs_folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        options.work = options.work or temporary
        sources = {name: source for name in ("squad", "reddit") if (source := getattr(options, name))}
        files = {name: prepare(name, source, Path(options.work), options.questions, options.test)
                 for name, source in sources.items()}  # fmt: skip
        latency = half_latency(next(iter(files.values()))[0], options)
        by_data = {
            name: [
                *search_jobs(name, data, options, latency),
                *sweep_jobs(name, data, test, options),
                *(curve_jobs(name, data, options) if options.curves else []),
            ]
            for name, (data, test) in files.items()
        }
        searches = [job for jobs in by_data.values() for job in jobs if job.recipe is None]
        trainings = [job for jobs in by_data.values() for job in jobs if job.recipe is not None]
        run([*searches, *trainings], jobs_folder, options.workers, until)
    judged = [judge(name, jobs, jobs_folder) for name, jobs in by_data.items()]
    write_json(options.out / "results.json", judged)
    show(judged)


if __name__ == "__main__":
    main()

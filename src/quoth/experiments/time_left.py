"""How long the rest of a sweep will take, from what its finished runs took; unknown before there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from quoth.experiments.sweep_record import SweepRun


def run_seconds(run: SweepRun, runs: Sequence[SweepRun]) -> float | None:
    """What a run will take in all: the mean of the finished runs of its method, else of all finished ones."""
    finished = [other for other in runs if other.state == "finished" and other.seconds > 0]
    alike = [other.seconds for other in finished if other.method == run.method]
    known = alike or [other.seconds for other in finished]
    return mean(known) if known else None


def seconds_left(runs: Sequence[SweepRun], status: Mapping[str, Mapping[str, Any]], workers: int) -> float | None:
    """What all runs that wait or are running will take with so many at a time; None where one of them is not known.

    Of a running one its own pace says it. While no run has finished, the others are taken to need as long as that.
    """
    running = {run.folder: status[run.folder] for run in runs if run.state == "running" and run.folder in status}
    projected = [one["seconds"] + one["seconds_left"] for one in running.values()]
    total = 0.0
    for run in runs:
        if run.state not in ("waiting", "running"):
            continue
        if run.folder in running:
            total += running[run.folder]["seconds_left"]
            continue
        whole = run_seconds(run, runs) or (mean(projected) if projected else None)
        if whole is None:
            return None
        total += whole
    left = sum(run.state in ("waiting", "running") for run in runs)
    return total / max(1, min(workers, left))

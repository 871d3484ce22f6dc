"""A process that runs batches, as told by lines of JSON on standard input; it may not survive a case."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import warnings
from pathlib import Path

MEMORY = 6 << 30  # bytes of address space beyond what the libraries take: what asks for more ends with a MemoryError


def work(place: Path) -> None:
    """Read {target, cases, seed, known}, run them, and print {cases, seconds, finding}."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print does not come between
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may ignore it; runs are sent it
    warnings.simplefilter("ignore")
    from fuzz.engine import run_batch
    from fuzz.outcome import Scratch
    from fuzz.targets import TARGETS  # takes seconds

    _, most = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, most))
    scratch = Scratch(place)
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        batch = run_batch(TARGETS[task["target"]], task["cases"], scratch, set(task["known"]), task["seed"])
        found = batch.finding and {
            "signature": batch.finding.signature,
            "detail": batch.finding.detail,
            "case": batch.finding.case.to_json(task["target"]),
        }
        told = {"cases": batch.cases, "seconds": batch.seconds, "finding": found}
        print(json.dumps(told), file=answers, flush=True)


if __name__ == "__main__":
    work(Path(sys.argv[1]))

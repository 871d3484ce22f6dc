"""One run of a sweep, in a process of its own: `python -m quoth.experiments.sweep_child`.

The first line on standard input is the job as JSON: {"recipe": …, "out": …, "device": …, "windows": …}. Standard output
is messages, one JSON object a line: {"status": …} as `quoth.train.Status`, {"says": line}, and at the end {"error":
line} or {"stopped": line}. If standard input is closed, the sweep has ended, however it ended: then this process ends
at once, and the run goes on from its last checkpoint at the next call.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from quoth.errors import QuothError
from quoth.experiments.grid import recipe_of
from quoth.prune.recipe import PruneRecipe
from quoth.prune.schedule import prune
from quoth.train import Interrupted, Status, train
from quoth.train.log import Tell

STOPPED = 3  # exit code of a run that was asked to stop and has written a checkpoint


def main() -> int:
    """Do the job; the exit code."""
    messages, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no message
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_sweep, daemon=True).start()
    try:
        _run(job, lambda news: _tell(messages, {"says": news} if isinstance(news, str) else {"status": _facts(news)}))
    except Interrupted as stopped:
        _tell(messages, {"stopped": str(stopped)})
        return STOPPED
    except (QuothError, OSError) as error:
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        _tell(messages, {"error": where + reason})
        return 2
    return 0


def _run(job: dict[str, Any], tell: Tell) -> None:
    recipe = recipe_of(job["recipe"], "recipe")
    if isinstance(recipe, PruneRecipe):
        prune(recipe, job["out"], device=job["device"], tell=tell)
    else:
        train(recipe, job["out"], device=job["device"], windows=Path(job["windows"]), tell=tell)


def _facts(status: Status) -> dict[str, Any]:
    return {**asdict(status), "seconds_left": status.seconds_left}


def _tell(messages: TextIO, message: dict[str, Any]) -> None:
    print(json.dumps(message), file=messages, flush=True)


def _end_with_the_sweep() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())

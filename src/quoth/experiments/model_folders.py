"""The models in a run folder, removed where only what was measured is to be kept: `quoth sweep --no-models`.

Of a finished run these go. The rest stays: recipe.toml, metrics.json, log.jsonl and answers.jsonl.gz, of its heads too.

RUN/model/, RUN/snapshots/EPOCH/, RUN/frozen/EPOCH/HEAD/model/     models
RUN/checkpoints/                                                   if a kill has left them
"""

from __future__ import annotations

import shutil
from itertools import chain
from pathlib import Path

from quoth.folders import strange_entry
from quoth.train.metrics import FILE
from quoth.train.resume import remove_checkpoints

PLACES = ("model", "snapshots/*", "frozen/*/*/model")


def remove_models(run: Path) -> None:
    """Remove the models of a finished run. A folder with a file that Quoth does not write stays."""
    if not (run / FILE).exists():
        return
    for folder in chain.from_iterable(run.glob(place) for place in PLACES):
        if folder.is_dir() and not folder.is_symlink() and strange_entry(folder) is None:
            shutil.rmtree(folder)
    snapshots = run / "snapshots"
    if snapshots.is_dir() and not any(snapshots.iterdir()):
        snapshots.rmdir()
    remove_checkpoints(run)

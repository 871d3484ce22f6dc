"""`RunFolder`: the folder of a run of `quoth train`, `quoth prune` or `quoth build`.

One process at a time holds it; it holds one recipe; what a killed process left half-written is removed; and the same
command resumes what is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quoth.config import differences
from quoth.errors import QuothError
from quoth.folders import remove_leftovers

# What runs write, whole or not at all, in their folders.
NAMES = re.compile(
    r"(recipe|MODEL_CARD)\.(toml|md)|log\.jsonl|answers\.jsonl\.gz|(view|alpha|teacher-[0-9a-f]{16})\.safetensors"
    r"|(metrics|tuned|unpruned|cut|round|hpo|latency|seconds|build|negatives|quantise|calibrate|quoth)\.json"
    r"|model|cut|cache|unpruned|step-\d{8}|epoch-[\d.e+-]+"
)


class RunFolder:
    """A folder that this process holds. recipe: the file with the recipe as run.

    The recipe is compared with that of an earlier run; a folder without one must hold nothing but `known` files.
    """

    def __init__(self, path: str | Path, recipe: str = "recipe.toml", known: tuple[str, ...] = ()) -> None:
        """known: the beginnings of names that may lie there before the recipe is written."""
        self.path = Path(path)
        self.recipe = self.path / recipe
        self._known = (".lock", ".recipe.toml.", *known)

    @contextmanager
    def held(self) -> Iterator[RunFolder]:
        """Hold the lock of the folder; the system releases it when the process ends, however it ends."""
        if self.path.exists() and not self.path.is_dir():
            raise QuothError(f"{self.path}: is a file; choose another --out")
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            import fcntl
        except ImportError:  # Windows
            yield self
            return
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise QuothError(
                    f"{self.path}: another process is training there; wait for it, or choose another --out"
                ) from None
            yield self

    def claim(self, mine: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> None:
        """Refuse a folder that is not this run's; remove what a killed process left half-written there.

        mine: the table of this recipe; theirs: of the one in the folder, None if there is none
        """
        if theirs is None and any(not path.name.startswith(self._known) for path in self.path.iterdir()):
            raise QuothError(f"{self.path}: exists and is not a run folder; choose another --out")
        changed = differences(theirs, mine) if theirs is not None else ()
        if changed:
            raise QuothError(
                f"{self.path}: holds a run of another recipe (there, here: {changed[0]}); "
                "choose another --out, or remove it"
            )
        remove_leftovers(self.path, NAMES)

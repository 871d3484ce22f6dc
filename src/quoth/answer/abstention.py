"""`Abstention`: when a reader answers "no answer", and how probable it is that there is none.

quoth.json keeps it under `abstention`; `quoth evaluate --store-threshold` fits it and writes it there:

    "abstention": {"threshold": -1.5, "temperature": 2.1, "bias": -0.4, "fitted": {"data": "dev.json", …}}

Threshold and probabilities refer to the margin null - best of Devlin's rule. A folder without them has the threshold 0.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from quoth.answer.calibration import Calibration
from quoth.config import fill
from quoth.data.dataset import Version
from quoth.errors import QuothError
from quoth.files import read_object, write_json
from quoth.hub import ModelFiles

KEY = "abstention"


@dataclass(frozen=True)
class Abstention:
    """A reader abstains if null - best > `threshold`; `calibration` gives the probability of "no answer".

    temperature, bias: of the calibration
    fitted: what it was fitted on and the scores there, for people; empty if it was not fitted
    """

    threshold: float
    temperature: float = 1.0
    bias: float = 0.0
    fitted: dict[str, Any] = field(default_factory=dict)

    @property
    def calibration(self) -> Calibration:
        """From margins to probabilities of "no answer"."""
        return Calibration(self.temperature, self.bias)

    def limit(self, version: Version) -> float:
        """The threshold for a dataset: where every question has an answer, a reader never abstains."""
        return self.threshold if version == "2.0" else math.inf

    def to_json(self) -> dict[str, Any]:
        """What quoth.json keeps."""
        return asdict(self)


def stored_abstention(files: ModelFiles) -> Abstention | None:
    """What a model folder keeps, if anything. An ensemble has its own, apart from those of its members."""
    value = read_object(files.description).get(KEY) if files.description.name == "quoth.json" else None
    if value is None:
        return None
    found = fill(Abstention, value, str(files.description), f"{KEY}.")
    if found.temperature <= 0:
        raise QuothError(f"{files.description}: {KEY}.temperature is {found.temperature}; it must be above 0")
    return found


def check_storable(source: str | Path) -> Path:
    """The quoth.json that can keep an `Abstention`, or an error that says why there is none."""
    path = Path(source) / "quoth.json"
    if not path.is_file():
        raise QuothError(
            f"{source}: a threshold is kept in the quoth.json of a folder on this machine, and there is none; "
            "save or export the model as a Quoth folder first"
        )
    return path


def store_abstention(source: str | Path, abstention: Abstention) -> None:
    """Write it to the quoth.json of a model folder; all else in there stays."""
    path = check_storable(source)
    write_json(path, {**read_object(path), KEY: abstention.to_json()})

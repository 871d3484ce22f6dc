"""`Silence`: when a reader says "no answer" and how sure it is, as kept in its model folder.

quoth.json has it under `null`; `quoth evaluate --store-threshold` fits it and writes it there:

    "null": {"threshold": -1.5, "temperature": 2.1, "bias": -0.4, "fitted": {"data": "dev.json", "questions": 2053, …}}

Threshold and probabilities are on null - best by Devlin's rule. A folder without it is silent above 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quoth.answer.calibration import Calibration
from quoth.errors import QuothError
from quoth.files import read_json, write_json

if TYPE_CHECKING:
    from quoth.data.dataset import Version
    from quoth.hub import ModelFiles

KEY = "null"


@dataclass(frozen=True)
class Silence:
    """A question has no answer if null - best > `threshold`; how probable that is, `calibration` says.

    fitted: what it was fitted on and how good it was there, for people; empty if it was not fitted
    """

    threshold: float = 0.0
    calibration: Calibration = field(default_factory=lambda: Calibration(1.0))
    fitted: Mapping[str, Any] = field(default_factory=dict)

    def limit(self, version: Version) -> float:
        """The threshold for a dataset: where every question has an answer a reader is never silent."""
        return self.threshold if version == "2.0" else math.inf

    def to_json(self) -> dict[str, Any]:
        """What quoth.json keeps."""
        scale = self.calibration
        value = {"threshold": self.threshold, "temperature": scale.temperature, "bias": scale.bias}
        return {**value, "fitted": dict(self.fitted)}


def stored_silence(files: ModelFiles) -> Silence | None:
    """What a model folder says, if it does; of an ensemble its own folder, not those of its members."""
    value = read_json(files.description).get(KEY) if files.description.name == "quoth.json" else None
    if value is None:
        return None
    where = f"{files.description}: {KEY}"
    if not isinstance(value, dict):
        raise QuothError(f"{where} is {value!r}; it must be an object with a threshold")
    numbers = {"temperature": 1.0, "bias": 0.0, **value}
    for name in ("threshold", "temperature", "bias"):
        if type(numbers.get(name)) not in (int, float) or not math.isfinite(numbers[name]):
            raise QuothError(f"{where}: {name} is {numbers.get(name)!r}; it must be a finite number")
    if numbers["temperature"] <= 0:
        raise QuothError(f"{where}: temperature is {numbers['temperature']}; it must be above 0")
    calibration = Calibration(float(numbers["temperature"]), float(numbers["bias"]))
    fitted = value.get("fitted")
    return Silence(float(numbers["threshold"]), calibration, fitted if isinstance(fitted, dict) else {})


def check_storable(source: str | Path) -> Path:
    """The quoth.json that can keep a `Silence`, or why there is none: to be asked before the work, not after."""
    path = Path(source) / "quoth.json"
    if not path.is_file():
        raise QuothError(
            f"{source}: a threshold is kept in the quoth.json of a folder on this machine, and there is none; "
            "save or export the model as a Quoth folder first"
        )
    return path


def store_silence(source: str | Path, silence: Silence) -> None:
    """Write it to the quoth.json of a model folder; all else in there stays."""
    path = check_storable(source)
    write_json(path, {**read_json(path), KEY: silence.to_json()})

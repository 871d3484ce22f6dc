"""`Confidence`: how probable it is that an answer is right, and how probable that there is none.

Three things can be true of the best candidate of a question: it is *wrong* though the texts have an answer, it is
*right*, or the texts have *no answer*. A softmax regression over a few features (`quoth.answer.features`) gives the
probability of each; with z = (features - mean) / scale, held within ±`BOUND`:

    P(wrong) : P(right) : P(no answer)  =  1 : exp(right·z + b) : exp(no_answer·z + c)

A reader gives the candidate that is furthest ahead of "no answer" in its own window, by the raw margin, and abstains if
P(no answer) is above its P(right): of the two it gives the more probable one. Of several windows each counts as one.
Ranking windows by P(right), and terms for the number of windows and for BM25, were tried: over real documents they gave
no more right answers (benchmarks/results/documents.md). quoth.json keeps all this under `calibration`; `quoth
calibrate` fits it (`quoth.score.calibrate`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quoth.answer.abstention import check_storable
from quoth.answer.features import NAMES, factors
from quoth.answer.logistic import softmax_probabilities
from quoth.config import fill, shown
from quoth.errors import QuothError
from quoth.files import read_object, write_json
from quoth.hub import ModelFiles

Float64s = NDArray[np.float64]

KEY = "calibration"
FORMAT = 2
BOUND = 4.0  # standard deviations: what is further out than anything it was fitted on counts no more
WRONG, RIGHT, NO_ANSWER = range(3)


@dataclass(frozen=True)
class Outcome:
    """The exponent of one outcome. weights: one for each feature."""

    weights: tuple[float, ...]
    bias: float


@dataclass(frozen=True)
class Confidence:
    """The fitted model.

    - format: of this table
    - features: names of `quoth.answer.features`, or products of two; mean, scale: one for each
    - right, no_answer: the exponents; that of "wrong" is 0
    - fitted: what it was fitted on and the scores there, for people
    """

    format: int
    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    right: Outcome
    no_answer: Outcome
    fitted: dict[str, Any] = field(default_factory=dict)

    def standardised(self, values: ArrayLike) -> Float64s:
        """(…, F) features → z."""
        z = (np.asarray(values, np.float64) - np.array(self.mean)) / np.array(self.scale)
        return np.asarray(np.clip(z, -BOUND, BOUND))

    def exponents(self, values: ArrayLike) -> Float64s:
        """(…, F) features → (…, 2), of "right" and "no answer"."""
        z = self.standardised(values)
        return np.stack([z @ np.array(one.weights) + one.bias for one in (self.right, self.no_answer)], axis=-1)

    def probabilities(self, values: ArrayLike) -> Float64s:
        """(…, F) features → (…, 3), the probabilities of `WRONG`, `RIGHT`, `NO_ANSWER`; they sum to 1."""
        return softmax_probabilities(self.exponents(values))

    def to_json(self) -> dict[str, Any]:
        """What quoth.json keeps."""
        return asdict(self)


def stored_confidence(files: ModelFiles) -> Confidence | None:
    """What a model folder keeps, if anything, or one line on what is wrong with it."""
    value = read_object(files.description).get(KEY) if files.description.name == "quoth.json" else None
    if value is None:
        return None
    where = f"{files.description}: {KEY}"
    if isinstance(value, dict) and value.get("format") != FORMAT:
        raise QuothError(
            f"{where}.format is {shown(value.get('format'))}; this version of Quoth reads {FORMAT}: "
            "run quoth calibrate again"
        )
    found = fill(Confidence, value, str(files.description), f"{KEY}.")
    _check(found, where)
    return found


def store_confidence(source: str | Path, confidence: Confidence) -> None:
    """Write it to the quoth.json of a model folder; all else in there stays."""
    path = check_storable(source)
    write_json(path, {**read_object(path), KEY: confidence.to_json()})


def _check(found: Confidence, where: str) -> None:
    unknown = next((name for name in found.features if not set(factors(name)) <= set(NAMES)), None)
    if unknown is not None:
        raise QuothError(f"{where}.features has {unknown!r}, which is none: {', '.join(NAMES)}")
    if not found.features or len(set(found.features)) < len(found.features):
        raise QuothError(f"{where}.features must have at least one name, and each once")
    for name, values in (
        ("mean", found.mean),
        ("scale", found.scale),
        ("right.weights", found.right.weights),
        ("no_answer.weights", found.no_answer.weights),
    ):
        if len(values) != len(found.features):
            raise QuothError(f"{where}.{name} has {len(values)} values for {len(found.features)} features")
    if min(found.scale) <= 0:
        raise QuothError(f"{where}.scale is {min(found.scale)} for a feature; it must be above 0")

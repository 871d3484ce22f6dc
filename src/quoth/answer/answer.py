"""`Answer`: what a reader gives to people; the margins of many answers as plain numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Answer:
    """An answer in the words of its source: `context[start:end] == text`, always.

    If `no_answer`, the text is empty, start and end are 0 and the score is that of the null answer.
    """

    text: str
    start: int
    end: int
    score: float
    no_answer: bool = False


def finite_margins(null_minus_best: NDArray[np.float64]) -> list[float]:
    """Margins (Q,) as finite numbers: a question without any span, +inf, becomes 1 more than the largest other."""
    most = float(null_minus_best[null_minus_best < math.inf].max(initial=0.0)) + 1.0
    return [min(float(value), most) for value in null_minus_best]

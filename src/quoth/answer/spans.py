"""The values of this room: what comes from a model (`SpanLogits`) and what goes to people (`Answer`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]
Flags = NDArray[np.bool_]


class QuothWarning(UserWarning):
    """Something was left out, and the result is still defined: the message names it."""


@dataclass(frozen=True, eq=False)
class SpanLogits:
    """How much each token looks like the first and like the last one of the answer.

    start, end: (T,) floats, one for each token of `Windows`, window after window. Position 0 of a window,
    [CLS], stands for "no answer"; what lies at other special tokens and at the question is never read.
    """

    start: Floats
    end: Floats


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

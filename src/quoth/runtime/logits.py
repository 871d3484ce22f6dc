"""`SpanLogits`: what every runner gives for a batch of windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]
Flags = NDArray[np.bool_]
LARGEST = np.float32(1e38)  # beyond it a sum of two logits may overflow: such a logit counts as infinite


@dataclass(frozen=True, eq=False)
class SpanLogits:
    """How much each token looks like the first and like the last one of the answer.

    start, end: (T,) floats, one for each token of `Windows`, window after window. Position 0 of a window,
    [CLS], stands for "no answer"; what lies at other special tokens and at the question is never read.
    """

    start: Floats
    end: Floats

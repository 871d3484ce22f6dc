"""Is what was exported what torch computes? Windows of many lengths through both, alone and padded to the longest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from laconic.deploy.onnx_runner import OnnxRunner
from laconic.errors import LaconicError
from laconic.text.packed import Packed, pack

TOLERANCE = 1e-4  # of logits, or of the largest of them where that is above 1
LENGTHS = (8, 9, 37, 128, 300, 512)

Compute = Callable[[Packed[np.ndarray]], np.ndarray]


def random_windows(longest: int, vocab: int, types: int, seed: int = 0) -> Packed[np.ndarray]:
    """Windows of random tokens, of 8 tokens to as many as the model reads, 512 at most."""
    drawn = np.random.default_rng(seed)
    lengths = sorted({min(length, longest) for length in LENGTHS}, reverse=True)
    return pack(
        [drawn.integers(0, vocab, length) for length in lengths],
        [drawn.integers(0, max(1, types), length) for length in lengths],
    )


def difference(runner: OnnxRunner, batches: Sequence[Packed[np.ndarray]], wanted: Sequence[np.ndarray]) -> float:
    """The largest difference of a logit from the one that is wanted; infinite where one is not a number.

    Every batch is run as answering runs it, similar lengths together, and as one rectangle full of padding.
    """
    compute = runner.apart if runner.task == "span" else runner.classes
    worst = 0.0
    for packed, logits in zip(batches, wanted):
        for together in (False, True):
            gap = float(np.abs(compute(packed, together=together) - logits).max())
            worst = max(worst, gap if math.isfinite(gap) else math.inf)  # NaN is greater than nothing
    return worst


def check(source: str, worst: float, largest: float) -> None:
    """Refuse an export whose logits are not torch's."""
    limit = TOLERANCE * max(1.0, largest)
    if not worst <= limit:
        raise LaconicError(
            f"{source}: the exported model's logits differ from torch's by {worst:.1e}, more than {limit:.1e}; nothing "
            "was written, please report this model's laconic.json"
        )

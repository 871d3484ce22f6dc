"""Is what was exported what torch computes? Windows of many lengths through both, alone and with their equals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from quoth.errors import QuothError
from quoth.runtime.onnx_runner import OnnxRunner
from quoth.windows import Packed, pack

TOLERANCE = 1e-4  # of logits, or of the largest of them where that is above 1
LENGTHS = (8, 8, 9, 37, 37, 37, 128, 128, 300, 512)

Compute = Callable[[Packed[np.ndarray]], np.ndarray]


def random_windows(longest: int, vocab: int, types: int, seed: int = 0) -> Packed[np.ndarray]:
    """Windows of random tokens, of 8 tokens to as many as the model reads, 512 at most; some are equally long."""
    drawn = np.random.default_rng(seed)
    lengths = [min(length, longest) for length in LENGTHS]
    return pack(
        [drawn.integers(0, vocab, length) for length in lengths],
        [drawn.integers(0, max(1, types), length) for length in lengths],
    )


def difference(runner: OnnxRunner, batches: Sequence[Packed[np.ndarray]], wanted: Sequence[np.ndarray]) -> float:
    """The largest difference of a logit from the one that is wanted; infinite where one is not a number.

    Every batch is run window by window, and with all windows of a length in one rectangle.
    """
    compute = runner.member_logits if runner.task == "span" else runner.classes
    worst, usual = 0.0, runner.rectangle
    for packed, logits in zip(batches, wanted):
        for tokens in (1, packed.tokens):
            runner.rectangle = tokens
            gap = float(np.abs(compute(packed) - logits).max())
            worst = max(worst, gap if math.isfinite(gap) else math.inf)  # NaN is greater than nothing
    runner.rectangle = usual
    return worst


def check(source: str, worst: float, largest: float) -> None:
    """Refuse an export whose logits are not torch's."""
    limit = TOLERANCE * max(1.0, largest)
    if not worst <= limit:
        raise QuothError(
            f"{source}: the exported model's logits differ from torch's by {worst:.1e}, more than {limit:.1e}; nothing "
            "was written, please report this model's quoth.json"
        )

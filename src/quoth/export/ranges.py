"""The range of each product's input, fixed before the model runs: a window's logits depend on that window alone.

    W·x = (W·diag(c))·(x/c),  x/c ≈ s·(x̂ − z)      x̂: uint8; s, z: one for all of the input; c: one for each channel

A single channel whose values are far above all others would make s coarse for all, so it is divided by c and its
weights are multiplied by it: c = max(1, a/t) of channels with ranges a, t being the largest range but a few (Xiao et
al. 2023, "SmoothQuant", scale all of them). How many channels are scaled, and how much of the range is kept (values
beyond it are clipped), is what makes the error of the product least on the calibration windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

CHANNELS = (0, 4, 16)  # that are scaled at most
KEPT = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # of the range
GAIN = 0.75  # of the error without it, at most, or scaling is not worth its time, 1 to 2 % of a layer's
LEAST = 8  # times as many channels as are scaled, or there are too few to say what is usual


@dataclass(frozen=True, eq=False)
class Observed:
    """An input of products on calibration windows. low, high: (k,), of every token; rows: (n, k), of some tokens."""

    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True, eq=False)
class Range:
    """How an input is quantised. step: s; zero: z; scale: c, (k,) float32, or None for 1."""

    step: np.float32
    zero: np.uint8
    scale: np.ndarray | None

    def rounded(self, x: np.ndarray) -> np.ndarray:
        """What the product is given for x, (n, k): s·(x̂ − z), on the side of x/c."""
        whole = np.rint(x / self.step if self.scale is None else x / (self.scale * self.step)) + float(self.zero)
        return (np.clip(whole, 0, 255) - float(self.zero)) * self.step


def choose_range(seen: Observed, weights: Sequence[np.ndarray]) -> Range:
    """The range of an input that is best for its products. weights: (k, outputs) each."""
    weight = np.concatenate(weights, 1)
    wanted = seen.rows @ weight
    best: list[tuple[float, Range]] = []
    for scale in _scales(np.maximum(-seen.low, seen.high)):
        low, high = (seen.low, seen.high) if scale is None else (seen.low / scale, seen.high / scale)
        whole = round_weight(weight if scale is None else weight * scale[:, None])
        tried = [_range(float(low.min()) * kept, float(high.max()) * kept, scale) for kept in KEPT]
        errors = [float(np.square(one.rounded(seen.rows) @ whole - wanted).mean()) for one in tried]
        place = int(np.argmin(errors))
        best.append((errors[place], tried[place]))
    plain = best[0]
    found = min(best, key=lambda pair: pair[0])
    return found[1] if found[0] < GAIN * plain[0] else plain[1]


def integers(weight: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Signed 8-bit integers of a matrix, and their scale, shared over an axis that stays: (1, outputs) or (rows, 1)."""
    scale = np.abs(weight).max(axis, keepdims=True) / 127
    scale = np.where(scale > 0, scale, 1).astype(np.float32)
    return np.rint(weight / scale).astype(np.int8), scale


def round_weight(weight: np.ndarray) -> np.ndarray:
    """The weight of a product, (k, outputs), as int8 has it."""
    whole, scale = integers(weight, 0)
    return whole * scale  # type: ignore[no-any-return]


def _scales(ranges: np.ndarray) -> Iterator[np.ndarray | None]:
    """None, and what divides the channels of the largest ranges. ranges: (k,)."""
    yield None
    for count in CHANNELS[1:]:
        if len(ranges) > LEAST * count:
            usual = np.sort(ranges)[-1 - count]
            if 0 < usual < ranges.max():
                yield np.maximum(1, ranges / usual).astype(np.float32)


def _range(low: float, high: float, scale: np.ndarray | None) -> Range:
    """0 is always in it, and exact."""
    low, high = min(0.0, low), max(0.0, high)
    step = np.float32((high - low) / 255 or 1)
    return Range(step, np.uint8(np.clip(np.rint(-low / step), 0, 255)), scale)

"""Relative position biases: one number a head for how far a key lies from its query, added to the score (MPNet).

    Sᵢⱼ = qᵢ·kⱼ / √k + B[bucket(j − i), head]

Distances share buckets as in T5 (Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified
Text-to-Text Transformer", §2.1): one half of them for keys up to the query, the other for keys after it. Of a half of m
buckets, m/2 are for the distances 0 … m/2 − 1 alone; the others are logarithmic up to a distance of 128, and the last
one is for all that is further away. Borders are found in whole numbers, so that no rounding decides on a bucket.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

FAR = 128  # from this distance on all keys share a bucket, at the latest


def borders(buckets: int) -> tuple[int, ...]:
    """The distances |j − i| at which a new bucket of a half begins: of m buckets the last m − 1.

    The logarithmic bucket b begins at the least n with (n/e)^(m − e) ≥ (128/e)^(b − e), e = m/2.
    """
    half = buckets // 2
    exact = half // 2
    found = list(range(1, exact + 1))
    for bucket in range(exact + 1, half):
        n, steps = found[-1], bucket - exact
        while n ** (half - exact) * exact**steps < FAR**steps * exact ** (half - exact):
            n += 1
        found.append(n)
    return tuple(found)


def buckets_of_distances(longest: int, buckets: int) -> np.ndarray:
    """The bucket of every distance j − i from −(longest − 1) to longest − 1: (2·longest − 1,) int64."""
    distances = np.arange(1 - longest, longest)
    within = np.searchsorted(np.array(borders(buckets)), np.abs(distances), side="right")
    return within + np.where(distances > 0, buckets // 2, 0)


@cache
def distances_on(device: torch.device, longest: int, buckets: int) -> Tensor:
    """The same on a device. It is kept: a captured graph goes on reading it."""
    with torch.inference_mode(False):  # else no gradient could be computed with it later
        return torch.from_numpy(buckets_of_distances(longest, buckets)).to(device)


def bias_matrix(line: Tensor, length: int) -> Tensor:
    """The bias of every query i and key j of a window. line: (a, 2n − 1), by distance → (a, length, length)."""
    middle = line.shape[1] // 2
    near = line[:, middle - length + 1 : middle + length]
    return near.unfold(1, length, 1).flip(1)  # row s of the unfolded has the distances j + s − (length − 1)

"""Random numbers as functions of numbers, so that no generator's state has to be kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")


def seed_of(*numbers: int) -> int:
    """A seed for torch's generators that is a function of these numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def sample(items: Sequence[Item], fraction: float, seed: int) -> list[Item]:
    """A random fraction of the items, in order, at least one; a smaller fraction is a subset of a larger one."""
    keys = np.random.PCG64(np.random.SeedSequence([seed, 0xF2AC])).random_raw(len(items))
    count = max(1, round(fraction * len(items)))
    return [items[i] for i in np.sort(np.argsort(keys, kind="stable")[:count])]

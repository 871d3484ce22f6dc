"""Dropout inside kernels: a mask is a hash of (seed, row, column), drawn anew in the backward pass instead of stored.

The seed is a tensor on the device, taken from torch's generator, so that checkpointing, compilation and `manual_seed`
work as usual. An element is kept if row key × column key mod 2³² ≥ p·2³², where the keys are hashed once a row and once
a column.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def single(x):  # type: ignore[no-untyped-def]
    """A scalar argument in single precision: torch.compile hands floats over in double."""
    return tl.full((), x, tl.float32)


@triton.jit
def _mixed(h):  # type: ignore[no-untyped-def]
    """A 32-bit hash (lowbias32) in which every input bit moves every output bit."""
    h = (h ^ (h >> 16)) * 0x7FEB352D
    h = (h ^ (h >> 15)) * 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def row_key(seed, row):  # type: ignore[no-untyped-def]
    """The random number of a row of a dropout mask: odd, so that times it all 32-bit numbers stay apart."""
    return _mixed(row.to(tl.uint32) * 0x9E3779B9 + seed.to(tl.uint32)) | 1


@triton.jit
def column_key(seed, column):  # type: ignore[no-untyped-def]
    """The random number of a column of a dropout mask."""
    return _mixed(column.to(tl.uint32) * 0x85EBCA6B + (seed.to(tl.uint32) ^ 0x5BD1E995))


@triton.jit
def kept(rows, columns, threshold):  # type: ignore[no-untyped-def]
    """Which elements dropout keeps: row key × column key mod 2³² ≥ p·2³². (philox: 100 instructions; this: 2.)"""
    return rows * columns >= threshold.to(tl.uint32)


def seed_for(x: Tensor, p: float) -> Tensor:
    """A seed for one dropout mask, from torch's generator of x's device; empty where nothing is dropped."""
    if p == 0:
        return torch.empty(0, dtype=torch.int32, device=x.device)
    return torch.randint(2**31 - 1, (1,), dtype=torch.int32, device=x.device)


def keep_threshold(p: float) -> int:
    """The least hash that keeps an element: a part p of all 32-bit numbers lies below it."""
    return min(int(p * 2**32), 2**32 - 1)

"""Rectangles of a matrix in memory, for Triton kernels."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_tile(base, row, column, rows, columns, stride):  # type: ignore[no-untyped-def]
    """Load a (row, column) tile, zero outside `rows` × `columns`."""
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    return tl.load(base + row.to(tl.int64)[:, None] * stride + column[None, :], inside, 0.0)


@triton.jit
def store_tile(base, row, column, rows, columns, stride, value):  # type: ignore[no-untyped-def]
    """Store a (row, column) tile, leaving out what is outside `rows` × `columns`."""
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = base + row.to(tl.int64)[:, None] * stride + column[None, :]
    tl.store(at, value.to(base.dtype.element_ty), inside)

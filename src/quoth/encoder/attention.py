"""Attention over packed windows: each token attends to its own window, and no position is padding.

    softmax(Q·Kᵀ / √k + B) · V,   per head;   Q, K: (tokens, k), V: (tokens, v)

B is the bias of relative positions, where a family has one (`relative.py`).

Two paths with the same result. In half precision on CUDA, flash attention (`kernels/flash.py`) takes the whole
batch with cumulative lengths. Elsewhere `scaled_dot_product_attention` runs over buckets of windows within 10 % in
length. Sizes that a kernel does not like (flash: not a multiple of 8; the other: key ≠ value) are padded with zero
*weights*, which change neither the scores nor the kept part of the result, with the scale 1/√k given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quoth.encoder.relative import bias_matrix
from quoth.encoder.shape import LayerShape
from quoth.encoder.steps import have_kernels, up_to_8
from quoth.errors import QuothError
from quoth.windows import Packed

SLACK = 0.1  # windows share a bucket if the shortest lacks at most this part of the longest
FLASH_LIMIT = 128  # the largest head size of which flash attention's tiles fit a multiprocessor


@dataclass(frozen=True)
class Bucket:
    """Windows of similar length as a rectangle.

    index: (windows, longest), the flat position of each token, padding pointing at the window's first token.
    real: (windows, longest), False on padding; None where all windows are equally long.
    span: the flat range, where the rectangle is simply a run of the batch; then there is nothing to gather.
    """

    index: Tensor
    real: Tensor | None
    span: tuple[int, int] | None


@dataclass(frozen=True)
class Plan:
    """How a batch attends: what every layer needs, computed once.

    starts: (n + 1,) int32 on the device and `longest`, for flash attention.
    buckets, for the other path, and `order`: (T,), the place of each token in the buckets' results end to end
    (None: in order already).
    distances, where there are relative biases: (2n − 1,) int64, the bucket of each distance; relative: (buckets, a),
    the biases that layers share, None where each has its own.
    """

    starts: Tensor
    longest: int
    buckets: tuple[Bucket, ...] = ()
    order: Tensor | None = None
    distances: Tensor | None = None
    relative: Tensor | None = None


def make_plan(packed: Packed[Tensor], dtype: torch.dtype, head_size: int) -> Plan:
    """Plan the attention of a batch whose states are in `dtype`, in heads of at most `head_size`."""
    starts = packed.starts.to(torch.int32)
    if have_kernels(starts) and dtype in (torch.float16, torch.bfloat16) and head_size <= FLASH_LIMIT:
        return Plan(starts, packed.longest)
    return _bucket_plan(packed, starts)


def _bucket_plan(packed: Packed[Tensor], starts: Tensor) -> Plan:
    device = starts.device
    if packed.size is not None and device.type != "cpu":
        raise QuothError("a batch of a given size needs flash attention: CUDA, half precision, heads of at most 128")
    of_windows = starts.diff().tolist() if packed.size else packed.lengths
    first = np.concatenate([[0], np.cumsum(of_windows)])
    groups = buckets_by_length(of_windows)
    buckets, places = [], []
    for group in groups:
        lengths = np.asarray([of_windows[window] for window in group])
        steps = np.arange(lengths[0])
        real = steps < lengths[:, None]
        index = first[list(group)][:, None] + np.where(real, steps, 0)
        places.append(index[real])
        adjoining = real.all() and list(group) == list(range(group[0], group[0] + len(group)))
        buckets.append(
            Bucket(
                torch.from_numpy(index).to(device),
                None if real.all() else torch.from_numpy(real).to(device),
                (int(first[group[0]]), int(first[group[-1] + 1])) if adjoining else None,
            )
        )
    place = np.concatenate(places)
    in_order = bool((place == np.arange(len(place))).all())
    order = None if in_order else torch.from_numpy(np.argsort(place, kind="stable")).to(device)
    return Plan(starts, packed.longest, tuple(buckets), order)


def buckets_by_length(lengths: Sequence[int]) -> list[list[int]]:
    """Group windows, longest first, so that none in a group is shorter than the longest by more than `SLACK`.

    Within a group the order is longest first, then that of the batch.
    """
    groups: list[list[int]] = []
    for window in sorted(range(len(lengths)), key=lambda w: -lengths[w]):
        if not groups or lengths[window] < (1 - SLACK) * lengths[groups[-1][0]]:
            groups.append([])
        groups[-1].append(window)
    return groups


class Attention(nn.Module):
    """Multi-head attention up to, and not with, the use of its output projection, which `Layer` applies.

    Q, K: (a·k, h), V: (a·v, h), output P: (h, a·v), each with a bias. buckets: of relative positions, if this layer
    has biases of its own for them.
    """

    def __init__(self, hidden: int, shape: LayerShape, dropout: float, buckets: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.dropout = dropout
        self.query = nn.Linear(hidden, shape.heads * shape.key)
        self.key = nn.Linear(hidden, shape.heads * shape.key)
        self.value = nn.Linear(hidden, shape.heads * shape.value)
        self.output = nn.Linear(shape.heads * shape.value, hidden)
        self.relative = nn.Embedding(buckets, shape.heads) if buckets else None

    def forward(self, x: Tensor, plan: Plan) -> Tensor:
        """Mix the values of each window. x: (T, h) → (T, a·v)."""
        shape = self.shape
        p = self.dropout if self.training else 0.0
        scale = 1 / math.sqrt(shape.key)
        relative = plan.relative if self.relative is None else self.relative.weight
        if not plan.buckets:
            mixed = self._flash(x, plan, scale, p, relative)
        else:
            size = max(shape.key, shape.value)
            q = _project(self.query, x, shape.heads, shape.key, size)
            k = _project(self.key, x, shape.heads, shape.key, size)
            v = _project(self.value, x, shape.heads, shape.value, size)
            mixed = _bucketed(q, k, v, plan, scale, p, relative)
        return mixed[..., : shape.value].reshape(len(x), -1)

    def _flash(self, x: Tensor, plan: Plan, scale: float, p: float, relative: Tensor | None) -> Tensor:
        """Flash attention on queries, keys and values from one matrix product. (T, h) → (T, a, v up to 8)."""
        from quoth.encoder.kernels.flash import flash_attention  # Triton is optional

        heads, key, value = self.shape.heads, up_to_8(self.shape.key), up_to_8(self.shape.value)
        linears = ((self.query, self.shape.key), (self.key, self.shape.key), (self.value, self.shape.value))
        if all(type(linear) is nn.Linear for linear, _ in linears):
            padded = [_padded(linear, heads, size, up_to_8(size)) for linear, size in linears]
            weight, bias = (torch.cat(parts) for parts in zip(*padded))
            qkv = F.linear(x, weight, bias)
        else:
            parts = [_project(linear, x, heads, size, up_to_8(size)) for linear, size in linears]
            qkv = torch.cat([part.flatten(1) for part in parts], 1)
        sizes = (plan.longest, heads, key, value)
        return flash_attention(qkv, plan.starts, *sizes, scale, p, relative, plan.distances).view(-1, heads, value)


def _project(linear: nn.Linear, x: Tensor, heads: int, size: int, to: int) -> Tensor:
    """Project x to `heads` vectors of `size`, each followed by zeros up to `to`. (T, h) → (T, heads, to)."""
    if size == to:
        return linear(x).view(-1, heads, to)  # type: ignore[no-any-return]
    if type(linear) is not nn.Linear:
        return F.pad(linear(x).view(-1, heads, size), (0, to - size))
    return F.linear(x, *_padded(linear, heads, size, to)).view(-1, heads, to)


def _padded(linear: nn.Linear, heads: int, size: int, to: int) -> tuple[Tensor, Tensor]:
    """Weight and bias with zero rows after each head's: they cost less than a copy of the far larger activations."""
    if size == to:
        return linear.weight, linear.bias
    weight = F.pad(linear.weight.view(heads, size, -1), (0, 0, 0, to - size)).view(heads * to, -1)
    return weight, F.pad(linear.bias.view(heads, size), (0, to - size)).view(-1)


@torch.compiler.disable
def _bucketed(q: Tensor, k: Tensor, v: Tensor, plan: Plan, scale: float, p: float, relative: Tensor | None) -> Tensor:
    """Attention bucket by bucket. (T, a, d) each; relative: (buckets of distances, a) → (T, a, d)."""
    line = None
    if relative is not None and plan.distances is not None:
        line = F.embedding(plan.distances, relative).T.to(q.dtype)
    parts = [_rectangle(q, k, v, bucket, scale, p, line) for bucket in plan.buckets]
    mixed = torch.cat(parts) if len(parts) != 1 else parts[0]
    return mixed if plan.order is None else mixed[plan.order]


def _rectangle(q: Tensor, k: Tensor, v: Tensor, bucket: Bucket, scale: float, p: float, line: Tensor | None) -> Tensor:
    """Attention of one bucket; its real tokens, window after window. (T, a, d) each → (real tokens, a, d).

    line: (a, 2n − 1), the bias of each distance.
    """
    rows, longest = bucket.index.shape

    def gather(x: Tensor) -> Tensor:
        if bucket.span is not None:
            x = x[bucket.span[0] : bucket.span[1]].view(rows, longest, *x.shape[1:])
        else:
            x = x[bucket.index]
        return x.transpose(1, 2)  # (windows, a, longest, d)

    mask = None if bucket.real is None else bucket.real[:, None, None, :]
    if line is not None:
        bias = bias_matrix(line, longest)[None]
        mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
    mixed = F.scaled_dot_product_attention(
        gather(q), gather(k), gather(v), attn_mask=mask, dropout_p=p, scale=scale
    ).transpose(1, 2)
    return mixed.flatten(0, 1) if bucket.real is None else mixed[bucket.real]

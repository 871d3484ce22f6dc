"""The context-aware CNN: a convolution whose filters are made anew for each window.

Hulburd 2020, "Exploring BERT Parameter Efficiency on the Stanford Question Answering Dataset v2.0", §2.3, figures 1 and
2, after Shen et al. 2017, "Learning Context-Aware Convolutional Filters for Text Processing". The paper leaves sizes
open; our reading, for one window with last-layer states X: (n, h), w = `width`:

    Y[t] = W·X[t − w//2 … t + w//2] + b                          first convolution, zeros outside the window
    "vectorised"  c = maxₜ relu(Y[t])                            context vector, (filters,)
                  f[j, p, i] = K[j·w + p, i mod filters]         K: (maps·w, filters), a convolution along c
    "simple"      f[j, p, i] = max relu(Y[t, j·h + i])           over the tokens t with ⌊t·w/n⌋ = p; none give 0
    Z[t, j, i] = Σₚ f[j, p, i] · X[t + p − w//2, i]              `maps` depthwise filters of the window's own
    start[t] = Σ_{j < maps/2, i} a[j, i] · Z[t, j, i] + b_start  the other half of the maps gives the end

The maximum is figure 1's (the text says sum). Depthwise filters from segments of the sequence, 4 of them, 5 wide, and
halves of the maps for start and end follow an earlier code base of the author; its segments overlap and have a fixed
length, and it masks the question, where ours divide the window evenly and see all of it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quoth.encoder.graph import Graph
from quoth.errors import QuothError
from quoth.heads.head import SpanOutput, States, Task, register_head
from quoth.windows import Packed

TILE = 32  # tokens of a window that are multiplied with its filters at a time


@register_head
class ContextCNN(nn.Module):
    """Start and end logits of every token by filters of its window's own.

    Computed with less than the formula says and the same result: the maximum is taken before the bias and relu,
    which keep the order; and since the affine layer and Z are linear, it is folded into the filters, which leaves
    2·w vectors a window, g[start | end, p] = Σⱼ a[j]·f[j, p], to multiply its states with.
    """

    kind: ClassVar[str] = "cacnn"
    task: Task = "span"
    reads: tuple[int, ...] = (-1,)
    pooled = False

    def __init__(
        self, hidden: int, context: str = "vectorised", filters: int | None = None, width: int = 5, maps: int = 4
    ) -> None:
        super().__init__()
        _check(context, filters, width, maps)
        self.context, self.width, self.maps = context, width, maps
        self.filters = (filters or hidden) if context == "vectorised" else None
        self.first = _convolution(hidden, self.filters or maps * hidden, width)
        self.second = _convolution(1, maps * width, width) if self.filters else None
        self.weight = nn.Parameter(torch.empty(maps, hidden))
        self.bias = nn.Parameter(torch.zeros(2))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, states: States, packed: Packed[Tensor]) -> SpanOutput:
        """One state of (T, h) → start logits (T,), end logits (T,)."""
        x = states[-1]
        window = packed.window_of_token()
        after = packed.starts[1:].long()[window] - torch.arange(1, len(x) + 1, device=x.device)
        outside = [_outside(packed.positions, after, p - self.width // 2) for p in range(self.width)]
        filters = self._filters_from(self._first(x, outside), packed, window)
        folded = (filters * self.weight).unflatten(2, (2, -1)).sum(3)  # g, (n, w, 2, h)
        products = _multiply_by_window(x, folded.flatten(1, 2), packed, window).unflatten(1, (self.width, 2))
        logits = self.bias.expand(len(x), 2)  # under autocast the one term in fp32, so that the sum is too
        for p in range(self.width):
            logits = logits + _shift(products[:, p], p - self.width // 2, outside[p])
        return SpanOutput(*logits.unbind(-1))

    def to_json(self) -> dict[str, Any]:
        """What a model folder says of this head; see `build_head`."""
        own = {"filters": self.filters} if self.filters else {}
        return {"kind": "cacnn", "context": self.context, **own, "width": self.width, "maps": self.maps}

    def to_onnx(self, g: Graph, states: Sequence[str], size: str) -> str:
        """One state of (T, h) → (T, 2)."""
        width, hidden = self.width, self.weight.shape[1]
        x = g.reshape(states[-1], size, hidden)  # (B, L, h)
        around = [width // 2] * 2
        y = g("Conv", g("Transpose", x, perm=[0, 2, 1]), g.constant(self.first.weight), pads=around)  # (B, channels, L)
        filters = self._vectorised(g, y) if self.filters else self._simple(g, y, size)  # (B, w, maps, h)
        mine = g.reshape(g("Mul", filters, g.constant(self.weight)), -1, width, 2, self.maps // 2, hidden)
        folded = g.reshape(g("ReduceSum", mine, g.integers(3), keepdims=0), -1, width * 2, hidden)
        products = g("MatMul", x, g("Transpose", folded, perm=[0, 2, 1]))  # (B, L, w·2)
        wide = g("Pad", products, g.integers(0, around[0], 0, 0, around[1], 0))
        logits = g.constant(self.bias)
        for p in range(width):
            end = p - width + 1 or sys.maxsize
            shifted = g("Slice", wide, g.integers(p, 2 * p), g.integers(end, 2 * p + 2), g.integers(1, 2))
            logits = g("Add", logits, shifted)
        return g.reshape(logits, -1, 2)

    def _vectorised(self, g: Graph, y: str) -> str:
        """Filters by a convolution along the context vector, in a graph. y: (B, filters, L) → (B, w, maps, h)."""
        assert self.second is not None
        assert self.filters is not None
        hidden, around = self.weight.shape[1], [self.width // 2] * 2
        context = g("Unsqueeze", self._most(g, y), g.integers(1))
        along = g("Conv", context, g.constant(self.second.weight), g.constant(self.second.bias), pads=around)
        each = g.reshape(along, -1, self.maps, self.width, self.filters)
        tiled = g("Concat", *[g("Transpose", each, perm=[0, 2, 1, 3])] * -(-hidden // self.filters), axis=3)
        return g("Slice", tiled, g.integers(0), g.integers(hidden), g.integers(3))

    def _simple(self, g: Graph, y: str, size: str) -> str:
        """Filters by the maxima over segments, in a graph. y: (B, maps·h, L) → (B, w, maps, h)."""
        zero, one = g.constant(0), g.constant(1)
        length = g("Gather", size, one)
        segment = g("Div", g("Mul", g("Range", zero, length, one), g.constant(self.width)), length)  # (L,)
        found = []
        for p in range(self.width):
            mine = g("Where", g("Equal", segment, g.constant(p)), y, g.constant(-math.inf))  # none: relu(−∞) = 0
            found.append(g("Unsqueeze", self._most(g, mine), g.integers(1)))
        return g.reshape(g("Concat", *found, axis=1), -1, self.width, self.maps, self.weight.shape[1])

    def _most(self, g: Graph, y: str) -> str:
        """relu(max + b) over the tokens, in a graph. y: (B, channels, L) → (B, channels)."""
        most = g("ReduceMax", y, g.integers(2), keepdims=0)
        return g("Relu", g("Add", most, g.constant(self.first.bias)))

    def _first(self, x: Tensor, outside: Sequence[Tensor]) -> Tensor:
        """The first convolution without its bias: one matrix product of (T, w·h). x: (T, h) → (T, channels)."""
        around = torch.cat([_shift(x, p - self.width // 2, outside[p]) for p in range(self.width)], 1)
        return F.linear(around, self.first.weight.transpose(1, 2).flatten(1))

    def _filters_from(self, y: Tensor, packed: Packed[Tensor], window: Tensor) -> Tensor:
        """Each window's filters from the first convolution. y: (T, channels) → (n, w, maps, h)."""
        hidden = self.weight.shape[1]
        most = _segment_max(y, packed, window, self.width if self.second is None else 1)
        features = F.relu(most + self.first.bias)  # an empty segment: relu(−∞) = 0
        if self.second is None:
            return features.view(-1, self.width, self.maps, hidden)
        near = F.pad(features, (self.width // 2, self.width // 2)).unfold(1, self.width, 1)  # (n, filters, w)
        along = F.linear(near, self.second.weight.squeeze(1), self.second.bias)  # Kᵀ, (n, filters, maps·w)
        filters = along.view(*features.shape, self.maps, self.width).permute(0, 3, 2, 1)
        return filters.repeat(1, 1, 1, -(-hidden // features.shape[1]))[..., :hidden]


def _convolution(inputs: int, outputs: int, width: int) -> Any:
    """An `nn.Conv1d` that always has a bias, 0 at first; its weights from a truncated normal with σ = 0.02."""
    layer: Any = nn.Conv1d(inputs, outputs, width)
    nn.init.trunc_normal_(layer.weight, std=0.02, a=-0.04, b=0.04)
    nn.init.zeros_(layer.bias)
    return layer


def _check(context: str, filters: int | None, width: int, maps: int) -> None:
    if context not in ("vectorised", "simple"):
        raise QuothError(f"head: cacnn has no context {context!r}; choose 'vectorised' or 'simple'")
    if filters is not None and context == "simple":
        raise QuothError("head: cacnn takes filters with context = 'vectorised' only; leave them out with 'simple'")
    if filters is not None and filters < 1:
        raise QuothError(f"head: cacnn filters must be a whole number from 1, not {filters!r}")
    if width < 1 or width % 2 == 0:
        raise QuothError(f"head: cacnn width must be an odd number of tokens, not {width!r}")
    if maps < 2 or maps % 2:
        raise QuothError(f"head: cacnn maps must be an even number, half for the start, half the end, not {maps!r}")


def _outside(before: Tensor, after: Tensor, by: int) -> Tensor:
    """Where t + by is not in t's window, given how many tokens the window has before and after t. (T, 1)."""
    return (after < by if by > 0 else before < -by)[:, None]


def _shift(x: Tensor, by: int, outside: Tensor) -> Tensor:
    """Row t is x[t + by], or 0 where that is outside t's window. x: (T, k) → (T, k)."""
    return x.roll(-by, 0).masked_fill(outside, 0.0) if by else x


def _segment_max(y: Tensor, packed: Packed[Tensor], window: Tensor, parts: int) -> Tensor:
    """The maximum over each of `parts` segments of each window, −∞ over none. y: (T, k) → (n·parts, k).

    Token t of n is in segment ⌊t·parts/n⌋, so segment s begins at ⌈s·n/parts⌉.
    """
    starts = packed.starts.long()
    begins = (starts.diff()[:, None] * torch.arange(parts, device=starts.device) + parts - 1) // parts
    offsets = torch.cat([(starts[:-1, None] + begins).flatten(), starts[-1:]])
    segment = window * parts + packed.positions * parts // starts.diff()[window]
    most: Tensor = _SegmentMax.apply(y, offsets, segment)
    return most


class _SegmentMax(torch.autograd.Function):
    """`torch.segment_reduce(…, "max")` with a gradient that is shared evenly among equal maxima, as by `torch.amax`.

    Torch's own (to 2.13 at least) shares positive gradients but gives negative ones whole to each; in bf16, where
    maxima are often equal, that would tell. (Counted in the type of y: in bf16 more than 256 equal ones are taken
    for 256.)
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, offsets: Tensor, segment: Tensor) -> Tensor:
        """y: (T, k), segment: (T,), the one each row is in → (segments, k)."""
        most = torch.segment_reduce(y, "max", offsets=offsets, unsafe=True)  # unsafe: no check that asks the device
        ctx.save_for_backward(y, most, offsets, segment)
        return most

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """(segments, k) → (T, k)."""
        y, most, offsets, segment = ctx.saved_tensors
        chosen = y == most.index_select(0, segment)
        count = torch.segment_reduce(chosen.to(y.dtype), "sum", offsets=offsets, unsafe=True)
        share = (grads[0] / count).index_select(0, segment)
        return share.masked_fill(~chosen, 0.0), None, None


def _multiply_by_window(x: Tensor, vectors: Tensor, packed: Packed[Tensor], window: Tensor) -> Tensor:
    """Each token times all vectors of its window. x: (T, h), vectors: (n, k, h) → (T, k).

    Windows are cut into tiles of equal size, the last one filled up with zeros: a rectangle of at most TILE − 1 idle
    rows a window, however much the lengths differ.
    """
    size = min(TILE, packed.longest)
    # a batch of a given size: the most tiles that windows of so many tokens can have
    count = packed.tokens // size + packed.windows if packed.size else sum(-(-n // size) for n in packed.lengths)
    tiles = (packed.starts.diff() + size - 1) // size  # (n,), of each window
    first = tiles.cumsum(0) - tiles
    place = first[window] * size + packed.positions  # (T,), of each token in the rectangle
    rectangle = x.new_zeros(count * size, x.shape[1]).index_copy(0, place, x)
    owner = torch.searchsorted(tiles.cumsum(0), torch.arange(count, device=tiles.device), right=True)
    owner = owner.clamp(max=len(tiles) - 1)  # of tiles that no window needs
    mine = vectors[owner]  # not index_select, whose gradient is summed in no fixed order on a GPU
    products = torch.bmm(rectangle.unflatten(0, (count, size)), mine.transpose(1, 2))
    return products.flatten(0, 1).index_select(0, place)

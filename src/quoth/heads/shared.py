"""What many heads read of the same frozen states, computed for all of them at once (on CUDA, in half precision).

Most heads begin with something linear in the states x, (L, T, f), that learns weights and needs no gradient of x: a
weighted sum of the layers, products of each state, filters over its features (`Reading`). One head at a time, each of
them reads all states from memory, forward and backward. Here

    mix       all weighted sums are one kernel
    products  all weights that the layers share are one matrix product, side by side
    each      all weights that each layer has of its own are one batched product
    patches   all filters over features are one product of one copy of the states

and so are the gradients of the weights. What a head makes of its part is its own. On the way back the gradient of its
part takes the place of the part; when all heads are done, `Together.backward` hands the weights their gradients.

A part of a matrix product may be rounded in another way if it has other neighbours: a head that is trained with others
equals the same head trained alone up to the rounding of half precision. Sums of layers are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

import torch
from torch import Tensor, nn

from quoth.heads.chain import Chain
from quoth.heads.convolution import FIRST, wide_patches, wide_weight
from quoth.heads.step import Reading, by_layer, fusable, up_to_16

ORDER = ("mix", "products", "each", "patches")
MOST = 1 / 8  # of a GPU's memory for all parts; heads beyond it read the states themselves
WIDEST = 4  # how many filters wide a patch may be; dilations that do not divide it are left to their heads


@dataclass(frozen=True)
class Part:
    """What one step of a head asks for. layers: from the first to after the last, among the states."""

    step: nn.Module
    reading: Reading
    layers: tuple[int, int]


class Together:
    """The parts of several heads. given: by step, what it asked for."""

    def __init__(self, heads: Sequence[Any], places: Sequence[Any], states: Tensor, limit: float | None = None) -> None:
        """Heads and, for each, the places of the layers it reads in `states`: (layers, T, h), token by token.

        limit: bytes for all parts, by default `MOST` of the GPU's memory
        """
        self.given: dict[Any, Tensor] = {}
        parts = [part for head, place in zip(heads, places) for part in _parts(head, place, states)]
        self._groups: list[Any] = []
        if limit is None and states.is_cuda:
            limit = MOST * torch.cuda.get_device_properties(states.device).total_memory
        for group, mine in _grouped(parts if limit is None else _affordable(parts, states, limit)):
            made = group(states, mine)
            self._groups.append(made)
            self.given |= {part.step: _place(z, part) for part, z in zip(mine, made.results)}

    def backward(self) -> None:
        """After the backward pass of all heads: the gradients of what they asked for."""
        pairs = [pair for group in self._groups for pair in group.gradients()]
        self._groups, self.given = [], {}
        learned = [(weight, grad) for weight, grad in pairs if weight.requires_grad]
        if learned:
            torch.autograd.backward([w for w, _ in learned], [g.to(w.dtype) for w, g in learned])


class _Given(torch.autograd.Function):
    """A part as the beginning of a head's graph: its gradient takes its place in memory."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, anchor: Tensor) -> Tensor:
        ctx.place = z
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        place = ctx.place
        del ctx.place
        if grad.data_ptr() != place.data_ptr():  # the kernels write it there themselves
            place.data.copy_(grad)  # .data: other heads' parts lie beside it, and nobody needs this one
        return None, None


def _place(z: Tensor, part: Part) -> Tensor:
    if not part.reading.weight.requires_grad:
        return z
    with torch.enable_grad():
        anchor = torch.empty(0, device=z.device, requires_grad=True)  # so that torch asks for a gradient
        return _Given.apply(z, anchor)  # type: ignore[no-any-return]


class _Mixes:
    """All weighted sums: (k, T, f). Those that learn come first."""

    def __init__(self, states: Tensor, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._x, at = _span(states, parts)
        weights = torch.zeros(len(parts), len(self._x), dtype=parts[0].reading.weight.dtype, device=states.device)
        for number, part in enumerate(parts):
            weights[number, at[number]] = part.reading.weight.detach()
        self._at = at
        self.results: Any = _sums(self._x, weights)

    def gradients(self) -> Iterable[tuple[Tensor, Tensor]]:
        count = sum(part.reading.weight.requires_grad for part in self._parts)
        if count == 0:
            return []
        found = _sums_gradient(self._x, self.results[:count])
        return [(part.reading.weight, row[at]) for part, row, at in zip(self._parts, found, self._at)]


class _Products:
    """All products with weights that the layers share, (L, T, n), or `each` has of its own."""

    def __init__(self, states: Tensor, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._x, self._at = _span(states, parts)
        self._each = parts[0].reading.kind == "each"
        sizes = [part.reading.weight.shape[-2] for part in parts]
        wide = [up_to_16(size) for size in sizes]
        layers = (len(self._x),) if self._each else ()
        weight = self._x.new_zeros(*layers, sum(wide), self._x.shape[2])
        starts = [sum(wide[:number]) for number in range(len(wide))]
        self._columns = [slice(start, start + size) for start, size in zip(starts, sizes)]
        for part, at, columns in zip(parts, self._at, self._columns):
            place = weight[at, columns] if self._each else weight[columns]
            place.copy_(part.reading.weight.detach())
        self._z = torch.bmm(self._x, weight.mT) if self._each else by_layer(self._x, weight)
        for at, columns in zip(self._at, self._columns):
            for beside in (slice(0, at.start), slice(at.stop, len(self._x))):
                self._z[beside, :, columns] = 0  # layers that the part does not have: no gradient comes from them
        self.results = [self._z[at, :, columns] for at, columns in zip(self._at, self._columns)]

    def gradients(self) -> Iterable[tuple[Tensor, Tensor]]:
        tokens, z = self._x.transpose(0, 1), self._z.transpose(0, 1)
        if not self._each and tokens.is_contiguous() and z.is_contiguous():
            found = z.flatten(0, 1).T @ tokens.flatten(0, 1)
        else:
            found = torch.bmm(self._z.mT, self._x)
            found = found if self._each else found.sum(0, dtype=self._parts[0].reading.weight.dtype)
        for part, at, columns in zip(self._parts, self._at, self._columns):
            yield part.reading.weight, found[at, columns] if self._each else found[columns]


class _Patches:
    """All filters over features: (T, places, n) each, `times` places of a filter side by side."""

    def __init__(self, states: Tensor, parts: Sequence[Part]) -> None:
        times = lcm(*(part.reading.dilation for part in parts))
        x, _ = _span(states, parts)
        self._patches = wide_patches(x.transpose(0, 1), FIRST * times)
        with torch.enable_grad():
            self._wide = [wide_weight(part.reading.weight, part.reading.dilation, times) for part in parts]
        weight = torch.cat([wide.detach().to(x.dtype) for wide in self._wide])
        self._z = self._patches @ weight.T
        self.results = self._z.split([len(wide) for wide in self._wide], -1)

    def gradients(self) -> Iterable[tuple[Tensor, Tensor]]:
        found = self._z.flatten(0, 1).T @ self._patches.flatten(0, 1)
        return zip(self._wide, found.split([len(wide) for wide in self._wide]))


GROUPS = {"mix": _Mixes, "products": _Products, "each": _Products, "patches": _Patches}


def _parts(head: Any, place: Any, states: Tensor) -> list[Part]:
    """What the first steps of a head ask for: of a chain for spans, on several layers in a row."""
    if not isinstance(head, Chain) or head.task != "span" or not isinstance(place, slice):
        return []
    layers, steps = head.first_steps
    if len(layers) < 2:
        return []
    found = []
    for step in steps:
        if hasattr(step, "reading"):
            with torch.enable_grad():
                reading = step.reading(states)
            if reading.kind != "patches" or _fits(reading, states.shape[2]):
                found.append(Part(step, reading, (place.start, place.start + len(layers))))
    return found


def _fits(reading: Reading, features: int) -> bool:
    """Whether patches of any width cover the features without a rest."""
    return WIDEST % reading.dilation == 0 and features % (WIDEST * FIRST) == 0


def _affordable(parts: Sequence[Part], states: Tensor, limit: float) -> list[Part]:
    """The parts that fit in so many bytes: the small ones first."""
    kept = set()
    for part in sorted(parts, key=lambda part: _numbers(part, states)):
        limit -= states.element_size() * _numbers(part, states)
        if limit < 0:
            break
        kept.add(part.step)
    return [part for part in parts if part.step in kept]


def _numbers(part: Part, states: Tensor) -> int:
    """How many numbers a part has, with the copy of the states that filters need."""
    (_, tokens, features), weight = states.shape, part.reading.weight
    layers = part.layers[1] - part.layers[0]
    if part.reading.kind == "mix":
        return tokens * features
    if part.reading.kind == "patches":
        return tokens * features * (len(weight) // FIRST + layers)
    return layers * tokens * up_to_16(weight.shape[-2])


def _grouped(parts: Sequence[Part]) -> list[tuple[Any, list[Part]]]:
    """The groups and the parts of each, those that learn first."""
    found = []
    for kind in ORDER:
        mine = [part for part in parts if part.reading.kind == kind]
        mine.sort(key=lambda part: not part.reading.weight.requires_grad)
        if kind == "patches":
            for layers in sorted({part.layers for part in mine}):
                found.append((GROUPS[kind], [part for part in mine if part.layers == layers]))
        elif mine:
            found.append((GROUPS[kind], mine))
    return found


def _span(states: Tensor, parts: Sequence[Part]) -> tuple[Tensor, list[slice]]:
    """The states that any of the parts reads, and where those of each lie among them."""
    first, last = min(part.layers[0] for part in parts), max(part.layers[1] for part in parts)
    return states[first:last], [slice(part.layers[0] - first, part.layers[1] - first) for part in parts]


def _sums(x: Tensor, weights: Tensor) -> Tensor:
    """x: (L, T, f), weights: (k, L) → (k, T, f)."""
    if not fusable(x):
        return torch.einsum("ltf,kl->ktf", x, weights.to(x.dtype))
    from quoth.heads.kernels.weighted_sums import sums  # Triton is optional

    return sums(x, weights)


def _sums_gradient(x: Tensor, dy: Tensor) -> Tensor:
    """x: (L, T, f), dy: (k, T, f) → (k, L)."""
    if not fusable(x):
        return torch.einsum("ltf,ktf->kl", x, dy)
    from quoth.heads.kernels.weighted_sums import sums_gradient  # Triton is optional

    return sums_gradient(x, dy)

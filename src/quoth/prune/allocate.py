"""`allocate`: which elements stay, of all dimensions together, so that the shape costs no more than a budget.

Algorithm 1 of schuBERT / optBERT (ACL 2020), step 3: the smallest |α| go first, across all dimensions, until enough of
the cost is gone; β is in the penalty and not in the ranking, but |α|/β may be chosen. What elements cost depends on
what else went, so the cost is always that of the whole shape.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from quoth.encoder import Shape
from quoth.errors import QuothError
from quoth.prune.cost import Cost, betas
from quoth.prune.dimensions import sizes, with_sizes


def allocate(
    scores: Mapping[str, Tensor],
    shape: Shape,
    cost: Cost,
    budget: float,
    *,
    per_cost: bool = False,
    multiple: int = 1,
    give_back: bool = False,
) -> dict[str, Tensor]:
    """Which elements stay: booleans by dimension, for `Gates.zero` and `cut`.

    scores: (size,) for each dimension that may be cut, such as `Gates.scores()`; the lowest go first
    budget: what the cut shape may cost, such as 0.5 · cost(shape)
    per_cost: rank by score / β
    multiple: sizes (all but the number of heads) are rounded up to multiples of it, but never above what they are
    give_back: once below the budget, elements come back, the highest score first, as long as they fit; then no
    dimension could have one more element (or `multiple` of them). Algorithm 1 does not do this

    The shape that is left costs at most `budget`: the fewest elements go that bring it there. Every dimension keeps at
    least 1 element, or `multiple`.
    """
    if type(multiple) is not int or multiple < 1:
        raise QuothError(f"sizes are rounded to multiples of a whole number from 1, not of {multiple!r}")
    ranked = _rank(scores, shape, cost, per_cost)
    full = {name: len(found) for name, found in ranked.scores.items()}
    search = _Search(shape, cost, budget, full, multiple)
    left = search.after(ranked.removed(len(ranked.owner)))
    if not search.fits(left):
        raise QuothError(
            f"a budget of {budget:,.0f} cannot be met: cutting {', '.join(sorted({name[0] for name in full}))} as far "
            f"as it goes leaves a cost of {search.cost_of(left):,.0f} of {cost(shape):,.0f}; ask for less, or cut more"
        )
    low, high = 0, len(ranked.owner)  # the fewest elements to remove: cost falls as more go
    while low < high:
        middle = (low + high) // 2
        if search.fits(search.after(ranked.removed(middle))):
            high = middle
        else:
            low = middle + 1
    left = search.after(ranked.removed(low))
    if give_back:
        left = _give_back(search, left, ranked)
    return {name: ranked.keep(name, size).to(scores[name].device) for name, size in left.items()}


@dataclass(frozen=True)
class _Search:
    shape: Shape
    cost: Cost
    budget: float
    full: Mapping[str, int]
    multiple: int

    def after(self, removed: Mapping[str, int]) -> dict[str, int]:
        """The sizes once so many elements are gone: rounded, and none below the least."""
        return {name: self.rounded(name, max(1, size - removed[name])) for name, size in self.full.items()}

    def rounded(self, name: str, size: int) -> int:
        step = self.step(name)
        return min(self.full[name], -(-size // step) * step)

    def step(self, name: str) -> int:
        return 1 if name.startswith("a") else self.multiple

    def cost_of(self, left: Mapping[str, int]) -> float:
        return self.cost(with_sizes(self.shape, left))

    def fits(self, left: Mapping[str, int]) -> bool:
        return self.cost_of(left) <= self.budget


@dataclass(frozen=True)
class _Ranked:
    """scores: by dimension; orders: each dimension's elements from lowest to highest; owner: (all elements,), of which
    dimension the lowest of all is, and so on.
    """

    scores: Mapping[str, Tensor]
    orders: Mapping[str, Tensor]
    owner: np.ndarray

    def removed(self, count: int) -> dict[str, int]:
        """How many elements of each dimension are among the `count` lowest."""
        counts = np.bincount(self.owner[:count], minlength=len(self.scores))
        return {name: int(n) for name, n in zip(self.scores, counts)}

    def keep(self, name: str, size: int) -> Tensor:
        """The `size` highest elements of a dimension."""
        kept = torch.zeros(len(self.scores[name]), dtype=torch.bool)
        kept[self.orders[name][len(kept) - size :]] = True
        return kept

    def next(self, name: str, size: int) -> float:
        """The highest score among the elements that are not in the `size` highest."""
        order = self.orders[name]
        return self.scores[name][order[len(order) - size - 1]].item()


def _rank(scores: Mapping[str, Tensor], shape: Shape, cost: Cost, per_cost: bool) -> _Ranked:
    lengths = sizes(shape)
    for name, score in scores.items():
        if name not in lengths or score.shape != (lengths[name],):
            raise QuothError(f"scores: {name} of {tuple(score.shape)} is no dimension of this shape")
        if not bool(torch.isfinite(score).all()):
            raise QuothError(f"scores: {name} has values that are not finite, so they cannot be ranked")
    if not scores:
        raise QuothError("scores: there is nothing to choose from")
    price = betas(cost, shape) if per_cost else {}
    found = {name: score.detach().cpu().double() / price.get(name, 1.0) for name, score in scores.items()}
    orders = {name: score.argsort(stable=True) for name, score in found.items()}
    owner = np.repeat(np.arange(len(found)), [len(score) for score in found.values()])
    lowest_first = torch.cat(list(found.values())).argsort(stable=True).numpy()
    return _Ranked(found, orders, owner[lowest_first])


def _give_back(search: _Search, left: dict[str, int], ranked: _Ranked) -> dict[str, int]:
    """Let elements come back while they fit. What does not fit once never will: the cost only grows on the way."""
    left = dict(left)
    waiting = [(-ranked.next(name, size), name) for name, size in left.items() if size < search.full[name]]
    heapq.heapify(waiting)
    while waiting:
        _, name = heapq.heappop(waiting)
        more = {**left, name: search.rounded(name, left[name] + 1)}
        if not search.fits(more):
            continue
        left = more
        if left[name] < search.full[name]:
            heapq.heappush(waiting, (-ranked.next(name, left[name]), name))
    return left

"""What each layer counts in a head that mixes layers, for metrics.json and `quoth analyse`.

- `pool(learned)`: softmax(w), without γ; of several pools in one line `pool`, `pool-2`, …
- `attend(…)`: the mean weight over all tokens of the evaluation's windows, `start` and `end` apart; of classes over
  their first tokens, `class 0`, `class 1`, …

A list has a number for each layer from 0, the embeddings, 0 for those that the head does not read, and one more for the
pooler's output where the head reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from quoth.heads.layer_attention import Queries
from quoth.heads.pooling import Pool


class LayerWeights:
    """Inside `with`, adds up what the named heads give to each layer, batch by batch; nothing else is kept."""

    def __init__(self, heads: Mapping[str, Any], layers: int) -> None:
        """layers: how many the encoder has, the embeddings not counted."""
        self._heads = heads
        self._layers = layers
        self._sums: dict[str, tuple[Tensor, int]] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> LayerWeights:
        for name, head in self._heads.items():
            for module in head.modules():
                if isinstance(module, Queries):
                    self._hooks.append(module.register_forward_hook(partial(self._add, name)))
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _add(self, name: str, module: Any, args: tuple[Any, ...], _: Any) -> None:
        weights = module.weights(args[0]).detach().double()  # (L, T, queries), or (L, 1, queries) if all are the same
        total, tokens = self._sums.get(name, (0.0, 0))
        self._sums[name] = total + weights.sum(1), tokens + weights.shape[1]

    def of(self, name: str) -> dict[str, list[float]]:
        """By name, a number for each layer; nothing for a head that does not mix layers."""
        head = self._heads[name]
        pools = [module for module in head.modules() if isinstance(module, Pool) and module.weight is not None]
        found = {"pool" if i == 1 else f"pool-{i}": pool.shares().tolist() for i, pool in enumerate(pools, 1)}
        if name in self._sums:
            total, tokens = self._sums[name]
            queries = (total / tokens).T.tolist()
            names = ("start", "end") if head.task == "span" else [f"class {i}" for i in range(len(queries))]
            found |= dict(zip(names, queries))
        return {key: self._by_layer(head, values) for key, values in found.items()}

    def _by_layer(self, head: Any, values: list[float]) -> list[float]:
        """Weights in the order in which the head reads its layers, put where those layers are."""
        count = len(values) - head.pooled
        placed = [0.0] * (self._layers + 1)
        for layer, value in zip(head.reads[:count], values):
            placed[layer] = value
        return placed + values[count:]

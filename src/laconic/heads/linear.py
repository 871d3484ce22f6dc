"""Linear heads: the ones that BERT and its family were published with.

Spans (Devlin et al. 2019, §4.2):   sₖ = S·hₖ + b_s,  eₖ = E·hₖ + b_e  for each token k of the last layer
Classes (the same, §4.1):           C·pool(h_CLS) + b, where pool is a dense layer and an activation
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": F.relu, "gelu": F.gelu}


class SpanHead(nn.Module):
    """Start and end logits of every token from the last layer: 2·(h + 1) parameters."""

    kind = "span"
    reads = (-1,)

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, 2)

    def forward(self, states: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """One state of (T, h) → start logits (T,), end logits (T,)."""
        start, end = self.linear(states[-1]).unbind(-1)
        return start, end

    def to_json(self) -> dict[str, Any]:
        """What a model folder says of this head; see `build_head`."""
        return {"kind": self.kind}


class ClassHead(nn.Module):
    """Class logits of each window from its first token.

    With an `activation` the head has a dense layer (h → h) of its own, as in RoBERTa, DistilBERT and ELECTRA;
    without, it expects states that the encoder's pooler has been applied to, as in BERT and ALBERT.
    """

    kind = "class"
    reads = (-1,)

    def __init__(self, hidden: int, labels: int, activation: str | None = None) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, hidden) if activation else None
        self.linear = nn.Linear(hidden, labels)
        self.activation = activation

    def forward(self, first: Tensor) -> Tensor:
        """The state of each window's first token, (n, h) → (n, labels)."""
        if self.dense is not None and self.activation is not None:
            first = ACTIVATIONS[self.activation](self.dense(first))
        return self.linear(first)  # type: ignore[no-any-return]

    def to_json(self) -> dict[str, Any]:
        """What a model folder says of this head; see `build_head`."""
        return {"kind": self.kind, "labels": self.linear.out_features, "activation": self.activation}


def build_head(value: dict[str, Any], hidden: int) -> SpanHead | ClassHead:
    """The head that `to_json` described, with fresh weights."""
    if value["kind"] == "span":
        return SpanHead(hidden)
    return ClassHead(hidden, value["labels"], value["activation"])

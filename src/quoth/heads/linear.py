"""Linear heads: the ones that BERT and its family were published with.

Spans (Devlin et al. 2019, §4.2):   sₖ = S·hₖ + b_s,  eₖ = E·hₖ + b_e  for each token k of the last layer
Classes (the same, §4.1):           C·pool(h_CLS) + b, where pool is a dense layer and an activation, or nothing
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from quoth.encoder.axes import FREE, HIDDEN, Axes
from quoth.encoder.graph import Graph
from quoth.encoder.steps import activate, initialise
from quoth.errors import QuothError
from quoth.heads.head import SpanOutput, States, Task, register_head
from quoth.windows import Packed

ACTIVATIONS = ("tanh", "relu", "gelu")


@register_head
class SpanHead(nn.Module):
    """Start and end logits of every token from the last layer: 2·(h + 1) parameters."""

    kind: ClassVar[str] = "span"
    task: Task = "span"
    axes: ClassVar[Axes] = {"linear.weight": (FREE, HIDDEN)}
    transformers_class = "ForQuestionAnswering"
    reads: tuple[int, ...] = (-1,)
    pooled = False

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, 2)
        self.apply(initialise)

    def forward(self, states: States, packed: Packed[Tensor] | None = None) -> SpanOutput:
        """One state of (T, h) → start logits (T,), end logits (T,)."""
        return SpanOutput(*self.linear(states[-1]).unbind(-1))

    def to_json(self) -> dict[str, Any]:
        """What a model folder says of this head; see `build_head`."""
        return {"kind": "span"}

    def to_onnx(self, g: Graph, states: Sequence[str], size: str) -> str:
        """One state of (T, h) → (T, 2)."""
        return g.dense(states[-1], self.linear)


@register_head
class ClassHead(nn.Module):
    """Class logits of each window from its first token.

    With an `activation` the head has a dense layer (h → h) of its own, as in RoBERTa, DistilBERT and ELECTRA.
    With `pooled` it reads what the encoder's pooler made of the first token, as in BERT and ALBERT. With neither it
    is C·h_CLS + b.
    """

    kind: ClassVar[str] = "class"
    task: Task = "class"
    axes: ClassVar[Axes] = {"linear.weight": (FREE, HIDDEN), "dense.weight": (HIDDEN, HIDDEN), "dense.bias": (HIDDEN,)}
    transformers_class = "ForSequenceClassification"
    reads: tuple[int, ...] = (-1,)

    def __init__(self, hidden: int, labels: int, activation: str | None = None, *, pooled: bool = False) -> None:
        super().__init__()
        if activation is not None and activation not in ACTIVATIONS:
            raise QuothError(f"head: activation {activation!r} is unknown; one of {', '.join(ACTIVATIONS)} is wanted")
        self.dense = nn.Linear(hidden, hidden) if activation else None
        self.linear = nn.Linear(hidden, labels)
        self.activation = activation
        self.pooled = pooled
        self.apply(initialise)

    def forward(self, first: Sequence[Tensor]) -> Tensor:
        """The state of each window's first token (or the pooler's output), last of (n, h) → (n, labels)."""
        x = first[-1]
        if self.dense is not None and self.activation is not None:
            x = activate(self.dense(x), self.activation)
        return self.linear(x)  # type: ignore[no-any-return]

    def to_json(self) -> dict[str, Any]:
        """What a model folder says of this head; see `build_head`."""
        labels = self.linear.out_features
        return {"kind": "class", "labels": labels, "activation": self.activation, "pooled": self.pooled}

    def to_onnx(self, g: Graph, states: Sequence[str], size: str) -> str:
        """First tokens, or the pooler's output, last of (B, h) → (B, labels)."""
        x = states[-1]
        if self.dense is not None and self.activation is not None:
            x = g.activate(g.dense(x, self.dense), self.activation)
        return g.dense(x, self.linear)

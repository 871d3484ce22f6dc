"""What every head is: a protocol, no base class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Protocol

from torch import nn

Task = Literal["span", "class", "mlm"]


class Head(Protocol):
    """From layer states to logits. A head is an `nn.Module` with these names.

    task "span":  forward(states, packed) → start logits (T,), end logits (T,); states are (T, h), one for each
                  layer in `reads`: a sequence, or one tensor of (layers, T, h)
    task "class": forward(first) → (n, labels); `first` are (n, h), the states of each window's first token, one for
                  each layer in `reads`, and after them the output of the pooler if `pooled`
    task "mlm":   forward(states, packed, table, pooled) → (m, vocab), (n, 2) or None; states as for spans, the table of
                  the words (vocab, e), and the output of the pooler (n, h) if `pooled`
    reads:        the layers wanted: 0 is the embeddings, −1 the last layer
    """

    task: Task
    reads: tuple[int, ...]
    pooled: bool

    def to_json(self) -> dict[str, Any]:
        """What a model folder says of this head; `build_head` makes it again."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """As every `nn.Module`."""

    def __call__(self, *args: Any) -> Any:
        """As every `nn.Module`."""

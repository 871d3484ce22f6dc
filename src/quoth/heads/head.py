"""What every head is: protocols, no base class. And the kinds that are known, by name.

A new head is one file: a class with `kind`, `task`, `reads`, `pooled`, `to_json` and `forward`, under `@register_head`.
What it declares besides is optional:

    axes                which axes of its parameters run over the hidden size, so that pruning can cut it
    to_onnx             its ONNX graph: (g, states, size) → the name of the logits, (T, 2) or (B, labels)
    transformers_class  the end of the name of transformers' class with this head, such as "ForQuestionAnswering"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from torch import Tensor, nn

Task = Literal["span", "class", "mlm"]
States: TypeAlias = "Sequence[Tensor] | Tensor"
"""(T, h) for each layer that a head reads: a sequence, or one tensor of (layers, T, h)."""


class SpanOutput(NamedTuple):
    """Logits of every token. start, end: (T,)."""

    start: Tensor
    end: Tensor


class PretrainingOutput(NamedTuple):
    """Logits of masked tokens, words: (m, vocab), and of whether B follows A, nsp: (n, 2), if the head has that."""

    words: Tensor
    nsp: Tensor | None


Output: TypeAlias = SpanOutput | Tensor | PretrainingOutput


class Head(Protocol):
    """From layer states to logits. A head is an `nn.Module` with these names.

    kind: its name in recipes and model folders; task: which of the three ways to be called it has
    reads: the layers wanted, 0 being the embeddings and −1 the last layer; pooled: whether it reads the pooler
    """

    kind: ClassVar[str]
    task: Task
    reads: tuple[int, ...]
    pooled: bool

    def to_json(self) -> dict[str, Any]:
        """What a model folder says of this head; `build_head` makes it again."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """As every `nn.Module`."""

    def __call__(self, *inputs: Any) -> Output:
        """By task:

        span   `States` of all tokens, a `Packed` batch → start logits (T,), end logits (T,)
        class  a list: (n, h) of first tokens for each layer, then the pooler's output if `pooled` → (n, labels)
        mlm    `States` of all tokens, a `Packed` batch, the word embeddings (vocab, e), the pooler's output (n, h) or
               None → (m, vocab), (n, 2)
        """


KINDS: dict[str, Callable[..., Head]] = {}
Made = TypeVar("Made", bound=type)


def register_head(cls: Made) -> Made:
    """Make a head known by its `kind`, for recipes and model folders. A decorator.

    Its `__init__` takes `hidden`, then `layers` if it wants to know how many the encoder has, then its settings, each
    with a type: these are the keys of its table.
    """
    KINDS[cls.kind] = cls  # type: ignore[attr-defined]
    return cls

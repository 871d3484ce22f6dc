"""What the steps of a chain hand on, what they know of one another, and `register_step`.

A new step is one file: a class made from the `Form` of its input and the arguments of its word, with `form` (that of
its output), `forward(x, here)` and, to be exported, `to_onnx(g, x, here)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quoth.encoder.steps import have_kernels
from quoth.errors import QuothError
from quoth.heads.head import Task
from quoth.heads.line import WORDS, Argument
from quoth.windows import Packed

SIGMA = 1e-3  # of the weights that BERTVision draws


@dataclass(frozen=True)
class Form:
    """The form of what flows between two steps of a chain, for T tokens (or n first tokens, for classes).

    layers: None for one tensor of (T, width), else (layers, T, width)
    hidden: the width of the encoder's states; outputs: how many logits a token has at the end
    """

    task: Task
    hidden: int
    outputs: int
    layers: int | None
    width: int

    @property
    def flat(self) -> int:
        """The width when all layers are concatenated."""
        return (self.layers or 1) * self.width


@dataclass(frozen=True)
class Here:
    """What a step may look at beside its input: the last state, (T, hidden), and for spans where windows end.

    given: what the step's `Reading` asked for, where it was computed for several heads at once
    """

    last: Tensor
    packed: Packed[Tensor] | None
    given: Mapping[Any, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """What a step computes of the states x, (L, T, f), first; `quoth.heads.shared` does it for many heads at once.

    mix       weight: (L,)        Σₗ weightₗ·xₗ, (T, f)
    products  weight: (n, f)      each state by the same weight, (L, T, n)
    each      weight: (L, n, f)   each state by its own, (L, T, n)
    patches   weight: (n, L·16)   filters over 16 features at a time, every `dilation`-th of them
    """

    kind: Literal["mix", "products", "each", "patches"]
    weight: Tensor
    dilation: int = 1


@dataclass(frozen=True)
class Compressed:
    """gelu(products + bias), not yet computed: `linear` may finish it in a cheaper way than by `now()`.

    products: (layers, T, size up to 16), or (T, size up to 16), 0 beyond the size; bias: (1 or layers, size)
    """

    products: Tensor
    bias: Tensor

    @property
    def features(self) -> int:
        """Of a token, all layers together."""
        return (len(self.products) if self.products.ndim == 3 else 1) * self.bias.shape[-1]

    def now(self) -> Tensor:
        """(layers, T, size) or (T, size)."""
        if self.products.ndim == 2 and fusable(self.products):
            from quoth.encoder.kernels.gelu import bias_gelu  # Triton is optional

            extra = self.products.shape[1] - self.bias.shape[1]
            return bias_gelu(self.products, F.pad(self.bias[0], (0, extra)), True)[:, : self.bias.shape[1]]
        bias = self.bias.unsqueeze(1) if self.products.ndim == 3 else self.bias
        return F.gelu(self.products[..., : bias.shape[-1]] + bias.to(self.products.dtype), approximate="tanh")

    def linear(self, weight: Tensor) -> Tensor:
        """A dense layer to two logits, in one pass over the products. weight: (2, features) → (T, 2)."""
        from quoth.heads.kernels.gelu_linear import gelu_linear  # Triton is optional

        products = self.products if self.products.ndim == 3 else self.products.unsqueeze(0)
        bias, to_logits = self.bias, weight.unflatten(1, (len(products), -1))
        if extra := products.shape[-1] - bias.shape[-1]:
            bias, to_logits = F.pad(bias, (0, extra)), F.pad(to_logits, (0, extra))
        return gelu_linear(products, bias, to_logits)


Piece: TypeAlias = Tensor | Compressed
Value: TypeAlias = Piece | tuple[Piece, ...]  # a tuple: pieces, to be concatenated


class Step(Protocol):
    """One step of a chain: an `nn.Module` made from the form of its input, which knows the form of its output."""

    form: Form

    def __call__(self, x: Tensor, here: Here) -> Value:
        """From the input's form to the output's."""


STEPS: dict[str, Callable[..., Step]] = {}


def register_step(word: str, arguments: Mapping[str, Argument], make: Callable[..., Step]) -> None:
    """Make a word of the line known: its arguments, and what makes the step of a `Form` and their values."""
    WORDS[word] = arguments
    STEPS[word] = make


def need_layers(word: str, form: Form) -> int:
    """How many layers there are to join, or the error that there are none."""
    if form.layers is None:
        raise QuothError(f"head: {word} joins several layers, but what comes to it is one state only")
    return form.layers


def stack(states: Sequence[Tensor]) -> Tensor:
    """Each (T, h) → one (layers, T, h), in memory token by token, so that a token's layers lie side by side."""
    return torch.stack(list(states), 1).transpose(0, 1)


def side_by_side(*parts: Tensor) -> Tensor:
    """Each (layers, T, f) or (T, f) → one (T, all layers and features of all of them)."""
    flat = [part.transpose(0, 1).flatten(1) if part.ndim == 3 else part for part in parts]
    return torch.cat(flat, 1) if len(flat) > 1 else flat[0]


def pieces(x: Value) -> tuple[Piece, ...]:
    """The parts whose concatenation is x."""
    return x if isinstance(x, tuple) else (x,)


def now(x: Value) -> Tensor:
    """x, computed."""
    if isinstance(x, tuple):
        return side_by_side(*map(now, x))
    return x if isinstance(x, Tensor) else x.now()


def by_layer(x: Tensor, weight: Tensor) -> Tensor:
    """Each state by the same weight, with no copy of the states. x: (L, T, f), weight: (k, f) → (L, T, k)."""
    tokens = x.transpose(0, 1)
    if tokens.is_contiguous():
        products: Tensor = F.linear(tokens.flatten(0, 1), weight).unflatten(0, tokens.shape[:2])
        return products.transpose(0, 1)
    return torch.bmm(x, weight.T.expand(len(x), -1, -1))


def up_to_16(size: int) -> int:
    """The next multiple of 16: rows of 32 bytes, which Triton's kernels read in the widest loads."""
    return -(-size // 16) * 16


def fusable(x: Tensor) -> bool:
    """Whether the kernels for heads can run on x: in half precision on CUDA, its features side by side in memory."""
    return x.element_size() == 2 and have_kernels(x) and x.stride(-1) == 1


def draw(weight: Tensor) -> nn.Parameter:
    """A weight drawn as BERTVision does: normal with σ = 1e-3, cut at 2σ."""
    return nn.Parameter(nn.init.trunc_normal_(weight, std=SIGMA, a=-2 * SIGMA, b=2 * SIGMA))

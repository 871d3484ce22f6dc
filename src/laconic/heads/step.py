"""What the steps of a chain hand on, and what they know of one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from laconic.errors import LaconicError
from laconic.heads.head import Task
from laconic.text.packed import Packed

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
        """The width when all layers are laid side by side."""
        return (self.layers or 1) * self.width


@dataclass(frozen=True)
class Here:
    """What a step may look at beside its input: the last state, (T, hidden), and for spans where windows end."""

    last: Tensor
    packed: Packed[Tensor] | None


class Step(Protocol):
    """One step of a chain: an `nn.Module` made from the form of its input, which knows the form of its output."""

    form: Form

    def __call__(self, x: Tensor, here: Here) -> Tensor:
        """From the input's form to the output's."""


def need_layers(word: str, form: Form) -> int:
    """How many layers there are to join, or the error that there are none."""
    if form.layers is None:
        raise LaconicError(f"head: {word} joins several layers, but what comes to it is one state only")
    return form.layers


def side_by_side(*parts: Tensor) -> Tensor:
    """Each (layers, T, f) or (T, f) → one (T, all layers and features of all of them)."""
    flat = [layer for part in parts for layer in (part.unbind(0) if part.ndim == 3 else (part,))]
    return torch.cat(flat, 1) if len(flat) > 1 else flat[0]


def draw(weight: Tensor) -> nn.Parameter:
    """A weight drawn as BERTVision does: normal with σ = 1e-3, cut at 2σ."""
    return nn.Parameter(nn.init.trunc_normal_(weight, std=SIGMA, a=-2 * SIGMA, b=2 * SIGMA))

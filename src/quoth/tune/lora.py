"""LoRA: low-rank updates beside frozen matrices (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models").

    W·x + b + (α/r)·B·A·dropout(x)        A: (r, in), B: (out, r)

A is drawn as peft and the authors' code draw it (uniform within ±1/√in), B is 0, so nothing changes at first. `merge`
folds B·A into W: then the model is a plain one again and costs no more than its base.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from quoth.encoder import Encoder
from quoth.encoder.shape import check_whole
from quoth.errors import QuothError
from quoth.tune.tuning import WIDEST, Tuning, check_one_of, register_tuning

TARGETS = ("query", "key", "value", "output", "up", "down")


class LoRALinear(nn.Linear):
    """W·x + b + (α/r)·B·A·dropout(x). It takes over weight and bias of the layer that it replaces."""

    inserted: ClassVar[str] = "LoRA"

    def __init__(self, linear: nn.Linear, rank: int, alpha: float, dropout: float) -> None:
        nn.Module.__init__(self)  # not Linear's: weight and bias are there already
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.scale = alpha / rank
        self.dropout = dropout
        self.lora_a = nn.Parameter(self.weight.new_empty(rank, self.in_features))
        self.lora_b = nn.Parameter(self.weight.new_zeros(self.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))
        self.train(linear.training)

    def forward(self, x: Tensor) -> Tensor:
        """x: (T, in) → (T, out)."""
        low = F.linear(F.dropout(x, self.dropout, self.training), self.lora_a)
        return F.linear(x, self.weight, self.bias) + self.scale * F.linear(low, self.lora_b)

    def plain(self) -> nn.Linear:
        """A plain layer with the update folded into a new weight."""
        linear = nn.Linear(self.in_features, self.out_features, device="meta")
        update = self.scale * (self.lora_b.detach().double() @ self.lora_a.detach().double())
        weight = (self.weight.detach().double() + update).to(self.weight.dtype)
        linear.weight, linear.bias = nn.Parameter(weight, requires_grad=self.weight.requires_grad), self.bias
        return linear.train(self.training)


@register_tuning
@dataclass(frozen=True)
class LoRA(Tuning):
    """Rank-`rank` updates of the `targets` in every layer; A, B and the head are trained, nothing else."""

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...] = ("query", "value")
    kind: ClassVar[str] = "lora"

    def __post_init__(self) -> None:
        check_whole("tuning: rank", self.rank, 1, WIDEST)
        if not _is_number(self.alpha) or not 0 < self.alpha < math.inf:
            raise QuothError(f"tuning: alpha is {self.alpha!r}; it must be a positive number")
        if not _is_number(self.dropout) or not 0 <= self.dropout < 1:
            raise QuothError(f"tuning: dropout is {self.dropout!r}; it must be a number from 0 to below 1")
        if not self.targets:
            raise QuothError(f"tuning: targets is empty; a list of {', '.join(TARGETS)} is wanted")
        for target in self.targets:
            check_one_of("a target", target, TARGETS)
        # in one order and once each, so that equal tunings compare as equal
        object.__setattr__(self, "targets", tuple(name for name in TARGETS if name in self.targets))

    def install(self, encoder: Encoder) -> None:
        """Wrap the targets."""
        for layer in encoder.layers:
            for name in self.targets:
                owner: Any = layer if name in ("up", "down") else layer.attention
                setattr(owner, name, LoRALinear(getattr(owner, name), self.rank, self.alpha, self.dropout))

    def trainable(self, encoder: Encoder) -> set[str]:
        """All A and B."""
        return {name for name, _ in encoder.named_parameters() if name.endswith((".lora_a", ".lora_b"))}

    def to_json(self) -> dict[str, Any]:
        """For `build_tuning`."""
        return {**super().to_json(), "targets": list(self.targets)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

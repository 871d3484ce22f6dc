"""How gates are made sparse: three ways, each over the same α (schuBERT / optBERT, ACL 2020, tries all of them).

l1        L + γ Σ β·|α|, by its gradient
proximal  after each step of L alone, α ← sign(α)·max(|α| − γ·β·learning_rate, 0). What is 0 stays 0: both sides of
          a product are gated, so its gradient is 0 too
l0        L + γ Σ β·P(α ≠ 0), α drawn at every step from the hard concrete distribution (Louizos et al., ICLR 2018):

    u ~ U(0, 1)    s = σ((log u − log(1 − u) + log a) / τ)    α = min(1, max(0, s·(ζ − ξ) + ξ))
    P(α ≠ 0) = σ(log a − τ·log(−ξ/ζ))                          ξ = −0.1, ζ = 1.1, τ = 2/3

    log a is trained. At the end α = min(1, max(0, σ(log a)·(ζ − ξ) + ξ)); elements are ranked by σ(log a), which
    also orders those at 0 and at 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from quoth.encoder import Shape
from quoth.encoder.axes import Alpha
from quoth.prune.gates import Gates

LOW, HIGH, TEMPERATURE = -0.1, 1.1, 2 / 3  # ξ, ζ, τ
FIRST = 2.5  # log a at the beginning: α without noise is 1, and of the drawn ones 1.6 % are 0

PenaltyName = Literal["l1", "l0", "proximal"]


class L1(nn.Module):
    """γ Σ β·|α|."""

    def __init__(self, shape: Shape, kinds: str | Iterable[str], gamma: float, beta: Mapping[str, float]) -> None:
        super().__init__()
        self._gates = Gates(shape, kinds)
        self._price = {name: gamma * beta[name] for name in self._gates.alpha}

    def alpha(self) -> Alpha:
        """α itself."""
        return dict(self._gates.alpha.items())

    def loss(self) -> Tensor:
        """The penalty."""
        return torch.stack([self._price[name] * value.abs().sum() for name, value in self._gates.alpha.items()]).sum()

    def settle(self, learning_rate: float | Tensor) -> None:
        """Nothing."""

    def gates(self) -> Gates:
        """α itself."""
        return self._gates

    def scores(self) -> dict[str, Tensor]:
        """|α|."""
        return self._gates.scores()


class Proximal(L1):
    """A soft threshold of γ·β·learning_rate after each step, in place of a term in the loss."""

    def loss(self) -> Tensor:
        """Nothing."""
        return next(self.parameters()).new_zeros(())

    @torch.no_grad()
    def settle(self, learning_rate: float | Tensor) -> None:
        """Bring every α nearer to 0, and to 0 if it is near."""
        for name, value in self._gates.alpha.items():
            value.copy_(value.sign() * (value.abs() - self._price[name] * learning_rate).clamp(min=0))


class L0(nn.Module):
    """Hard concrete gates, and γ Σ β·P(α ≠ 0)."""

    def __init__(self, shape: Shape, kinds: str | Iterable[str], gamma: float, beta: Mapping[str, float]) -> None:
        super().__init__()
        made = Gates(shape, kinds)
        self._shape, self._kinds = shape, made.kinds
        self._price = {name: gamma * beta[name] for name in made.alpha}
        self.log_a = nn.ParameterDict(
            {name: nn.Parameter(torch.full_like(value, FIRST)) for name, value in made.alpha.items()}
        )

    def alpha(self) -> Alpha:
        """Drawn from torch's generator."""
        return {name: self._draw(value) for name, value in self.log_a.items()}

    def _draw(self, log_a: Tensor) -> Tensor:
        u = torch.rand_like(log_a).clamp(1e-6, 1 - 1e-6)
        return _hard_sigmoid(torch.sigmoid((u.log() - (1 - u).log() + log_a) / TEMPERATURE))

    def loss(self) -> Tensor:
        """The penalty."""
        shift = TEMPERATURE * math.log(-LOW / HIGH)
        parts = [self._price[name] * torch.sigmoid(value - shift).sum() for name, value in self.log_a.items()]
        return torch.stack(parts).sum()

    def settle(self, learning_rate: float | Tensor) -> None:
        """Nothing."""

    @torch.no_grad()
    def gates(self) -> Gates:
        """Those without noise."""
        made = Gates(self._shape, self._kinds)
        for name, value in self.log_a.items():
            made.alpha[name].copy_(_hard_sigmoid(torch.sigmoid(value)))
        return made.to(next(self.parameters()).device)

    def scores(self) -> dict[str, Tensor]:
        """σ(log a)."""
        return {name: torch.sigmoid(value.detach()) for name, value in self.log_a.items()}


def _hard_sigmoid(s: Tensor) -> Tensor:
    return (s * (HIGH - LOW) + LOW).clamp(0, 1)


PENALTIES: dict[str, type[L1] | type[L0]] = {"l1": L1, "l0": L0, "proximal": Proximal}


def make_penalty(
    name: PenaltyName, shape: Shape, kinds: str | Iterable[str], gamma: float, beta: Mapping[str, float]
) -> L1 | L0:
    """New gates, all open, trained with this penalty. beta: as `betas` gives it, for these kinds."""
    return PENALTIES[name](shape, kinds, gamma, beta)

"""Adapters: small bottlenecks in every layer (Houlsby et al. 2019, "Parameter-Efficient Transfer Learning for NLP").

    adapter(x) = x + W₂·gelu(W₁·x + b₁) + b₂        W₁: (d, h), W₂: (h, d)

    attention → P → dropout → adapter → + residual → LayerNorm
    D → activation → G → dropout → adapter → + residual → LayerNorm

Two in each layer. Both W are drawn from a normal with σ = 10⁻³ cut at 2σ, both b are 0, so an adapter begins close to
the identity. gelu is the exact one, with erf, as in BERT. Beside the adapters, every LayerNorm and the head are
trained, and as many of the last layers as asked: the paper's L0-A64 is Adapters(64), its L12-A64 is
Adapters(64, layers="full").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quoth.encoder import Encoder
from quoth.encoder.graph import Graph
from quoth.encoder.shape import check_whole
from quoth.encoder.steps import half_on_cuda, have_kernels
from quoth.errors import QuothError
from quoth.tune.freeze import Freeze, Full
from quoth.tune.tuning import WIDEST, Norms, Tuning, check_one_of, register_tuning

SIGMA = 1e-3
PLACES = ("attention_adapter", "ffn_adapter")


class _Dropped(torch.autograd.Function):
    """x = dropout(product + bias) and W₂·gelu(W₁·x + b₁), on CUDA in half precision.

    The backward pass brings both gradients of x through the dropout in one pass over memory.
    """

    @staticmethod
    def forward(
        ctx: Any, product: Tensor, bias: Tensor | None, w1: Tensor, b1: Tensor, w2: Tensor, seed: Tensor, p: float
    ) -> tuple[Tensor, Tensor]:
        from quoth.encoder.kernels.dropout import drop  # Triton is optional

        x = drop(product, bias, seed, p)
        low = F.linear(x, w1, b1)
        active = F.gelu(low)
        ctx.save_for_backward(x, w1, w2, low, active, seed)
        ctx.p, ctx.bias = p, None if bias is None else bias.dtype
        return x, F.linear(active, w2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from quoth.encoder.kernels.dropout import drop  # Triton is optional

        x, w1, w2, low, active, seed = ctx.saved_tensors
        dx, dy = grads
        dlow = torch.ops.aten.gelu_backward(dy @ w2, low)
        dproduct = drop(dlow @ w1, None, seed, ctx.p, dx)
        dbias = dproduct.sum(0, dtype=torch.float32).to(ctx.bias) if ctx.needs_input_grad[1] else None
        return dproduct, dbias, dlow.t() @ x, dlow.sum(0), dy.t() @ active, None, None


class Adapter(nn.Module):
    """x + W₂·gelu(W₁·x + b₁) + b₂: 2·h·d + h + d parameters."""

    inserted: ClassVar[str] = "adapters"

    def __init__(self, hidden: int, size: int, **where: Any) -> None:
        super().__init__()
        self.down = nn.Linear(hidden, size, **where)
        self.up = nn.Linear(size, hidden, **where)
        for linear in (self.down, self.up):
            nn.init.trunc_normal_(linear.weight, std=SIGMA, a=-2 * SIGMA, b=2 * SIGMA)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: (…, h) → (…, h)."""
        return x + self.up(F.gelu(self.down(x)))  # type: ignore[no-any-return]

    def to_onnx(self, g: Graph, x: str) -> str:
        """x: (B, L, h) → (B, L, h)."""
        return g("Add", x, g.dense(g.activate(g.dense(x, self.down), "gelu"), self.up))

    def apart(self, product: Tensor, bias: Tensor | None, p: float) -> tuple[Tensor, Tensor, Tensor]:
        """X = dropout(product + bias), (T, h); W₂·gelu(W₁·x + b₁), (T, h); b₂: the sum that follows adds the three."""
        weights = [weight.to(product.dtype) for weight in (self.down.weight, self.down.bias, self.up.weight)]
        if p > 0 and half_on_cuda(product) and have_kernels(product):
            from quoth.encoder.kernels.dropout import seed_for  # Triton is optional

            return *_Dropped.apply(product, bias, *weights, seed_for(product, p), p), self.up.bias
        x = F.dropout(product if bias is None else product + bias, p)
        return x, F.linear(F.gelu(F.linear(x, *weights[:2])), weights[2]), self.up.bias


@register_tuning
@dataclass(frozen=True)
class Adapters(Tuning):
    """Adapters of `size` units, and beside them what `Freeze(layers, norms)` or, with "full", `Full` trains.

    On tied layers (ALBERT) the two adapters are shared like the rest.
    """

    size: int
    layers: Any = 0  # a whole number, or "full"
    norms: Norms = "all"
    kind: ClassVar[str] = "adapters"

    def __post_init__(self) -> None:
        check_whole("tuning: size", self.size, 1, WIDEST)
        if isinstance(self.layers, str) and self.layers != "full":
            raise QuothError(f'tuning: layers is {self.layers!r}; a whole number or "full" is wanted')
        if self.layers != "full":
            check_whole("tuning: layers", self.layers, 0)
        check_one_of("norms", self.norms, ("all", "above"))

    @property
    def trains_pooler(self) -> bool:
        """With "full"."""
        return self._beside().trains_pooler

    def install(self, encoder: Encoder) -> None:
        """Two adapters in each layer."""
        self._beside().install(encoder)
        layer: Any
        for layer in encoder.layers:
            weight = layer.up.weight
            for place in PLACES:
                adapter = Adapter(encoder.shape.hidden, self.size, device=weight.device, dtype=weight.dtype)
                setattr(layer, place, adapter.train(layer.training))

    def trainable(self, encoder: Encoder) -> set[str]:
        """The adapters, and what is trained beside them."""
        inside = tuple(f".{place}." for place in PLACES)
        adapters = {name for name, _ in encoder.named_parameters() if any(part in name for part in inside)}
        return adapters | self._beside().trainable(encoder)

    def _beside(self) -> Freeze | Full:
        return Full() if self.layers == "full" else Freeze(self.layers, self.norms)

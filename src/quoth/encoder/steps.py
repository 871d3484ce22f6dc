"""The steps of a layer that follow a matrix product: activation, dropout, residual sum, LayerNorm.

Written in plain torch; on CUDA in half precision the fused kernels of `quoth.encoder.kernels` take over,
with the same result.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS = ("gelu", "gelu_tanh", "relu")  # of an encoder
_TRITON = find_spec("triton") is not None


def linear_activate(linear: nn.Linear, x: Tensor, activation: str) -> Tensor:
    """activation(W·x + b). x: (T, h) → (T, f), or on a GPU (T, f up to 8) with zeros at the end of each row.

    All our activations keep 0 at 0, so `linear_add_norm` may take the wider rows as they are.
    """
    if not fusable(linear):
        return activate(linear(x), activation)
    extra = up_to_8(linear.out_features) - linear.out_features
    product = F.linear(x, F.pad(linear.weight, (0, 0, 0, extra)) if extra else linear.weight)
    bias = F.pad(linear.bias, (0, extra)) if extra else linear.bias
    if half_on_cuda(product) and activation != "relu":
        from quoth.encoder.kernels.gelu import bias_gelu  # Triton is optional

        return bias_gelu(product, bias, activation == "gelu_tanh")
    return activate(product + bias, activation)


def linear_add_norm(
    linear: nn.Linear, x: Tensor, residual: Tensor, norm: nn.LayerNorm, p: float, adapter: Inserted | None = None
) -> Tensor:
    """LayerNorm(residual + dropout(W·x + b)): the end of each half of a layer. x: (T, n), residual: (T, h) → (T, h).

    p is the dropout probability, 0 outside training. An adapter comes after the dropout and before the sum
    (Houlsby et al. 2019, figure 2).
    """
    if adapter is not None:
        x = x[:, : linear.in_features]
        product = F.linear(x, linear.weight) if fusable(linear) else linear(x)
        dropped, added, offset = adapter.apart(product, linear.bias if fusable(linear) else None, p)
        if added is None:
            return _add_norm(dropped, offset, residual, norm, 0.0)
        return _add_norm(added, offset, residual, norm, 0.0, dropped)
    if not fusable(linear):
        return _add_norm(linear(x[:, : linear.in_features]), None, residual, norm, p)
    extra = x.shape[1] - linear.in_features
    product = F.linear(x, F.pad(linear.weight, (0, extra)) if extra else linear.weight)
    return _add_norm(product, linear.bias, residual, norm, p)


class Inserted(Protocol):
    """What a tuning method may insert before a residual sum, such as `quoth.tune.Adapter`."""

    def apart(self, product: Tensor, bias: Tensor | None, p: float) -> tuple[Tensor, Tensor | None, Tensor]:
        """From product W·x, (T, h), and bias: dropout(product + bias); what is added to that, or None; an offset (h,).

        The sum that follows adds the three at no cost. Where the bias is None, the product has it already.
        """


def layer_norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """LayerNorm of x: (T, h) → (T, h)."""
    only_one = norm.weight.requires_grad != norm.bias.requires_grad
    if only_one and x.is_cuda and torch.is_grad_enabled():
        # torch 2.11 fails in the backward pass of a large batch where the bias alone is trained, as in BitFit.
        return F.layer_norm(x, norm.normalized_shape, None, None, norm.eps) * norm.weight + norm.bias
    return norm(x)  # type: ignore[no-any-return]


def up_to_8(size: int) -> int:
    """The next multiple of 8: rows of 16 bytes, which fast matrix products in half precision want."""
    return -(-size // 8) * 8


def initialise(module: nn.Module) -> None:
    """As BERT: weights normal with σ = 0.02, biases 0, LayerNorm 1 and 0 (torch's own)."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def fusable(linear: nn.Linear) -> bool:
    """Whether the bias may be taken out of the product: a plain layer on CUDA with kernels to hand.

    A subclass (LoRA, a quantised layer) computes something else and is always called as it is.
    """
    return type(linear) is nn.Linear and have_kernels(linear.weight)


def have_kernels(x: Tensor) -> bool:
    """Whether Triton kernels can run where x lies. Triton comes with torch for CUDA on Linux."""
    return x.is_cuda and _TRITON


def activate(x: Tensor, activation: str) -> Tensor:
    """An activation by its name: gelu, gelu_tanh, relu or tanh."""
    if activation in ("relu", "tanh"):
        return x.relu() if activation == "relu" else x.tanh()
    return F.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


def _add_norm(
    x: Tensor, bias: Tensor | None, residual: Tensor, norm: nn.LayerNorm, p: float, more: Tensor | None = None
) -> Tensor:
    """LayerNorm(residual + dropout(x + bias) + more). x, residual, more: (T, h) → (T, h)."""
    if half_on_cuda(x) and have_kernels(x) and x.dtype == residual.dtype and type(norm) is nn.LayerNorm:
        from quoth.encoder.kernels.add_norm import add_norm  # Triton is optional

        bias = torch.zeros_like(norm.bias) if bias is None else bias
        return add_norm(x, bias, residual, norm.weight, norm.bias, norm.eps, p, more)
    x = F.dropout(x if bias is None else x + bias, p)
    x = x if more is None else more + x
    return layer_norm(norm, residual + x).to(residual.dtype)


def half_on_cuda(x: Tensor) -> bool:
    """Whether x is in half precision on a GPU."""
    return x.is_cuda and x.element_size() == 2

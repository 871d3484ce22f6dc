"""The loss of spans and its gradient in one pass over the logits of a packed batch, as a Triton kernel for CUDA.

    loss = Σ (log Σᵢ exp xᵢ − x_answer) / 2, over windows, start and end        ∂xᵢ = (softmax(x)ᵢ − [i = answer]) / 2

An answer below 0 is that of an inert window, whose loss and gradients are 0.

The same in plain torch is `span_loss` of `quoth.tasks.span`: a dozen small kernels each way, which for a small
head are most of its step.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _both(start, end, starts, answers, losses, grads, tokens, start_step, end_step, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    window, which = tl.program_id(0), tl.program_id(1)
    logits = start if which == 0 else end
    step = start_step if which == 0 else end_step
    first = tl.load(starts + window).to(tl.int64)
    length = tl.load(starts + window + 1).to(tl.int64) - first
    place = tl.arange(0, BLOCK)
    inside = place < length
    x = tl.load(logits + (first + place) * step, inside, -float("inf")).to(tl.float32)
    top = tl.max(x, 0)
    powers = tl.exp(x - top)
    total = tl.sum(powers, 0)
    answer = tl.load(answers + window * 2 + which)
    right = tl.sum(tl.where(place == answer, x, 0.0), 0)
    counts = tl.where(answer >= 0, 0.5, 0.0)
    tl.store(losses + window * 2 + which, counts * (tl.log(total) + top - right))
    grad = counts * (powers / total - tl.where(place == answer, 1.0, 0.0))
    tl.store(grads + which * tokens + first + place, grad, inside)


class _SpanLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, start: Tensor, end: Tensor, starts: Tensor, answers: Tensor, longest: int) -> Tensor:
        windows, tokens = len(starts) - 1, len(start)
        losses = torch.empty((windows, 2), dtype=torch.float32, device=start.device)
        grads = torch.empty((2, tokens), dtype=torch.float32, device=start.device)
        _both[(windows, 2)](
            start, end, starts, answers, losses, grads, tokens, start.stride(0), end.stride(0),
            BLOCK=triton.next_power_of_2(longest), num_warps=2,
        )  # fmt: skip
        ctx.grads, ctx.dtypes = grads, (start.dtype, end.dtype)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        start, end = ctx.grads * grad
        return start.to(ctx.dtypes[0]), end.to(ctx.dtypes[1]), None, None, None


def span_loss(start: Tensor, end: Tensor, starts: Tensor, answers: Tensor, longest: int) -> Tensor:
    """start, end: (T,) logits; starts: (n + 1,), where windows begin; answers: (n, 2); longest: of the windows."""
    return _SpanLoss.apply(start, end, starts, answers.contiguous(), longest)  # type: ignore[no-any-return]

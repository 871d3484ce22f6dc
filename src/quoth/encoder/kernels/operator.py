"""One kernel, two doors: a torch operator for compiled graphs, and a plain function for everything else.

`torch.compile` takes an operator of `torch.library` whole. But each call of one with a gradient cost the host
0.15 to 0.3 ms in a profile on the H200's machine, a fifth of a small encoder's step, so eager mode goes around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Compute = Callable[..., Any]


def operator(
    name: str, compute: Compute, fake: Compute, *, setup: Compute | None = None, backward: Compute | None = None
) -> Compute:
    """A function that computes `compute`, whose first argument is a tensor.

    fake: results of the right shapes, for tracing
    setup(ctx, inputs, output), backward(ctx, *gradients): as in `torch.autograd.Function`; of several outputs the first
    alone has a gradient
    """
    traced = torch.library.custom_op(name, compute, mutates_args=())
    traced.register_fake(fake)
    eager = compute
    if setup is not None and backward is not None:
        traced.register_autograd(backward, setup_context=setup)
        eager = _differentiable(compute, setup, backward)

    def call(*arguments: Any) -> Any:
        tracing = torch.compiler.is_compiling() or type(arguments[0]) is not Tensor  # such as a FakeTensor
        return (traced if tracing else eager)(*arguments)

    return call


def like_first(x: Tensor, *_: Any) -> Tensor:
    """A result of the first argument's shape, for `fake`."""
    return x.new_empty(x.shape)


def _differentiable(compute: Compute, setup: Compute, backward: Compute) -> Compute:
    def set_up(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.set_materialize_grads(False)
        if isinstance(output, tuple):
            ctx.mark_non_differentiable(*output[1:])
        setup(ctx, inputs, output)

    parts = {"forward": compute, "setup_context": set_up, "backward": backward}
    made: Any = type("Eager", (torch.autograd.Function,), {key: staticmethod(part) for key, part in parts.items()})
    return made.apply  # type: ignore[no-any-return]

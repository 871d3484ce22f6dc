"""`TorchRunner`: a torch model behind plain numpy, for rooms that know no torch."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from laconic.encoder.model import Model
from laconic.errors import LaconicError
from laconic.heads import SpanHead
from laconic.text.packed import Packed

CPU_TOKENS = 2048  # a batch that stays in the caches
CUDA_TOKENS = 65_536  # a batch that fills a large GPU


class TorchRunner:
    """Span logits of packed batches, from a Laconic model.

    On CUDA the model computes in bf16 where the GPU has it (`precision="fp32"` forbids that), elsewhere in fp32.
    """

    def __init__(self, model: Model, device: str | None = None, precision: str | None = None) -> None:
        if not isinstance(model.head, SpanHead):
            source = model.origin.source or "this model"
            raise LaconicError(f"{source}: has no span head, so it cannot answer questions; train one first")
        if precision not in (None, "fp32", "bf16"):
            raise LaconicError(f"precision {precision!r} is unknown: choose fp32 or bf16")
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        cuda = self.device.type == "cuda"
        self.half = precision == "bf16" or (precision is None and cuda and torch.cuda.is_bf16_supported())
        self.model = model.to(self.device).eval()
        self.longest = model.encoder.longest_window
        self.budget = CUDA_TOKENS if cuda else CPU_TOKENS

    @property
    def parameters(self) -> int:
        """All parameters of encoder and head."""
        return sum(value.numel() for value in self.model.parameters())

    def flops(self, length: int) -> int:
        """Forward floating-point operations of a window of `length` tokens, encoder alone."""
        return length * self.model.encoder.shape.flops(length)

    @torch.inference_mode()
    def __call__(self, packed: Packed[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Start and end logits, (T,) float32 each."""
        batch = packed.map(torch.from_numpy)
        self.model.encoder.check(batch)
        batch = batch.map(lambda array: array.to(self.device, non_blocking=True))
        cast: Any = torch.autocast(self.device.type, torch.bfloat16) if self.half else nullcontext()
        with cast:
            start, end = self.model(batch)
        both = torch.stack([start, end]).float().cpu().numpy()
        return both[0], both[1]

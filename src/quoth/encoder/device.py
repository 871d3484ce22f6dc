"""`Device`: where to compute, in which precision, and how many tokens a batch may have there."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from quoth.errors import QuothError

CPU_TOKENS = 2048  # a batch that stays in the caches
CUDA_TOKENS = 65_536  # a batch that fills a large GPU
HOPPER = (9, 0)  # its compute capability


@dataclass(frozen=True)
class Device:
    """A device of torch, and whether products are computed in bf16 there; with fp8 those of an encoder's layers in fp8.

    fp8 is for inference alone.
    """

    place: torch.device
    half: bool = False
    fp8: bool = False

    @classmethod
    def choose(cls, name: str | torch.device | None = None, precision: str | None = None) -> Device:
        """The device of this name, by default a GPU if there is one; precision: "fp32", "bf16", "fp8" or None.

        None is bf16 where the GPU has it, else fp32.
        """
        if precision not in (None, "fp32", "bf16", "fp8"):
            raise QuothError(f"precision {precision!r} is unknown: choose fp32, bf16 or fp8")
        try:
            chosen = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
            torch.empty(0, device=chosen)
        except (RuntimeError, AssertionError, NotImplementedError):
            raise QuothError(
                f"device {str(name)!r} cannot be used on this machine; leave it out, or choose cpu"
            ) from None
        fp8 = precision == "fp8"
        if fp8 and not (chosen.type == "cuda" and torch.cuda.get_device_capability(chosen) == HOPPER):
            raise QuothError(f"precision fp8 needs a Hopper GPU (H100, H200), which {chosen} is not; choose bf16")
        able = chosen.type == "cuda" and torch.cuda.is_bf16_supported()
        return cls(chosen, precision in ("bf16", "fp8") or (precision is None and able), fp8)

    @property
    def is_cuda(self) -> bool:
        """Whether it is an NVIDIA GPU."""
        return self.place.type == "cuda"

    @property
    def precision(self) -> str:
        """One of fp8, bf16 and fp32, by name."""
        return "fp8" if self.fp8 else "bf16" if self.half else "fp32"

    def autocast(self) -> Any:
        """A context in which products are computed in this precision."""
        return torch.autocast(self.place.type, torch.bfloat16) if self.half else nullcontext()

    def token_budget(self, lengths: np.ndarray | None = None) -> int:
        """How many tokens a batch without gradients may have: at least the longest of the windows."""
        budget = CUDA_TOKENS if self.is_cuda else CPU_TOKENS
        return budget if lengths is None else max(budget, int(lengths.max(initial=1)))

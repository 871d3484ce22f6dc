"""Question-answering checkpoints of families that Quoth has no encoder for, run by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from quoth.errors import QuothError
from quoth.windows import Packed

TOKENS = 2048


class TransformersRunner:
    """Span logits from `AutoModelForQuestionAnswering`: the packed batch is laid out as a padded rectangle for it."""

    def __init__(self, source: str | Path, device: str | None = None, precision: str | None = None) -> None:
        try:
            import torch  # both are optional
            from transformers import AutoModelForQuestionAnswering
        except ImportError:
            raise QuothError(
                f"{source}: not of a family that Quoth knows, and transformers is not installed; "
                "pip install transformers to run it"
            ) from None
        from quoth.encoder.device import Device  # here, since torch is optional

        self.torch, chosen = torch, Device.choose(device, precision)
        self.device = chosen.place
        if chosen.fp8:
            raise QuothError(f"{source}: is run by transformers, which Quoth gives no fp8; choose bf16")
        try:
            dtype = torch.bfloat16 if chosen.half else torch.float32
            # False: code in a model folder is never run, and transformers does not ask whether it may be.
            model: Any = AutoModelForQuestionAnswering.from_pretrained(source, dtype=dtype, trust_remote_code=False)
        except Exception as error:  # transformers raises a dozen kinds, torch others for a pickle
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise QuothError(f"{source}: transformers cannot load it for question answering ({reason})") from None
        self.model = model.to(self.device).eval()
        self.longest = int(getattr(model.config, "max_position_embeddings", 0) or 512)
        self.takes_types = bool(getattr(model.config, "type_vocab_size", 0))
        self.budget = TOKENS

    @property
    def parameters(self) -> int:
        """All parameters of the model."""
        return sum(value.numel() for value in self.model.parameters())

    def flops(self, length: int) -> int | None:
        """Not known for a model that Quoth did not build."""
        return None

    def __call__(self, packed: Packed[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Start and end logits, (T,) float32 each."""
        torch = self.torch
        lengths = np.array(packed.lengths)
        real = np.arange(packed.longest) < lengths[:, None]
        table = np.zeros((2, *real.shape), dtype=np.int64)
        table[0][real], table[1][real] = packed.ids, packed.types
        ids, types = torch.from_numpy(table).to(self.device)
        mask = torch.from_numpy(real).to(self.device)
        extra = {"token_type_ids": types} if self.takes_types else {}
        with torch.inference_mode():
            out = self.model(input_ids=ids, attention_mask=mask.long(), **extra)
        start, end = (logits.float()[mask].cpu().numpy() for logits in (out.start_logits, out.end_logits))
        return start, end

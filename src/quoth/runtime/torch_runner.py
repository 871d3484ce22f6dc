"""`TorchRunner`: a torch model behind plain numpy."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from quoth.encoder import Device
from quoth.encoder.inference import for_inference, is_fast
from quoth.errors import QuothError
from quoth.heads.head import SpanOutput
from quoth.model import Model
from quoth.runtime.inference_graphs import InferenceGraphs
from quoth.windows import Packed

MOST_TOKENS = 262_144  # a batch of a reader on a GPU


def budget(model: Model, device: Device) -> int:
    """How many tokens a batch of a reader may have.

    On a CPU few, which stay in its caches. On a GPU, where the head reads the last state alone, as many as fit into an
    eighth of its free memory: a small encoder's kernels on a small batch end sooner than the host launches the next.
    """
    usual = device.token_budget()
    if not device.is_cuda or model.head is None or len(model.head.reads) > 1:
        return usual
    shape = model.encoder.shape
    widest = max(max(layer.ffn, layer.heads * (2 * layer.key + layer.value)) for layer in shape.layers)
    bytes_a_token = (2 if device.half else 4) * (2 * widest + 4 * shape.hidden)
    free, _ = torch.cuda.mem_get_info(device.place)
    return min(MOST_TOKENS, max(usual // 8, free // 8 // bytes_a_token))


class TorchRunner:
    """Span logits of packed batches, from a Quoth model.

    On CUDA the model computes in bf16 where the GPU has it (`precision="fp32"` forbids that), elsewhere in fp32. There
    small batches are CUDA graphs, and the layers' weights are copied into the form that is fastest (`for_inference`):
    after a change of the weights a new runner is wanted.
    """

    def __init__(self, model: Model, device: str | None = None, precision: str | None = None) -> None:
        if model.head is None or model.head.task != "span":
            source = model.origin.source or "this model"
            raise QuothError(f"{source}: has no span head, so it cannot answer questions; train one first")
        self.device = Device.choose(device, precision)
        self.model = model.to(self.device.place).eval()
        self.longest = model.encoder.longest_window
        self.encoder = for_inference(model.encoder, self.device)
        self.graphs: InferenceGraphs | None = None
        if is_fast(model.encoder, self.device):
            self.graphs = InferenceGraphs(self._compute, self.device.place, self.longest)
        self.budget = budget(self.model, self.device)

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
        host = packed.map(torch.from_numpy)
        self.model.encoder.check(host)
        if self.graphs is not None and self.graphs.takes(packed):
            both = self.graphs(packed)
        else:
            both = self._compute(host.to(self.device.place)).cpu().numpy()
        return both[0], both[1]

    def _compute(self, batch: Packed[Tensor]) -> Tensor:
        """Start and end logits of a batch on the device, (2, T) float32."""
        head = self.model.head
        with self.device.autocast():
            output = self.model.read(head, self.encoder(batch, head.reads), batch)
        return torch.stack(cast(SpanOutput, output)).float()

"""`InferenceGraphs`: small batches as CUDA graphs, so that the host launches one graph in place of some 150 kernels.

A graph computes batches of one `Size`. A batch is brought to one of a few sizes (`size_of`): windows are rounded up to
a power of two, tokens to one of four steps between two powers of two, the longest window to a multiple of 128. Inert
windows fill the rest. The first batch of a size is run kernel by kernel, which also compiles what needs it; at the
second one the graph is captured. Both compute the same padded batch by the same kernels: their results have the same
bits.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quoth.encoder.capture import captured, renew_generator
from quoth.windows import Packed
from quoth.windows.packed import Size

MOST_TOKENS = 8192  # of a batch; kernels of a larger one take longer than the host needs to launch them
MOST_GRAPHS = 32  # the least recently used one goes
LEAST = 64  # tokens

Compute = Callable[[Packed[Tensor]], Tensor]


def size_of(lengths: tuple[int, ...], most: int) -> Size:
    """What a batch is brought to. lengths: of its windows; most: tokens that a window may have, an inert one too.

    Every inert window has a token, and there is one at least.
    """
    longest = min(most, -(-max(lengths) // 128) * 128)
    windows = 2
    while True:
        inert = windows - len(lengths)
        if inert > 0:
            tokens = _round_up(sum(lengths) + inert)
            if tokens - sum(lengths) <= inert * longest:
                return Size(tokens, windows, longest)
        windows *= 2


def _round_up(tokens: int) -> int:
    """The next of 64, 128 … 512, 640 … 1024, 1280 … 2048 and so on: at most a quarter more, or 63."""
    step = max(LEAST, 1 << max(0, (tokens - 1).bit_length() - 3))
    return -(-tokens // step) * step


def bring_to(size: Size, packed: Packed[np.ndarray], flat: np.ndarray) -> None:
    """Write a batch and its inert windows as one row of integers: see `laid_out`."""
    real, inert = len(packed.ids), size.inert(np.asarray(packed.lengths))
    ids, positions, types, starts, count = laid_out(size, flat)
    for target, values in ((ids, packed.ids), (positions, packed.positions), (types, packed.types)):
        target[:real] = values
        target[real:] = 0
    positions[real:] = np.concatenate([np.arange(length) for length in inert])
    starts[: len(packed.lengths)] = packed.starts[:-1]
    starts[len(packed.lengths) :] = real + np.append(0, np.cumsum(inert))
    count[()] = len(packed.lengths)


def laid_out(size: Size, flat: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Views of a row of integers, (3T + n + 2,): ids, positions, types (T,), starts (n + 1,), count ()."""
    tokens = size.tokens
    ids, positions, types = (flat[part * tokens : (part + 1) * tokens] for part in range(3))
    return ids, positions, types, flat[3 * tokens : -1], flat[-1:].reshape(())


@dataclass
class _Held:
    """What is kept of a size: pinned memory of the host, memory of the device, and once it is captured the graph."""

    host: Tensor
    device: Tensor
    packed: Packed[Tensor]
    graph: torch.cuda.CUDAGraph | None = None
    result: Tensor | None = None


class InferenceGraphs:
    """The graphs of a runner, by size. They share their memory, since only one runs at a time.

    compute: from a batch on the device to what is wanted of it, (k, T); most: tokens that a window may have
    failure: why no more batches are captured, if one could not be
    """

    def __init__(self, compute: Compute, device: torch.device, most: int) -> None:
        self.failure: str | None = None
        self._compute = compute
        self._most = most
        self._device = device
        self._held: OrderedDict[Size, _Held] = OrderedDict()
        self._lock = threading.Lock()  # a server may ask from several threads
        with torch.cuda.device(device):
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream()

    def takes(self, packed: Packed[np.ndarray]) -> bool:
        """Whether a batch is run here."""
        if self.failure is not None or len(packed.ids) > MOST_TOKENS:
            return False
        return size_of(packed.lengths, self._most).tokens <= MOST_TOKENS

    @torch.inference_mode()
    def __call__(self, packed: Packed[np.ndarray]) -> np.ndarray:
        """The result for the batch's own tokens, (k, T)."""
        size = size_of(packed.lengths, self._most)
        with self._lock, torch.cuda.device(self._device):
            held = self._held.get(size)
            seen = held is not None
            if held is None:
                held = self._held[size] = self._hold(size)
                if len(self._held) > MOST_GRAPHS:
                    self._held.popitem(last=False)
            self._held.move_to_end(size)
            bring_to(size, packed, held.host.numpy())
            held.device.copy_(held.host, non_blocking=True)
            if seen and held.graph is None and self.failure is None:
                self._capture(held)
            if held.graph is None or held.result is None:
                result = self._compute(held.packed)
            else:
                held.graph.replay()
                result = held.result
            return result.cpu().numpy()[:, : len(packed.ids)]

    def _hold(self, size: Size) -> _Held:
        numbers = 3 * size.tokens + size.windows + 2
        device = torch.zeros(numbers, dtype=torch.int32, device=self._device)
        ids, positions, types, starts, count = laid_out(size, device)
        packed: Packed[Tensor] = Packed(ids, positions, types, starts, (), size=size, count=count)
        return _Held(torch.zeros(numbers, dtype=torch.int32, pin_memory=True), device, packed)

    def _capture(self, held: _Held) -> None:
        """Capture the computation of a size without running it."""

        def stage() -> None:
            held.result = self._compute(held.packed)

        torch.cuda.synchronize()
        try:
            with torch.cuda.stream(self._stream):
                held.graph = captured(stage, self._pool)
        except RuntimeError as error:  # out of memory, or an operation that cannot be captured
            self.failure = str(error).strip().splitlines()[0]
            self._held.clear()
            renew_generator()
            warnings.warn(f"small batches are run kernel by kernel, not as CUDA graphs: {self.failure}", stacklevel=4)
        torch.cuda.current_stream().wait_stream(self._stream)

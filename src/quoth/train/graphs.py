"""`StepGraphs`: the steps of a loop as CUDA graphs, so that the host launches one graph in place of some 700 kernels.

A graph computes batches of one size. The loop brings its batches to at most three sizes (`choose_sizes`); inert windows
fill the rest. The first step of a size is run kernel by kernel, which also compiles what needs it; the
second one is captured, and replayed from then on. All of them run the same kernels on the same batch, so a result does
not depend on which steps were captured, and a run resumes to the same bits.

What changes from step to step lies on the device: the numbers of the windows, the learning rate, AdamW's count of
steps; and torch hands its generator's seed to the graph at every replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from quoth.encoder import Device
from quoth.encoder.attention import FLASH_LIMIT
from quoth.encoder.capture import captured, renew_generator
from quoth.encoder.steps import have_kernels
from quoth.model import Model
from quoth.tasks.examples import Request
from quoth.windows import Batches
from quoth.windows.packed import Size

ROUND = 128  # sizes have a multiple of so many tokens
SPARE = 1.04  # one size is enough if it has at most this many times the tokens of the middle batch

Stage = Callable[[], None]
MakeStages = Callable[[Sequence[Request]], Sequence[Stage]]


def choose_sizes(batches: Batches) -> tuple[Size, ...]:
    """What batches are brought to, smallest first: a function of the data, the seed and the size of a batch alone.

    The largest holds every batch there can be. Where that is much more than most batches need, two more hold a half and
    nine tenths of those of the first epoch. Batches of an epoch differ by at most the longest window, so two inert
    windows or a few more can fill up any of them without being longer than it.
    """
    longest = max(2, int(batches.lengths.max(initial=2)))
    inert = 1 + -(-(ROUND + 2) // (longest - 1))
    tokens, windows = batches.most()
    room = inert + 1  # a batch may have one window less than another
    middle, high = np.quantile(batches.tokens(0), (0.5, 0.9), method="higher").tolist()
    wanted = {tokens} if tokens <= SPARE * middle else {tokens, middle, high}
    rounded = {-(-(count + room) // ROUND) * ROUND for count in wanted}
    return tuple(Size(count, windows + inert, longest) for count in sorted(rounded))


def size_of(lengths: np.ndarray, sizes: Sequence[Size]) -> Size:
    """The smallest size that holds windows of these lengths, and a token for each inert one."""
    tokens = int(lengths.sum())
    return next(size for size in sizes if tokens + size.windows - len(lengths) <= size.tokens)


def why_not(model: Model, device: Device) -> str | None:
    """Why steps of a model cannot be captured; None if they can."""
    if not device.is_cuda or not have_kernels(next(model.parameters())):
        return "they need a GPU and Triton"
    if not device.half:
        return "they need half precision"
    if model.encoder.checkpointing:
        return "they do not go with checkpointing of layers"
    if max(max(layer.key, layer.value) for layer in model.encoder.shape.layers) > FLASH_LIMIT:
        return f"they need attention heads of at most {FLASH_LIMIT}"
    return None


def run_stages(stages: Sequence[Stage], seeds: Sequence[int | None]) -> None:
    """Run the stages of a step one after the other, each from its seed."""
    for stage, seed in zip(stages, seeds, strict=True):
        if seed is not None:
            torch.manual_seed(seed)
        stage()


@dataclass
class _Held:
    """What is kept of a size: its requests, which stay where they are on the device, and the graph of each stage."""

    requests: list[Request]
    graphs: list[torch.cuda.CUDAGraph] = field(default_factory=list)


class StepGraphs:
    """The graphs of a loop, by size. They share their memory, since only one runs at a time.

    failure: why no more steps are captured, if one could not be
    """

    def __init__(self, device: torch.device) -> None:
        self.failure: str | None = None
        self._device = device
        self._held: dict[tuple[Size | None, ...], _Held] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, requests: Sequence[Request], seeds: Sequence[int | None], make: MakeStages) -> None:
        """One step. make(requests on the device): its stages, which read their inputs from there."""
        key = tuple(request.size for request in requests)
        held = self._held.get(key)
        if held is None:
            sent = [request.to(self._device) for request in requests]
            if self.failure is None:
                self._held[key] = _Held(sent)
            return run_stages(make(sent), seeds)
        for mine, request in zip(held.requests, requests):
            mine.numbers.copy_(torch.from_numpy(request.numbers).pin_memory(), non_blocking=True)
        if not held.graphs and self.failure is None:
            self._capture(held, make)
        if not held.graphs:
            return run_stages(make(held.requests), seeds)
        for graph, seed in zip(held.graphs, seeds, strict=True):
            if seed is not None:
                torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)
            graph.replay()
        return None

    def _capture(self, held: _Held, make: MakeStages) -> None:
        """Capture the stages of a step without running them."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what eager steps have kept is not there for graphs
        stream, graphs = torch.cuda.Stream(), []
        try:
            with torch.cuda.stream(stream):
                for stage in make(held.requests):
                    graphs.append(captured(stage, self._pool))
        except RuntimeError as error:  # out of memory, or an operation that cannot be captured
            self.failure = str(error).strip().splitlines()[0]
            self._held = {}
            graphs = []
            renew_generator()
            torch.cuda.empty_cache()
        torch.cuda.current_stream().wait_stream(stream)
        held.graphs = graphs

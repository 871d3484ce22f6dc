"""Scores of many heads from one pass of the encoder a batch, or from its cached states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quoth.answer.decode import Decoded
from quoth.encoder.device import CPU_TOKENS, CUDA_TOKENS
from quoth.runtime.batched import over_windows
from quoth.runtime.logits import SpanLogits
from quoth.tasks.classes import ClassEvaluation, class_quality
from quoth.tasks.span_evaluation import SpanEvaluation
from quoth.train.cache import EVALUATION, Cache
from quoth.train.frozen import FrozenLoop, Shared
from quoth.windows.batches import by_length
from quoth.windows.columns import Windows
from quoth.windows.packed import Packed

ROWS = 4096  # of a cache, looked at together
Scores = dict[str, dict[str, Any]]


def score_heads(
    evaluation: SpanEvaluation | ClassEvaluation, heads: Mapping[str, Any], loop: FrozenLoop, cache: Cache | None
) -> tuple[Scores, dict[str, Decoded]]:
    """The scores of these heads on the states of a loop, and where spans were asked for their answers."""
    for head in heads.values():
        head.eval()
    shared = Shared(loop.model, list(heads.values()))
    if isinstance(evaluation, ClassEvaluation):
        logits = _class_logits(shared, evaluation.data.windows, loop, cache)
        return {name: class_quality(evaluation.data, found) for name, found in zip(heads, logits)}, {}
    budget = CUDA_TOKENS if loop.accelerator.device.type == "cuda" else CPU_TOKENS
    flat = over_windows(evaluation.windows, budget, lambda packed: _span_logits(shared, packed, loop))
    scores, answers = {}, {}
    for number, name in enumerate(heads):
        answers[name], scores[name] = evaluation.score(SpanLogits(flat[2 * number], flat[2 * number + 1]))
    return scores, answers


def _span_logits(shared: Shared, packed: Packed[np.ndarray], loop: FrozenLoop) -> list[np.ndarray]:
    batch = _to_device(packed, loop)
    found = [logits for pair in _logits(shared, batch, loop) for logits in pair]
    return list(torch.stack([logits.float() for logits in found]).cpu().numpy())


def _class_logits(shared: Shared, windows: Windows, loop: FrozenLoop, cache: Cache | None) -> list[np.ndarray]:
    """Of each head (n, classes), in the order of the windows."""
    parts: list[list[np.ndarray]] = [[] for _ in shared.heads]
    order = []
    for indices, batch, states in _batches(shared, windows, loop, cache):
        order.append(indices)
        for part, logits in zip(parts, _logits(shared, batch, loop, states)):
            part.append(logits.float().cpu().numpy())
    back = np.argsort(np.concatenate(order))
    return [np.concatenate(part)[back] for part in parts]


def _batches(
    shared: Shared, windows: Windows, loop: FrozenLoop, cache: Cache | None
) -> Iterator[tuple[np.ndarray, Packed[Tensor], Tensor | None]]:
    """Numbers of windows, the batch that they are, and their states if these are cached."""
    if cache is not None:
        for begin in range(0, len(windows), ROWS):
            indices = np.arange(begin, min(begin + ROWS, len(windows)))
            yield indices, *cache.batch(EVALUATION, indices, shared.layers)
        return
    budget = CUDA_TOKENS if loop.accelerator.device.type == "cuda" else CPU_TOKENS
    for indices in by_length(windows.lengths, max(budget, int(windows.lengths.max(initial=1)))):
        yield indices, _to_device(windows.packed(indices), loop), None


@torch.no_grad()
def _logits(shared: Shared, batch: Packed[Tensor], loop: FrozenLoop, states: Tensor | None = None) -> list[Any]:
    with loop.cast(batch):
        found = shared.states(batch) if states is None else states
        return [shared.logits(number, found, batch) for number in range(len(shared.heads))]


def _to_device(packed: Packed[np.ndarray], loop: FrozenLoop) -> Packed[Tensor]:
    return packed.map(lambda array: torch.from_numpy(array).to(loop.accelerator.device, non_blocking=True))

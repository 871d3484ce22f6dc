"""Shapes and random windows with the lengths of SQuAD's, for measurements of speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from quoth.encoder.shape import LayerShape, Shape
from quoth.model.model import Model
from quoth.tasks.examples import Examples
from quoth.tasks.span import SpanTask
from quoth.train.fine_tuning import FineTuning
from quoth.train.loop import Loop
from quoth.train.settings import Compile, Optimisation
from quoth.windows.columns import Windows
from quoth.windows.packed import Packed, pack

# Every 5th percentile of the window lengths of a third of SQuAD's train set (step 128, question ≤ 64).
LENGTHS = (36, 75, 94, 108, 117, 125, 131, 137, 144, 151, 158, 166, 174, 182, 192, 203, 217, 236, 262, 300, 384)
LONGEST = 384
SHAPES = {
    "base": Shape.uniform(layers=12, hidden=768, heads=12),
    "large": Shape.uniform(layers=24, hidden=1024, heads=16),
    "minilm": Shape.uniform(layers=12, hidden=384, heads=12),
    "tiny": Shape.uniform(layers=2, hidden=128, heads=2),
    "mpnet": replace(
        Shape.uniform(layers=12, hidden=768, heads=12, vocab=30527, positions=514, types=0), relative_buckets=32
    ),
}
SCHUBERT_F = (2022, 2222, 2344, 2478, 2576, 2530, 2638, 2660, 2748, 2792, 2852, 2974)
SCHUBERT_V = (54, 54, 46, 58, 52, 60, 64, 64, 64, 64, 64, 62)
IRREGULAR = replace(
    SHAPES["base"],
    layers=tuple(LayerShape(11 if i == 4 else 12, 64, SCHUBERT_V[i], SCHUBERT_F[i]) for i in range(12)),
)


def window_lengths(count: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths drawn from SQuAD's, brought to a mean of 180; one from each of `count` equal parts, shuffled."""
    drawn = np.interp((np.arange(count) + rng.uniform(size=count)) * 20 / count, np.arange(21), LENGTHS)
    return rng.permutation(np.clip(np.round(drawn * 1.065), 8, LONGEST).astype(int))


def packed_batches(count: int, windows: int, device: str, seed: int = 0) -> list[tuple[Packed[Tensor], Tensor]]:
    """Packed batches on the device, each with the answer's (start, end) in every window: (n, 2)."""
    rng = np.random.default_rng(seed)
    batches = []
    for _ in range(count):
        lengths = window_lengths(windows, rng)
        ids = [rng.integers(1000, 28000, n) for n in lengths]
        types = [(np.arange(n) >= 14).astype(int) for n in lengths]
        answers = np.sort(rng.integers(14, lengths[:, None].clip(16), (windows, 2)) % lengths[:, None], axis=1)
        batch = pack(ids, types).map(lambda a: torch.from_numpy(np.ascontiguousarray(a)).to(device))
        batches.append((batch, torch.from_numpy(answers).to(device)))
    return batches


def padded_batches(count: int, windows: int, device: str) -> list[tuple[dict[str, Tensor], Tensor]]:
    """The same windows as `packed_batches`, as (windows, 384) rectangles with an attention mask."""
    batches = []
    for packed, answers in packed_batches(count, windows, device):
        inside = torch.arange(LONGEST, device=device) < torch.tensor(packed.lengths, device=device)[:, None]
        tables = {"attention_mask": inside.long()}
        for key, values in (("input_ids", packed.ids), ("token_type_ids", packed.types)):
            tables[key] = torch.zeros(inside.shape, dtype=torch.long, device=device)
            tables[key][inside] = values.long()
        batches.append((tables, answers))
    return batches


def columns(count: int, seed: int = 0) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Windows of random tokens as the columns of `Windows`, and an answer somewhere in each, (n, 2)."""
    rng = np.random.default_rng(seed)
    lengths = window_lengths(count, rng)
    starts = np.append(0, np.cumsum(lengths))
    place = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    nothing = np.full(len(place), -1, np.int32)
    made = (
        rng.integers(1000, 28000, len(place)).astype(np.int32),
        (place >= 14).astype(np.int32),
        np.stack([nothing, nothing], 1),
        nothing,
        starts,
        np.arange(count, dtype=np.int32),
        np.stack([np.zeros(count), lengths], 1).astype(np.int32),
    )
    return made, np.sort(rng.integers(0, lengths[:, None], (count, 2)), axis=1)


def span_task(count: int) -> SpanTask:
    """The task of answer spans on random windows, for training without evaluation: it has no tokenizer."""
    made, labels = columns(count)
    return SpanTask(Examples(Windows(*made), labels), [], cast(Any, None))


def training_loop(
    model: Model, task: SpanTask, batch_size: int, accelerator: Accelerator, compiled: Compile = "graphs"
) -> Loop:
    """The loop of `quoth.train` over the windows of a task."""
    settings = Optimisation(epochs=1000, batch_size=batch_size, learning_rate=1e-5, compile=compiled)
    feed = task.feed(task.examples, accelerator.device, 0)
    objective = FineTuning(model, task, feed, settings, 0, accelerator)
    return Loop(objective, feed.lengths, settings, 0, accelerator)


def peak_step_gib(step: Callable[[], Any]) -> float:
    """GiB of GPU memory that one step holds at most."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**30

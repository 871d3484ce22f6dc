"""Capturing a computation as a CUDA graph, for steps of training (`quoth.train.graphs`) and for small batches.

What is captured is not run. It reads and writes memory that stays where it is, and does the same at every replay.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch


def captured(stage: Callable[[], Any], pool: Any) -> torch.cuda.CUDAGraph:
    """The graph of a stage, in the memory of a pool. It is captured on the current stream, not the default one.

    Raises a RuntimeError where an operation cannot be captured or the memory is too small.
    """
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        stage()
    except BaseException:
        with suppress(RuntimeError):  # torch must know that it has ended; that it is broken we know already
            graph.capture_end()
        raise
    graph.capture_end()
    return graph


def renew_generator() -> None:
    """After a capture that failed torch's generator believes that it still goes on; a new state does not."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(torch.Generator(generator.device).graphsafe_get_state())

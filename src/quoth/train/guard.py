"""Signals as a flag, and results that repeat to the bit."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

SIGNALS = (signal.SIGTERM, signal.SIGINT)
TWIN = 0.2  # seconds in which a second signal is the same one: `timeout` sends its signal twice


class Stop:
    """While it is entered, SIGTERM and SIGINT set `signal` instead of ending the process; a second one ends it.

    A signal that the process was started to ignore, as by `nohup … &`, stays ignored.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():  # Python lets no other thread set handlers
            watched = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in watched}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.signal == number:
            return
        self.signal = number
        time.sleep(TWIN)
        signal.signal(number, self._before[number])


@contextmanager
def exact(device: torch.device) -> Iterator[None]:
    """Sums in a fixed order, so that two runs give the same weights on the same machine.

    Otherwise torch adds the gradients of a gather in the order of threads, on the CPU as on CUDA.
    """
    guard: Any = torch.utils.deterministic  # by default it also fills fresh memory, which costs a pass over it
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # of fixed size, as cuBLAS wants for it
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill = guard.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    guard.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        guard.fill_uninitialized_memory = fill

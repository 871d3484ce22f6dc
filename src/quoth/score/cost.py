"""What answers cost: parameters, FLOPs, seconds, bytes, memory, and the hardware that was measured."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


def peak_memory() -> int | None:
    """The most memory that this process has held so far, in bytes; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux KiB


def hardware() -> dict[str, Any]:
    """The machine in words: CPU, cores of the machine and those that we may use, system, Python, numpy."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": usable,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def file_bytes(path: str | Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    path = Path(path)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


@dataclass(frozen=True)
class Cost:
    """The cost of answering `questions` questions in `seconds` with a model of `bytes` on disk."""

    parameters: int
    bytes: int
    questions: int
    seconds: float
    flops_per_question: float | None = None
    peak_memory: int | None = field(default_factory=peak_memory)
    hardware: dict[str, Any] = field(default_factory=hardware)

    @property
    def questions_per_second(self) -> float:
        """Questions per second; 0.0 if no time was seen to pass."""
        return self.questions / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return asdict(self) | {"questions_per_second": self.questions_per_second}


def _cpu_model() -> str:
    """The name of the processor: Linux tells it in /proc/cpuinfo, other systems through `platform`."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine() or "unknown"

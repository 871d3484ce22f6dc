"""`metrics.json`: the quality and the cost of a run, with what they were measured on."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from quoth._version import __version__
from quoth.score.cost import file_bytes, hardware, peak_memory
from quoth.train.loop import Loop
from quoth.train.recipe import Recipe


def metrics(
    recipe: Recipe, loop: Loop, seconds: float, evaluations: list[dict[str, Any]], folder: Path
) -> dict[str, Any]:
    """All facts of a run that has ended. quality: of the last evaluation; seconds: of training alone."""
    sizes = [(value.numel(), value.requires_grad) for value in loop.model.parameters()]
    last = evaluations[-1] if evaluations else {}
    return {
        "model": recipe.model,
        "tuning": recipe.tuning,
        "head": recipe.head,
        "seed": recipe.seed,
        "quality": {key: value for key, value in last.items() if key not in ("step", "epoch", "seconds", "windows")},
        "trainable_parameters": sum(size for size, learns in sizes if learns),
        "total_parameters": sum(size for size, _ in sizes),
        "steps": loop.steps,
        "epochs": loop.epoch,
        "windows": loop.windows,
        "train_seconds": seconds,
        "windows_per_second": loop.windows / seconds if seconds > 0 else 0.0,
        "inference_seconds": last.get("seconds"),
        "inference_windows": last.get("windows"),
        "peak_memory": _peak(loop.accelerator.device),
        "bytes": file_bytes(folder),
        "precision": "bf16" if loop.half else "fp32",
        "device": loop.accelerator.device.type,
        "processes": loop.accelerator.num_processes,
        "threads": torch.get_num_threads(),
        "hardware": {**hardware(), "gpu": _gpu(loop.accelerator.device)},
        "versions": {
            "quoth": __version__,
            **{name: _version(name) for name in ("torch", "accelerate", "tokenizers")},
        },
        "command": sys.argv,
        "evaluations": evaluations,
    }


def _peak(device: torch.device) -> int | None:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_memory()


def _gpu(device: torch.device) -> str | None:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None

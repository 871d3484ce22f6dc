"""`metrics.json`: the quality and the cost of a run, with what they were measured on; one writer, one reader."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import torch

from quoth._version import __version__
from quoth.config import fill
from quoth.files import read_json, write_json
from quoth.model import Model
from quoth.score import file_bytes, hardware, peak_memory
from quoth.train.loop import Loop
from quoth.train.recipe import Recipe

FILE = "metrics.json"
ABSENT = {"absent_if_empty": True}
Metrics = TypeVar("Metrics")


@dataclass(frozen=True)
class EvaluationPoint:
    """The scores at some step; of several heads, under `heads` by name. In JSON all lies in one table."""

    step: int
    epoch: float
    quality: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As one table."""
        return {"step": self.step, "epoch": self.epoch, **self.quality}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EvaluationPoint:
        """What `to_json` gave."""
        return cls(value["step"], value["epoch"], {k: v for k, v in value.items() if k not in ("step", "epoch")})


@dataclass(frozen=True)
class HeadMetrics:
    """A head on frozen states. curve: its scores on the way, where more than one evaluation was asked for."""

    head: dict[str, Any] = field(default_factory=dict, metadata=ABSENT)
    parameters: int | None = field(default=None, metadata=ABSENT)
    learning_rate: float | None = field(default=None, metadata=ABSENT)
    bytes: int | None = field(default=None, metadata=ABSENT)
    quality: dict[str, Any] = field(default_factory=dict)
    curve: tuple[EvaluationPoint, ...] = field(default=(), metadata=ABSENT)
    layer_weights: dict[str, Any] = field(default_factory=dict, metadata=ABSENT)


@dataclass(frozen=True)
class CacheMetrics:
    """The cached states of a stage: their size, and the seconds it took to compute them."""

    bytes: int
    seconds: float


@dataclass(frozen=True)
class StageMetrics:
    """All heads on the encoder of one epoch."""

    heads: dict[str, HeadMetrics]
    train_seconds: float
    windows_per_second: float
    steps: int
    cache: CacheMetrics | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True)
class TrainMetrics:
    """A training run that has ended. quality: of the last evaluation; train_seconds: of training alone.

    frozen: the stages of frozen heads, by the encoder's epoch
    """

    model: str
    tuning: dict[str, Any]
    head: Any
    seed: int
    quality: dict[str, Any]
    trainable_parameters: int
    total_parameters: int
    steps: int
    epochs: float
    windows: int
    train_seconds: float
    windows_per_second: float
    inference_seconds: float | None
    inference_windows: int | None
    peak_memory: int | None
    bytes: int
    precision: str
    device: str
    processes: int
    threads: int
    hardware: dict[str, Any]
    versions: dict[str, Any]
    command: list[str]
    evaluations: tuple[EvaluationPoint, ...]
    negatives: dict[str, int] = field(default_factory=dict, metadata=ABSENT)
    teachers: tuple[str, ...] = field(default=(), metadata=ABSENT)
    unlabelled: dict[str, int] = field(default_factory=dict, metadata=ABSENT)
    layer_weights: dict[str, Any] = field(default_factory=dict, metadata=ABSENT)
    frozen: dict[str, StageMetrics] = field(default_factory=dict, metadata=ABSENT)

    def to_json(self) -> dict[str, Any]:
        """What metrics.json holds."""
        return table_of(self)


def train_metrics(
    recipe: Recipe,
    model: Model,
    loop: Loop,
    precision: str,
    seconds: float,
    evaluations: list[EvaluationPoint],
    folder: Path,
    **more: Any,
) -> TrainMetrics:
    """The metrics of a run; folder: where its model lies, seconds: of training alone."""
    sizes = [(value.numel(), value.requires_grad) for value in model.parameters()]
    last = evaluations[-1].quality if evaluations else {}
    place = loop.accelerator.device
    return TrainMetrics(
        model=recipe.model,
        tuning=recipe.tuning,
        head=recipe.head,
        seed=recipe.seed,
        quality={key: value for key, value in last.items() if key not in ("seconds", "windows")},
        trainable_parameters=sum(size for size, trainable in sizes if trainable),
        total_parameters=sum(size for size, _ in sizes),
        steps=loop.steps,
        epochs=loop.epoch,
        windows=loop.windows,
        train_seconds=seconds,
        windows_per_second=loop.windows / seconds if seconds > 0 else 0.0,
        inference_seconds=last.get("seconds"),
        inference_windows=last.get("windows"),
        peak_memory=torch.cuda.max_memory_allocated(place) if place.type == "cuda" else peak_memory(),
        bytes=file_bytes(folder),
        precision=precision,
        device=place.type,
        processes=loop.accelerator.num_processes,
        threads=torch.get_num_threads(),
        hardware={**hardware(), "gpu": torch.cuda.get_device_name(place) if place.type == "cuda" else None},
        versions={"quoth": __version__, **{name: _version(name) for name in ("torch", "accelerate", "tokenizers")}},
        command=list(sys.argv),
        evaluations=tuple(evaluations),
        **more,
    )


def to_json(value: Any) -> Any:
    """Metrics as plain values. What may be absent and is empty is left out."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return table_of(value)
    if isinstance(value, Mapping):
        return {key: to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner) for inner in value]
    return value


def table_of(value: Any) -> dict[str, Any]:
    """The fields of metrics as plain values."""
    found = {f.name: (getattr(value, f.name), f.metadata) for f in fields(value)}
    return {name: to_json(inner) for name, (inner, metadata) in found.items() if inner or not metadata}


def write_metrics(folder: Path, metrics: Any) -> None:
    """Write FOLDER/metrics.json."""
    write_json(folder / FILE, to_json(metrics))


def read_metrics(folder: Path, kind: type[Metrics]) -> Metrics:
    """Read FOLDER/metrics.json."""
    return fill(kind, read_json(folder / FILE), str(folder / FILE))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None

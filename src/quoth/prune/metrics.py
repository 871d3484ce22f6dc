"""The metrics of a pruning run, as its JSON files hold them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from quoth.train.metrics import ABSENT, table_of


@dataclass(frozen=True)
class ModelMetrics:
    """A model: its sizes, its cost as a fraction of the unpruned one's, and its scores, if there is an evaluation."""

    parameters: int
    non_embedding_parameters: int
    cost: float
    shape: dict[str, Any]
    loss: float | None = field(default=None, metadata=ABSENT)
    quality: dict[str, Any] = field(default_factory=dict, metadata=ABSENT)


@dataclass(frozen=True)
class CutMetrics:
    """The first half of a round: `losses` before and after each step of it, `steps` and `seconds` of training gates."""

    round: int
    part: float | None
    losses: dict[str, float]
    steps: dict[str, int] = field(default_factory=dict, metadata=ABSENT)
    seconds: dict[str, float] = field(default_factory=dict, metadata=ABSENT)


@dataclass(frozen=True)
class RoundMetrics(CutMetrics):
    """A whole round. model: its folder in the run; rounds_before: part, losses and steps of the rounds before it."""

    model: str = ""
    parameters: int = 0
    non_embedding_parameters: int = 0
    cost: float = 0.0
    shape: dict[str, Any] = field(default_factory=dict)
    quality: dict[str, Any] = field(default_factory=dict, metadata=ABSENT)
    rounds_before: list[dict[str, Any]] = field(default_factory=list, metadata=ABSENT)


@dataclass(frozen=True)
class PruneMetrics:
    """A pruning run that has ended.

    losses_on: which data the losses were computed on; teacher: one, or several
    loss: by what `gates` and `recovery` were trained: "task", "distillation" or "both"
    unreachable: targets that no shape satisfies, and why
    """

    model: str
    by: str
    losses_on: str
    unpruned: ModelMetrics
    targets: dict[str, RoundMetrics]
    loss: dict[str, str] = field(default_factory=dict, metadata=ABSENT)
    unreachable: dict[str, str] = field(default_factory=dict, metadata=ABSENT)
    teacher: str | tuple[str, ...] = field(default="", metadata=ABSENT)
    negatives: dict[str, int] = field(default_factory=dict, metadata=ABSENT)
    unlabelled: dict[str, int] = field(default_factory=dict, metadata=ABSENT)
    hpo: dict[str, Any] = field(default_factory=dict, metadata=ABSENT)

    def to_json(self) -> dict[str, Any]:
        """What metrics.json holds."""
        return table_of(self)

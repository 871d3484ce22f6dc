"""The log of a run: `log.jsonl`, TensorBoard events if wanted, and a `Status` for the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quoth.errors import QuothError
from quoth.files import write_text
from quoth.score.quality import NAMES


@dataclass(frozen=True)
class Status:
    """How far a run is. loss: the mean of the last steps; seconds: of training so far, evaluation left out."""

    step: int
    steps: int
    epoch: float
    loss: float
    learning_rate: float
    windows_per_second: float
    seconds: float

    @property
    def seconds_left(self) -> float:
        """What the rest will take at the mean pace so far."""
        return self.seconds / max(1, self.step) * (self.steps - self.step)


Tell = Callable[[Status | str], None]


class Log:
    """The record of a run. A run that resumes at step s drops what was logged after s."""

    def __init__(self, run: Path, step: int, *, tensorboard: bool = False, tell: Tell | None = None) -> None:
        self.path = run / "log.jsonl"
        self._tell = tell or (lambda _: None)
        self._board = _board(run, step) if tensorboard else None
        write_text(self.path, "".join(line + "\n" for line in _kept(self.path, step)))

    def status(self, status: Status, losses: dict[str, float] | None = None) -> None:
        """The loss of the last steps; of many heads, each."""
        facts = asdict(status)
        facts.pop("steps")
        self._append(facts if losses is None else {**facts, "losses": losses})
        self._show({key: facts[key] for key in ("loss", "learning_rate", "windows_per_second")}, status.step)
        self._show({f"loss/{name}": loss for name, loss in (losses or {}).items()}, status.step)
        self._tell(status)

    def evaluation(self, step: int, epoch: float, quality: dict[str, Any]) -> None:
        """The scores at some step; of many heads, under `heads` by name."""
        self._append({"step": step, "epoch": epoch, "evaluation": quality})
        for name, scores in quality.get("heads", {}).items():
            self._tell(f"{name}: " + _scores(scores))
            self._show({f"evaluation/{name}/{key}": value for key, value in scores.items()}, step)
        if "heads" in quality:
            return
        self._show({f"evaluation/{key}": value for key, value in quality.items()}, step)
        self._tell(f"epoch {epoch:.2f}: {_scores(quality)}")

    def say(self, line: str) -> None:
        """A line for people only."""
        self._tell(line)

    def flush(self) -> None:
        """Bring what was told to disk, as far as a process that is killed would lose it."""
        if self._board is not None:
            self._board.flush()

    def close(self) -> None:
        """Finish the event file."""
        if self._board is not None:
            self._board.close()

    def _append(self, facts: dict[str, Any]) -> None:
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(facts) + "\n")
        except OSError as error:  # a full disk, which does not say of which file
            raise OSError(error.errno, error.strerror, str(self.path)) from None

    def _show(self, scalars: dict[str, Any], step: int) -> None:
        for name, value in scalars.items():
            if self._board is not None and isinstance(value, int | float):
                self._board.add_scalar(name, value, step)


def _scores(quality: dict[str, Any]) -> str:
    return ", ".join(f"{NAMES[key]} {quality[key]:.2f}" for key in NAMES if key in quality)


def _kept(path: Path, step: int) -> list[str]:
    """The lines of an earlier part of the run up to `step`, until one that is cut short by a kill, or damaged."""
    kept = []
    for raw in path.read_bytes().splitlines() if path.exists() else ():
        try:
            line = raw.decode("utf-8")
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            break
    return kept


def _board(run: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise QuothError("TensorBoard is not installed: pip install tensorboard, or leave --tensorboard out") from None
    return SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)

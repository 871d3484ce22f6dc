"""Race contenders against each other: they take turns in one run, and medians are compared.

    times = race({"ours": Contender(step, items=8, steps=10), "theirs": Contender(other, items=8, steps=10)}, passes=5)
    times.rate("ours")                    # items a second
    times.ratio("ours", "theirs")         # 3.75 (3.23–4.05): of the medians, then the least and the most of a pass

The order is reversed in every other pass, so that no contender always follows the same one. Where CUDA is in use, the
clock stops after the device has finished.
"""

from __future__ import annotations

import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import Any

from quoth.score.cost import hardware


@dataclass(frozen=True)
class Contender:
    """Something to time: a turn is `steps` calls of `step`, each of which does `items` windows or questions."""

    step: Callable[[], Any]
    items: float = 1.0
    steps: int = 1


@dataclass(frozen=True)
class Ratio:
    """How many times as fast: by the medians, and the least and the most of a pass."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}–{self.most:.2f})"


@dataclass(frozen=True)
class Times:
    """The seconds of every turn, by contender."""

    contenders: Mapping[str, Contender]
    seconds: dict[str, list[float]]

    def step_seconds(self, name: str) -> float:
        """The median time of one step."""
        return median(self.seconds[name]) / self.contenders[name].steps

    def rate(self, name: str) -> float:
        """Items a second, by the median."""
        return self.contenders[name].items / self.step_seconds(name)

    def rates(self) -> dict[str, float]:
        """Items a second of all contenders."""
        return {name: self.rate(name) for name in self.contenders}

    def ratio(self, name: str, base: str) -> Ratio:
        """How many times as fast as `base` a contender is."""
        paces = [[self._turn(which) / seconds for seconds in self.seconds[which]] for which in (name, base)]
        each = [ours / theirs for ours, theirs in zip(*paces)]
        return Ratio(self.rate(name) / self.rate(base), min(each), max(each))

    def _turn(self, name: str) -> float:
        return self.contenders[name].items * self.contenders[name].steps


def race(contenders: Mapping[str, Contender], passes: int, *, warmup: int = 1) -> Times:
    """Time all contenders in turns.

    warmup: the steps of each before the first pass, at most those of a turn
    """
    for contender in contenders.values():
        run(contender, min(warmup, contender.steps))
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(passes):
        for name in names if turn % 2 == 0 else names[::-1]:
            seconds[name].append(run(contenders[name], contenders[name].steps))
    return Times(contenders, seconds)


def run(contender: Contender, steps: int) -> float:
    """The seconds of so many steps."""
    synchronise()
    begin = time.perf_counter()
    for _ in range(steps):
        contender.step()
    synchronise()
    return time.perf_counter() - begin


def synchronise() -> None:
    """Wait for the GPU, if torch uses one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def machine(device: str = "cpu", packages: Sequence[str] = ()) -> str:
    """The hardware and the versions of a measurement, in a line."""
    found = hardware()
    names = [f"{found['cpu']}, {found['cores']} cores"]
    if device == "cuda":
        names.insert(0, sys.modules["torch"].cuda.get_device_name())
    versions = [f"{package} {version(package)}" for package in packages]
    return ", ".join([*names, f"Python {platform.python_version()}", *versions])


def peak_gib() -> float:
    """The largest resident size of this process so far; Linux counts it in KiB, macOS in bytes."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / 2 ** (30 if sys.platform == "darwin" else 20)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join([f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)])

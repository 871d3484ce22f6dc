"""Hypothesis on one target: so many cases, and of what is found the smallest input."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzz.case import Case, Finding, Target
from fuzz.outcome import Scratch, judge

SHRINK = 10.0  # seconds that are spent on making a finding smaller


class FoundError(Exception):
    """A finding, told to Hypothesis, which then looks for a smaller one."""


class EnoughError(BaseException):
    """No more shrinking; not an `Exception`, so that Hypothesis lets it through."""


@dataclass
class Batch:
    """The outcome of some cases of a target. finding: the smallest input of the first cause that is not yet known."""

    cases: int = 0
    seconds: float = 0.0
    finding: Finding | None = None
    known: set[str] = field(default_factory=set)
    shrink: float = SHRINK
    _until: float = float("inf")

    def one(self, target: Target, case: Case, scratch: Scratch) -> None:
        """Run one case."""
        if time.monotonic() > self._until:
            raise EnoughError
        found = judge(target, case, scratch)
        self.cases += self.finding is None
        if found is None or found.signature in self.known:
            return
        if self.finding is None:
            self._until = time.monotonic() + self.shrink
        elif found.signature != self.finding.signature:
            return
        if self.finding is None or case.size <= self.finding.case.size:
            self.finding = found
        raise FoundError(found.signature)


def run_batch(
    target: Target, count: int, scratch: Scratch, known: set[str], number: int | None, **options: Any
) -> Batch:
    """Run `count` cases. number: the seed; None is the same cases every time. known: findings that are let be."""
    batch = Batch(known=known, **options)
    begin = time.perf_counter()
    phases = (Phase.generate, Phase.shrink)
    chosen = settings(
        max_examples=count, database=None, deadline=None, derandomize=number is None, phases=phases,
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False, print_blob=False,
    )  # fmt: skip

    def one(case: Case) -> None:
        batch.one(target, case, scratch)

    one.__qualname__ = one.__name__ = target.name.replace("-", "_")  # what the cases without a seed depend on
    test = chosen(given(case=target.cases)(one))
    with suppress(FoundError, EnoughError):
        (test if number is None else seed(number)(test))()
    batch.seconds = time.perf_counter() - begin
    return batch

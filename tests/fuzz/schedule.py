"""Which target runs next, and what came of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fuzz.case import Finding

FULL = 900.0  # seconds of a run in which every target has its least number of cases
BATCH = 6.0  # seconds that a batch should take
MOST_LOST = 3  # processes that a target may cost before it is left out


@dataclass
class Tally:
    """What is known of a target. lost: how many processes did not survive it; busy: batches that run now."""

    name: str
    least: int
    cases: int = 0
    seconds: float = 0.0
    lost: int = 0
    busy: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def pace(self) -> float:
        """Cases a second."""
        return self.cases / self.seconds if self.seconds else 0.0

    @property
    def known(self) -> list[str]:
        """The signatures of its findings."""
        return [finding.signature for finding in self.findings]

    def next_cases(self) -> int:
        """How many cases its next batch has."""
        most = self.least - self.cases if self.cases < self.least else 2000
        return max(10, min(most, round(self.pace * BATCH))) if self.cases else 20


class Schedule:
    """First every target gets its least number, those furthest from it first; then the fastest get the rest."""

    def __init__(self, targets: Iterable[tuple[str, int]], seconds: float) -> None:
        share = min(1.0, seconds / FULL)
        self.tallies = {name: Tally(name, max(1, round(least * share))) for name, least in targets}

    def next(self) -> Tally:
        """The target whose turn it is."""
        able = [tally for tally in self.tallies.values() if tally.lost < MOST_LOST]
        short = [tally for tally in able if tally.cases < tally.least]
        if short:
            return min(short, key=lambda tally: (tally.busy + tally.cases / tally.least, tally.name))
        return max(able, key=lambda tally: (tally.pace / (1 + tally.cases), tally.name))

    @property
    def findings(self) -> list[Finding]:
        """All of them."""
        return [finding for tally in self.tallies.values() for finding in tally.findings]

    @property
    def cases(self) -> int:
        """All of them."""
        return sum(tally.cases for tally in self.tallies.values())

    def table(self) -> str:
        """Target, cases, cases a second, findings."""
        rows = [("target", "cases", "least", "per second", "findings")]
        for tally in self.tallies.values():
            short = "" if tally.cases >= tally.least else "  too few"
            rows.append(
                (
                    tally.name,
                    f"{tally.cases:,}",
                    f"{tally.least:,}",
                    f"{tally.pace:.0f}",
                    f"{len(tally.findings)}{short}",
                )
            )
        rows.append(("all", f"{self.cases:,}", "", "", f"{len(self.findings)}"))
        return "\n".join(f"{a:<20}{b:>10}{c:>8}{d:>12}  {e}" for a, b, c, d, e in rows)

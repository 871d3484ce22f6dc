"""Successive halving: candidates are trained a little and scored, the worse half goes, the others go on for longer.

Karnin, Koren and Somekh 2013, "Almost Optimal Exploration in Multi-Armed Bandits"; Jamieson and Talwalkar 2016,
"Non-stochastic Best Arm Identification and Hyperparameter Optimization". Training goes on where it was. With n
candidates, round r = 0, 1, … has n_r = ⌈n / 2^r⌉ of them, down to two, each of which has been trained on w·2^r windows
at its end. So the whole takes

    w · (n_0 + Σ_{r ≥ 1} n_r · 2^{r − 1})        windows, from which w follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Scored = TypeVar("Scored")


@dataclass(frozen=True)
class Round:
    """How many candidates a round has, and on how many windows each has been trained at its end."""

    candidates: int
    windows: float


@dataclass(frozen=True)
class Place(Generic[Scored]):
    """A candidate in a round, by its number; kept: whether it goes on, or in the last round whether it is the best."""

    candidate: int
    scored: Scored
    kept: bool


def plan_rounds(candidates: int, budget: float, most: float = math.inf) -> list[Round]:
    """The rounds of so many candidates that take `budget` windows in all; most: of a candidate, at its end."""
    counts = [candidates]
    while counts[-1] > 2:
        counts.append(-(-counts[-1] // 2))
    shares = [counts[0], *(count * 2.0 ** (r - 1) for r, count in enumerate(counts) if r)]
    first = budget / sum(shares)
    return [Round(count, min(first * 2.0**r, most)) for r, count in enumerate(counts)]


def total_windows(rounds: Sequence[Round]) -> float:
    """How many windows all rounds take."""
    before = (0.0, *(one.windows for one in rounds))
    return sum(one.candidates * (one.windows - done) for one, done in zip(rounds, before))


def halve(
    rounds: Sequence[Round],
    train: Callable[[int, int], Scored],
    order: Callable[[Sequence[Scored]], Sequence[int]],
    drop: Callable[[int], None] = lambda candidate: None,
) -> list[list[Place[Scored]]]:
    """The places of each round, the best first. train(candidate, round): train it to the end of the round; its score.

    order(scores): their places in this list, the best one first
    drop(candidate): called for each that does not go on
    """
    left = list(range(rounds[0].candidates))
    places: list[list[Place[Scored]]] = []
    for number in range(len(rounds)):
        scored = [train(candidate, number) for candidate in left]
        ranked = [(left[i], scored[i]) for i in order(scored)]
        stay = rounds[number + 1].candidates if number + 1 < len(rounds) else 1
        places.append([Place(one, score, rank < stay) for rank, (one, score) in enumerate(ranked)])
        for one, _ in ranked[stay:]:
            drop(one)
        left = sorted(one for one, _ in ranked[:stay])
    return places

"""The spans of all windows that were read for one question, best first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quoth.answer.abstention import Abstention
from quoth.answer.confidence import Confidence
from quoth.answer.features import Candidates
from quoth.answer.judge import margins, window_probabilities
from quoth.search.retrieve import Passage

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Seen:
    """Some windows that were read: the passage that each is of, and its best spans, counted from there."""

    passages: Sequence[Passage]
    found: Candidates


@dataclass(frozen=True, eq=False)
class Ranking:
    """C spans, best first.

    - document, start, end: (C,) where they stand
    - score, behind: (C,) the sum of their logits, and how far the null score of their window is ahead of it
    - right, no_answer: (C,) the probability that a span is right, and that the texts hold no answer
    """

    document: Int64s
    start: Int64s
    end: Int64s
    score: Float64s
    behind: Float64s
    right: Float64s
    no_answer: Float64s

    def __len__(self) -> int:
        return len(self.score)

    def take(self, which: NDArray[np.bool_]) -> Ranking:
        """Some of them, in the same order. which: (C,)"""
        return Ranking(*(getattr(self, one.name)[which] for one in fields(self)))

    def apart(self, top: int) -> list[int]:
        """The best `top` that do not overlap a better one of the same text: "in 1969" adds nothing to "1969"."""
        chosen: list[tuple[int, int, int]] = []
        numbers: list[int] = []
        for number, (document, start, end) in enumerate(self._places()):
            if len(chosen) == top:
                break
            if not any(other == document and start < past and begin < end for other, begin, past in chosen):
                chosen.append((document, start, end))
                numbers.append(number)
        return numbers

    def _places(self) -> Iterator[tuple[int, int, int]]:
        for first in range(0, len(self), 1000):
            here = slice(first, first + 1000)
            yield from zip(self.document[here].tolist(), self.start[here].tolist(), self.end[here].tolist())


def rank_by_margin(abstention: Abstention, seen: Sequence[Seen]) -> Ranking:
    """The spans furthest ahead of the null score of their own window first."""
    behind = [(one.found.spans.null[:, None] - one.found.spans.score).astype(np.float64) for one in seen]
    no_answer = [abstention.calibration.probability(values) for values in behind]
    return _ranking(seen, behind, [1 - values for values in no_answer], no_answer)


def rank_by_confidence(confidence: Confidence, seen: Sequence[Seen]) -> Ranking:
    """The spans that are most probably right first, by a calibration; the best ones of windows by their margins.

    P(right) was fitted on the best spans of windows. That of a window is held at or below those of windows whose best
    span is further ahead; another span of a window has that of its best, times exp(−d), d being what it is behind it.
    """
    ahead = [margins(one.found) for one in seen]
    both = [window_probabilities(confidence, one.found) for one in seen]
    first = np.concatenate([of[:, 0] for of in ahead]) if seen else np.zeros(0)
    held = np.concatenate([right for right, _ in both]) if seen else np.zeros(0)
    order = np.argsort(-first, kind="stable")
    held[order] = np.minimum.accumulate(held[order])
    rights, nones, at = [], [], 0
    for of, (right, none) in zip(ahead, both):
        here = held[at : at + len(right)][:, None]
        at += len(right)
        best = np.where(np.isfinite(of[:, :1]), of[:, :1], 0.0)
        rights.append(np.exp(here + np.minimum(of - best, 0.0)))
        nones.append(np.broadcast_to(np.exp(none)[:, None], of.shape))
    return _ranking(seen, [-of for of in ahead], rights, nones)


def _ranking(
    seen: Sequence[Seen], behind: Sequence[Float64s], right: Sequence[Float64s], no_answer: Sequence[Float64s]
) -> Ranking:
    if not seen:
        return Ranking(*(np.zeros(0, np.int64),) * 3, *(np.zeros(0),) * 4)
    good = [one.found.good for one in seen]
    place = [np.array([[p.document, p.begin] for p in one.passages], np.int64).reshape(-1, 2) for one in seen]
    columns: list[Any] = [
        [np.broadcast_to(where[:, :1], flags.shape) for where, flags in zip(place, good)],
        [one.found.spans.start + where[:, 1:] for one, where in zip(seen, place)],
        [one.found.spans.end + where[:, 1:] for one, where in zip(seen, place)],
        [one.found.spans.score.astype(np.float64) for one in seen],
        behind,
        right,
        no_answer,
    ]
    flat = [np.concatenate([part[flags] for part, flags in zip(column, good)]) for column in columns]
    order = np.lexsort((flat[4], -flat[5]))
    return Ranking(*(values[order] for values in flat))

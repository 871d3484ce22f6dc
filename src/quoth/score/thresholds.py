"""The threshold that a model should keep, and what such a threshold is worth on articles that it was not fitted on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quoth.answer.abstention import Silence
from quoth.answer.calibration import best_threshold, fit_calibration
from quoth.errors import QuothError
from quoth.score.squad import Scored, score_squad2

if TYPE_CHECKING:
    from quoth.answer.decode import Decoded
    from quoth.data.dataset import Question

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Choices:
    """What speaking and what silence would score, question by question.

    - spoken, silent: the scores of the best spans, and of "" throughout
    - margin: (Q,) null - best, +inf where there is no span
    """

    spoken: Scored
    silent: Scored
    margin: NDArray[np.float64]

    def part(self, mask: Flags) -> Choices:
        """The questions where `mask`, (Q,) bool, is true."""
        return Choices(self.spoken.part(mask), self.silent.part(mask), self.margin[mask])

    def at(self, threshold: float | NDArray[np.float64]) -> Scored:
        """The scores with silence where the margin is above the threshold, one for all or (Q,) one each."""
        mute = self.margin > threshold
        exact = np.where(mute, self.silent.exact, self.spoken.exact)
        return replace(self.spoken, exact=exact, f1=np.where(mute, self.silent.f1, self.spoken.f1))


def choices(questions: Sequence[Question], decoded: Decoded) -> Choices:
    """Score the best span and the silence of each question."""
    ids = [question.id for question in questions]
    spoken = score_squad2(questions, dict(zip(ids, decoded.predictions(math.inf))))
    silent = score_squad2(questions, dict.fromkeys(ids, ""))
    return Choices(spoken, silent, decoded.null_minus_best)


def fit_threshold(these: Choices) -> float:
    """The threshold with the best F1, of equally good ones the smallest.

    It lies midway to the next margin, so that the rounding of another runtime moves no question over it.
    """
    value = best_threshold(these.spoken.f1, these.silent.f1, these.margin).value
    above = these.margin[(these.margin > value) & np.isfinite(these.margin)]
    if not len(above):
        return value
    middle = (value + float(above.min())) / 2
    return middle if middle < above.min() else value


def fit_silence(these: Choices, data: str) -> Silence:
    """Threshold and calibration (temperature and bias) fitted on these questions; data: what they are called."""
    none = ~these.spoken.has_answer
    if none.all() or not none.any():
        raise QuothError(
            f"{data}: {'no' if none.all() else 'every'} question has an answer; "
            "a threshold is fitted on questions of both kinds"
        )
    threshold = fit_threshold(these)
    scores = these.at(threshold).summary()
    fitted = {"data": data, "questions": len(none), **{key: scores[key] for key in ("f1", "HasAns_f1", "NoAns_f1")}}
    return Silence(threshold, fit_calibration(these.margin, none, bias=True), fitted)


def cross_fitted(questions: Sequence[Question], these: Choices) -> dict[str, Any] | None:
    """Each half of the articles at the threshold that is best for the other half: what an unseen article can expect.

    The halves are the first and the last articles, in the order of the data; where these have no titles, passages take
    the place of articles. None if there are not two of them. Official keys over all questions, and `halves`: articles,
    questions, the threshold (fitted on the other half) and F1 of each.
    """
    groups = [question.title for question in questions]
    if len(set(groups)) < 2:
        groups = [question.context for question in questions]
    names = list(dict.fromkeys(groups))
    if len(names) < 2:
        return None
    early = set(names[: (len(names) + 1) // 2])
    first = np.array([group in early for group in groups])
    limits = np.where(first, fit_threshold(these.part(~first)), fit_threshold(these.part(first)))
    scored = these.at(limits)
    halves = [
        {
            "articles": count,
            "questions": int(half.sum()),
            "threshold": float(limits[half][0]),
            "f1": 100 * float(scored.f1[half].mean()),
        }
        for half, count in ((first, len(early)), (~first, len(names) - len(early)))
    ]
    return {**scored.summary(), "halves": halves}

"""Fitting the no-answer threshold that a model keeps, and its score on articles that it was not fitted on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quoth.answer import Abstention, Decoded, best_threshold, fit_calibration
from quoth.data import Question
from quoth.errors import QuothError
from quoth.score.squad import Scored, score_squad2

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Choices:
    """The scores of answering and of abstaining, question by question.

    - answered, abstained: the scores of the best spans, and of "" throughout
    - margin: (Q,) null - best, +inf where there is no span
    """

    answered: Scored
    abstained: Scored
    margin: NDArray[np.float64]

    def part(self, mask: Flags) -> Choices:
        """The questions where `mask`, (Q,) bool, is true."""
        return Choices(self.answered.part(mask), self.abstained.part(mask), self.margin[mask])

    def at(self, threshold: float | NDArray[np.float64]) -> Scored:
        """The scores if margins above the threshold, one for all or (Q,) one each, are answered with ""."""
        abstains = self.margin > threshold
        exact = np.where(abstains, self.abstained.exact, self.answered.exact)
        return replace(self.answered, exact=exact, f1=np.where(abstains, self.abstained.f1, self.answered.f1))


def choices(questions: Sequence[Question], decoded: Decoded) -> Choices:
    """Score the best span and "no answer" for each question."""
    ids = [question.id for question in questions]
    answered = score_squad2(questions, dict(zip(ids, decoded.predictions(math.inf))))
    abstained = score_squad2(questions, dict.fromkeys(ids, ""))
    return Choices(answered, abstained, decoded.null_minus_best)


def fit_threshold(these: Choices) -> float:
    """The threshold with the best F1, of equally good ones the smallest.

    It lies midway to the next margin, so that the rounding of another runtime moves no question over it.
    """
    value = best_threshold(these.answered.f1, these.abstained.f1, these.margin).value
    above = these.margin[(these.margin > value) & np.isfinite(these.margin)]
    if not len(above):
        return value
    middle = (value + float(above.min())) / 2
    return middle if middle < above.min() else value


def fit_abstention(these: Choices, data: str) -> Abstention:
    """Threshold and calibration (temperature and bias) fitted on these questions; data: what they are called."""
    none = ~these.answered.has_answer
    if none.all() or not none.any():
        raise QuothError(
            f"{data}: {'no' if none.all() else 'every'} question has an answer; "
            "a threshold is fitted on questions of both kinds"
        )
    threshold = fit_threshold(these)
    scores = these.at(threshold).summary()
    fitted = {"data": data, "questions": len(none), **{key: scores[key] for key in ("f1", "HasAns_f1", "NoAns_f1")}}
    scale = fit_calibration(these.margin, none, bias=True)
    return Abstention(threshold, scale.temperature, scale.bias, fitted)


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

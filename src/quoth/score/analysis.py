"""What a run gets wrong, and how: the error analysis of BERTVision (section 4), by the official score.

"Right" is exact match by the official rule. Everything is counted at one threshold: a run abstains where null - best is
above it. Shares are per cent, None where there is nothing to divide by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quoth.answer import (
    Threshold,
    area_under_risk_coverage,
    best_threshold,
    expected_calibration_error,
    fit_calibration,
    risk_coverage,
)
from quoth.answer.record import Recorded
from quoth.data import Question
from quoth.score.significance import RESAMPLES, bootstrap
from quoth.score.slices import Slicing, slice_scores, words
from quoth.score.squad import Scored, score_squad2

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run said to Q questions at one threshold, and how good that was. All in the order of the data.

    - texts: Q predictions, "" where it abstains; scored: their scores
    - answered: the scores if the run never abstained
    - best: the threshold with the best F1
    """

    name: str
    recorded: Recorded
    threshold: float
    texts: list[str]
    scored: Scored
    answered: Scored
    best: Threshold

    @property
    def right(self) -> Flags:
        """(Q,): whether the answer is exactly a gold one, or rightly none."""
        return np.asarray(self.scored.exact == 1.0)

    @property
    def abstained(self) -> Flags:
        """(Q,): whether the answer is "no answer"."""
        return np.array([not text for text in self.texts])


def outcome(
    name: str, questions: Sequence[Question], recorded: Recorded, threshold: float | Literal["best"] = 0.0
) -> Outcome:
    """Score the recorded answers at a threshold, or at the one with the best F1 on these very questions."""
    recorded = recorded.of([question.id for question in questions])
    answered = _score(questions, recorded.predictions(math.inf))
    abstained = _score(questions, [""] * len(questions))
    best = best_threshold(answered.f1, abstained.f1, recorded.null_minus_best)
    value = best.value if threshold == "best" else threshold
    texts = recorded.predictions(value)
    return Outcome(name, recorded, value, texts, _score(questions, texts), answered, best)


def run_facts(
    questions: Sequence[Question], run: Outcome, slicings: Sequence[Slicing], resamples: int = RESAMPLES
) -> dict[str, Any]:
    """All that is known of one run, ready for JSON; the official keys are those of `Scored.summary`."""
    scored = run.scored
    return {
        "run": run.name,
        "threshold": run.threshold if math.isfinite(run.threshold) else None,
        **scored.summary(),
        "interval": intervals(scored, resamples),
        "best": {"threshold": run.best.value, "f1": 100 * run.best.score},
        "confusion": confusion(run),
        **abstentions(run),
        **second_answers(questions, run),
        "right": lengths(questions, run.right),
        "calibration": calibration(run),
        "slices": {slicing.name: slice_scores(slicing, scored, resamples) for slicing in slicings},
    }


def confusion(run: Outcome) -> dict[str, int]:
    """Every question in one of five boxes."""
    has_answer, right, abstained = run.scored.has_answer, run.right, run.abstained
    boxes = {
        "answered_right": has_answer & right,
        "answered_wrong": has_answer & ~right & ~abstained,
        "wrongly_abstained": has_answer & ~right & abstained,
        "rightly_abstained": ~has_answer & right,
        "wrongly_answered": ~has_answer & ~right,
    }
    return {name: int(box.sum()) for name, box in boxes.items()}


def abstentions(run: Outcome) -> dict[str, Any]:
    """What wrong "no answer"s were.

    - called_no_answer: of the wrong has-answer questions, those that were called "no answer" (the paper: 65 %)
    - best_span_right: of those, the ones whose best span would have been right; f1: its mean F1
    """
    wrong = run.scored.has_answer & ~run.right
    called = wrong & run.abstained
    right = called & (run.answered.exact == 1.0)
    f1 = 100 * float(run.answered.f1[called].mean()) if called.any() else None
    return {"called_no_answer": _share(called, wrong), "best_span_right": {**_share(right, called), "f1": f1}}


def second_answers(questions: Sequence[Question], run: Outcome) -> dict[str, Any]:
    """How often the second answer is right where the first is wrong; "no answer" is an answer like any other.

    - second: of all wrong questions (the paper: 44 %), and of those with and without an answer
    - any_of_n: of the wrong has-answer questions, those where any answer kept is right; n: how many were kept at most,
      "no answer" among them
    - has_answer_share: of the questions that the first answer gets right (42 %), and of those that the second one
      mends (47 %), how many have an answer
    """
    has_answer, first = run.scored.has_answer, run.right
    ranked = [run.recorded.ranked(i, run.threshold) for i in range(len(questions))]
    n = max(map(len, ranked))
    mended = np.array([_right_at(questions, ranked, k) & ~first for k in range(1, max(n, 2))])
    second = mended[0]
    parts = {"all": ~first, "has_answer": ~first & has_answer, "no_answer": ~first & ~has_answer}
    return {
        "second": {name: _share(second & part, part) for name, part in parts.items()},
        "any_of_n": {"n": n, **_share(mended.any(axis=0) & has_answer, parts["has_answer"])},
        "has_answer_share": {
            "first": _share(first & has_answer, first)["share"],
            "second": _share(second & has_answer, second)["share"],
        },
    }


def lengths(questions: Sequence[Question], chosen: Flags) -> dict[str, Any]:
    """How many questions are chosen, and their mean context and question length in words."""
    some = [question for question, yes in zip(questions, chosen) if yes]
    return {
        "questions": len(some),
        "context_words": sum(words(q.context) for q in some) / len(some) if some else None,
        "question_words": sum(words(q.question) for q in some) / len(some) if some else None,
    }


def calibration(run: Outcome) -> dict[str, float | None]:
    """How well the confidence of a run predicts that it is right. The keys of `quoth evaluate`.

    Confidence is the distance of null - best from the threshold. At threshold 0 this is the order of the calibrated
    probabilities. The temperature and the calibration error need questions of both kinds, and are None without.
    """
    margins = np.array(run.recorded.finite_margins())
    confidence = np.abs(margins - run.threshold) if math.isfinite(run.threshold) else -margins
    area = area_under_risk_coverage(*risk_coverage(confidence, run.scored.f1))
    temperature = error = None
    no_answer = ~run.scored.has_answer
    if no_answer.any() and not no_answer.all():
        fitted = fit_calibration(margins, no_answer)
        temperature = fitted.temperature
        error = expected_calibration_error(fitted.probability(margins), no_answer)
    return {"temperature": temperature, "expected_calibration_error": error, "area_under_risk_coverage": area}


def _score(questions: Sequence[Question], texts: Sequence[str]) -> Scored:
    return score_squad2(questions, {question.id: text for question, text in zip(questions, texts)})


def _right_at(questions: Sequence[Question], ranked: Sequence[Sequence[str]], k: int) -> Flags:
    """(Q,): whether there is a k-th answer, counted from 0, and it is right."""
    there = np.array([len(texts) > k for texts in ranked])
    asked = [question for question, yes in zip(questions, there) if yes]
    right = np.zeros(len(questions), bool)
    if asked:
        right[there] = _score(asked, [texts[k] for texts in ranked if len(texts) > k]).exact == 1.0
    return right


def intervals(scored: Scored, resamples: int = RESAMPLES) -> dict[str, list[float]]:
    """The 95 % interval [low, high] of each official mean, in per cent."""
    parts = {"": np.ones_like(scored.has_answer), "HasAns_": scored.has_answer, "NoAns_": ~scored.has_answer}
    return {
        prefix + name: bootstrap(scores[mask], resamples=resamples).percent()
        for prefix, mask in parts.items()
        if mask.any()
        for name, scores in (("exact", scored.exact), ("f1", scored.f1))
    }


def _share(part: Flags, whole: Flags) -> dict[str, Any]:
    """How many of how many; `part` lies inside `whole`."""
    some, all = int(part.sum()), int(whole.sum())
    return {"of": all, "questions": some, "share": 100 * some / all if all else None}

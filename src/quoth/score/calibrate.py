"""Fitting a `Confidence`: on the answers to several datasets, with equal weight for each of them.

An answer is right if its official F1 is at least 0.5. What a calibration is worth is told on articles that it was not
fitted on: `cross_fit` leaves out each article of each set in turn (more than `FOLDS` are left out by groups).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quoth.answer import Reader, SpanLogits, area_under_risk_coverage, risk_coverage
from quoth.answer.confidence import BOUND, FORMAT, NO_ANSWER, RIGHT, WRONG, Confidence, Outcome
from quoth.answer.features import NAMES, factors, find_candidates
from quoth.answer.logistic import fit_softmax
from quoth.answer.reader import Progress
from quoth.data import Question
from quoth.errors import QuothError
from quoth.score.squad import score_squad2
from quoth.windows import Windows

Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]

PRODUCTS = (  # what a margin says depends on the kind of question, and on whether the passage is about the same at all
    *("margin*question_mark", "log_probability*question_mark", "margin*overlap", "log_probability*overlap"),
    "question_mark*overlap",
)
FEATURES = (*NAMES, *PRODUCTS)
RIDGE = 1e-3
LEAST_SCALE = 0.1  # of a feature that hardly varies in the data: else the few that differ would decide its weight
FOLDS = 10
ENOUGH = 0.5  # F1 of a right answer
COVERAGE = 0.8
BINS = 10


@dataclass(frozen=True, eq=False)
class Sample:
    """The best spans of the Q questions of a dataset that have one, and what became of them.

    - values: (Q, F) features; outcome: (Q,) `WRONG`, `RIGHT` or `NO_ANSWER`
    - f1, has_answer: (Q,) the official F1 of the span, and whether the question has an answer
    - article: (Q,) the number of its article, or of its passage where the data have no articles
    - weight: of all its questions together, in a fit
    """

    name: str
    features: tuple[str, ...]
    values: Float64s
    outcome: Int64s
    f1: Float64s
    has_answer: NDArray[np.bool_]
    article: Int64s
    weight: float = 1.0

    def __len__(self) -> int:
        return len(self.outcome)

    def part(self, mask: NDArray[np.bool_]) -> Sample:
        """Some of its questions. mask: (Q,)."""
        columns = (getattr(self, name)[mask] for name in ("values", "outcome", "f1", "has_answer", "article"))
        return replace(Sample(self.name, self.features, *columns), weight=self.weight)


def sample(
    reader: Reader,
    questions: Sequence[Question],
    name: str,
    features: Sequence[str] = FEATURES,
    progress: Progress | None = None,
) -> Sample:
    """Answer a dataset and keep what a calibration is fitted on."""
    windows = reader.windows(questions)
    return sample_of(windows, reader.logits(windows, progress), questions, name, features)


def sample_of(
    windows: Windows, logits: SpanLogits, questions: Sequence[Question], name: str, features: Sequence[str] = FEATURES
) -> Sample:
    """The same from logits. Of several windows that counts in which a span is furthest ahead of "no answer"."""
    contexts = [q.context for q in questions]
    names = tuple(dict.fromkeys(("margin", *features)))
    found = find_candidates(windows, logits, [q.question for q in questions], contexts, names)
    margin = np.where(found.good[:, 0], found.values[:, 0, 0], -np.inf)
    order = np.lexsort((-margin, windows.question))
    asked, first = np.unique(windows.question[order], return_index=True)
    best = order[first]
    asked, best = asked[np.isfinite(margin[best])], best[np.isfinite(margin[best])]
    kept = [questions[i] for i in asked]
    spans = zip(found.spans.start[best, 0].tolist(), found.spans.end[best, 0].tolist())
    f1, outcome, has_answer = outcomes(kept, [q.context[start:end] for q, (start, end) in zip(kept, spans)])
    columns = [names.index(feature) for feature in features]
    values = found.values[best, 0][:, columns]
    return Sample(name, tuple(features), values, outcome, f1, has_answer, _articles(kept))


def outcomes(questions: Sequence[Question], texts: Sequence[str]) -> tuple[Float64s, Int64s, NDArray[np.bool_]]:
    """Of one text for each question the official F1, what became of it, and whether the question has an answer."""
    named = [replace(question, id=str(i)) for i, question in enumerate(questions)]
    scored = score_squad2(named, {str(i): text for i, text in enumerate(texts)})
    outcome = np.where(scored.has_answer, np.where(scored.f1 >= ENOUGH, RIGHT, WRONG), NO_ANSWER)
    return scored.f1, outcome, scored.has_answer


def fit_confidence(samples: Sequence[Sample], ridge: float = RIDGE, fitted: dict[str, Any] | None = None) -> Confidence:
    """The regression for one window. A sample counts by its weight, however many questions it has.

    An answer that is further ahead of "no answer" must not become less probable. Where the fit has it so for any row of
    the data, the products with the margin are left out for "right", and if that does not help the margin too.
    """
    used = [one for one in samples if len(one)]
    outcome = np.concatenate([one.outcome for one in used]) if used else np.zeros(0, np.int64)
    if len(np.unique(outcome)) < 3:
        names = ", ".join(one.name for one in samples)
        raise QuothError(
            f"{names}: a calibration is fitted on right answers, wrong answers and questions without an answer; "
            "one of these is lacking"
        )
    features = used[0].features
    values = np.concatenate([one.values for one in used])
    weight = np.concatenate([np.full(len(one), one.weight / len(one)) for one in used])
    weight = weight / weight.sum()
    mean = weight @ values
    scale = np.maximum(np.sqrt(weight @ (values - mean) ** 2), LEAST_SCALE)
    z = np.clip((values - mean) / scale, -BOUND, BOUND)
    weights, bias = fit_softmax(z, outcome, weight, ridge)
    with_margin = [i for i, name in enumerate(features) if "margin" in factors(name)]
    for held in ([i for i in with_margin if features[i] != "margin"], with_margin):
        if _falls(weights[0] / scale, features, values):
            weights, bias = fit_softmax(z, outcome, weight, ridge, without=[(0, i) for i in held])
    right, none = (Outcome(tuple(row.tolist()), float(b)) for row, b in zip(weights, bias))
    return Confidence(FORMAT, features, tuple(mean.tolist()), tuple(scale.tolist()), right, none, fitted or {})


def _falls(weights: Float64s, features: Sequence[str], values: Float64s) -> bool:
    """Whether an exponent falls with the margin at any of (N, F) rows; weights: (F,), of the features as they are."""
    slope = np.zeros(len(values))
    for weight, name in zip(weights, features):
        others = factors(name)
        if "margin" in others:
            others.remove("margin")
            slope += weight * np.prod([values[:, features.index(other)] for other in others], axis=0)
    return bool((slope < 0).any())


def cross_fit(samples: Sequence[Sample], ridge: float = RIDGE) -> list[Float64s]:
    """For each sample (Q, 3) probabilities, each question's by a fit that has not seen its article."""
    found = [np.zeros((len(one), 3)) for one in samples]
    for i, one in enumerate(samples):
        fold = one.article % FOLDS
        for number in np.unique(fold):
            out = fold == number
            rest = [other.part(~out) if j == i else other for j, other in enumerate(samples)]
            found[i][out] = fit_confidence(rest, ridge).probabilities(one.values[out])
    return found


def quality(one: Sample, p: Float64s) -> dict[str, Any]:
    """What (Q, 3) probabilities are worth on a sample: F1 in per cent, calibration, risk and coverage.

    `answered_f1` is that of questions with an answer if every question is answered.
    `raw` has the same of the margin alone: risk and coverage do not depend on a threshold.
    """
    given = p[:, RIGHT] >= p[:, NO_ANSWER]
    none = ~one.has_answer
    f1 = np.where(given, one.f1, none)
    right = (one.outcome == RIGHT).astype(np.float64)
    facts: dict[str, Any] = {
        "questions": len(one),
        "f1": 100 * float(f1.mean()),
        "HasAns_f1": 100 * float(f1[~none].mean()) if not none.all() else None,
        "NoAns_f1": 100 * float(f1[none].mean()) if none.any() else None,
        "answered_f1": 100 * float(one.f1[~none].mean()) if not none.all() else None,
        "answered": float(given.mean()),
        "right_of_answered": float(right[given].mean()) if given.any() else None,
        "expected_calibration_error": equal_mass_error(p[:, RIGHT], right),
        **_selective(p[:, RIGHT], right),
    }
    if "margin" in one.features:
        facts["raw"] = _selective(one.values[:, one.features.index("margin")], right)
    return facts


def reliability(probability: Float64s, outcome: Float64s, bins: int = BINS) -> list[tuple[int, float, float]]:
    """Bins of equal mass: how many, the mean probability, the share that came true; least probable first."""
    order = np.argsort(probability, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return [(len(part), float(probability[part].mean()), float(outcome[part].mean())) for part in parts]


def equal_mass_error(probability: Float64s, outcome: Float64s, bins: int = BINS) -> float:
    """Expected calibration error over bins of equal mass: Σ share · |mean probability - share that came true|."""
    return sum(n * abs(p - truth) for n, p, truth in reliability(probability, outcome, bins)) / len(probability)


def _selective(confidence: Float64s, right: Float64s) -> dict[str, float]:
    most = np.argsort(-confidence, kind="stable")[: round(COVERAGE * len(right))]
    return {
        "area_under_risk_coverage": area_under_risk_coverage(*risk_coverage(confidence, right)),
        "accuracy_at_80": float(right[most].mean()),
    }


def _articles(questions: Sequence[Question]) -> Int64s:
    groups = [q.title for q in questions]
    if len(set(groups)) < 2:
        groups = [q.context for q in questions]
    number = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    return np.array([number[group] for group in groups], np.int64)

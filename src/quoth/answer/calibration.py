"""When to abstain: the best no-answer threshold, calibrated probabilities of "no answer", risk against coverage.

All functions take the margin null - best of each question (`Decoded.null_minus_best`): the score of "no answer" minus
that of the best span. It is +inf where there is no span.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quoth.errors import QuothError

Float64s = NDArray[np.float64]


@dataclass(frozen=True)
class Threshold:
    """A question is "no answer" if null - best > `value`; `score` is the mean score that this gives."""

    value: float
    score: float


def best_threshold(scores_if_answered: ArrayLike, scores_if_not: ArrayLike, null_minus_best: ArrayLike) -> Threshold:
    """The threshold with the best mean score, exactly, by one sort.

    - scores_if_answered: (Q,) exact match or F1 of the best span
    - scores_if_not: (Q,) the same of the empty answer: 1 if the question has no answer, else 0
    - null_minus_best: (Q,) the margins

    A question is "no answer" if margin > threshold, as in `decode` and in the official script, so questions with
    equal margins change sides together. The candidates are every margin (questions up to it are answered) and a
    value just below all of them (none is answered); of equally good thresholds the smallest is returned.
    """
    margin = _column("null_minus_best", null_minus_best)
    answered = _column("scores_if_answered", scores_if_answered, len(margin))
    abstained = _column("scores_if_not", scores_if_not, len(margin))
    if not len(margin) or np.isnan(margin).any():
        raise QuothError("null_minus_best must have at least one question and no NaN: check the predictions")
    finite = margin < np.inf
    if not finite.any():
        return Threshold(0.0, float(abstained.mean()))
    order = np.argsort(margin[finite], kind="stable")
    margins = margin[finite][order]
    gains = np.cumsum((answered - abstained)[finite][order])
    last = np.append(margins[1:] > margins[:-1], True)
    values = np.concatenate([[np.nextafter(margins[0], -np.inf)], margins[last]])
    totals = abstained.sum() + np.concatenate([[0.0], gains[last]])
    best = int(np.argmax(totals))
    return Threshold(float(values[best]), float(totals[best] / len(margin)))


@dataclass(frozen=True)
class Calibration:
    """P(no answer) = sigmoid((margin - bias) / temperature), margin = null - best (Guo et al. 2017)."""

    temperature: float
    bias: float = 0.0

    def probability(self, null_minus_best: ArrayLike) -> Float64s:
        """(Q,): the probability that a question has no answer; 1 where there is no span."""
        margin = np.asarray(null_minus_best, dtype=np.float64)
        return _sigmoid((margin - self.bias) / self.temperature)


def fit_calibration(null_minus_best: ArrayLike, no_answer: ArrayLike, *, bias: bool = False) -> Calibration:
    """The temperature (and the bias) with the smallest log loss on a validation set.

    - null_minus_best: (Q,) margins; those that are infinite are left out, since no temperature moves them
    - no_answer: (Q,) whether the question has none

    The loss is convex in a = 1 / temperature and c = -bias / temperature, so Newton's steps find its minimum.
    Where it has none, for data that a threshold separates or that are all of one kind, bounds hold: with the
    mean |margin| as the unit the temperature stays within [0.01, 100], and |c| ≤ 100.
    """
    margin = _column("null_minus_best", null_minus_best)
    truth = _column("no_answer", no_answer, len(margin))
    finite = np.isfinite(margin)
    margin, truth = margin[finite], truth[finite]
    if not len(margin):
        raise QuothError("null_minus_best has no finite margin: there is nothing to calibrate on")
    unit = float(np.abs(margin).mean())
    unit = unit if unit > 1e-100 else 1.0
    columns = np.stack([margin / unit, np.full(len(margin), float(bias))], axis=1)
    low, high = np.array([0.01, -100.0]), np.array([100.0, 100.0])
    slope, shift = _logistic(columns, truth, low, high)
    return Calibration(float(unit / slope), float(-shift * unit / slope) if bias else 0.0)


def expected_calibration_error(probability: ArrayLike, outcome: ArrayLike, bins: int = 15) -> float:
    """Σ over bins of share · |mean outcome - mean probability| (Naeini et al. 2015; Guo et al. 2017).

    - probability: (Q,) in [0, 1]; outcome: (Q,) 0 or 1
    - the bins have equal width and hold their upper edge; the first holds 0 too
    """
    predicted = _column("probability", probability)
    truth = _column("outcome", outcome, len(predicted))
    if not len(predicted) or not ((predicted >= 0) & (predicted <= 1)).all():
        raise QuothError("probability must have at least one value, all within [0, 1]")
    which = np.clip(np.ceil(predicted * bins).astype(np.int64) - 1, 0, bins - 1)
    gaps = np.bincount(which, weights=truth - predicted, minlength=bins)
    return float(np.abs(gaps).sum() / len(predicted))


def risk_coverage(confidence: ArrayLike, correct: ArrayLike) -> tuple[Float64s, Float64s]:
    """The risk of answering only the most confident questions, at every coverage (El-Yaniv and Wiener 2010).

    - confidence: (Q,) any scale; correct: (Q,) in [0, 1], exact match or F1
    - returns coverage, risk: (K,), one point for each distinct confidence from the highest down: the share
      of questions that are at least so confident, and the mean of 1 - correct among them
    """
    sure = _column("confidence", confidence)
    right = _column("correct", correct, len(sure))
    if not len(sure) or np.isnan(sure).any():
        raise QuothError("confidence must have at least one value and no NaN")
    order = np.argsort(-sure, kind="stable")
    last = np.append(np.diff(-sure[order]) > 0, True)
    counts = np.flatnonzero(last) + 1
    return counts / len(sure), np.cumsum(1.0 - right[order])[last] / counts


def area_under_risk_coverage(coverage: Float64s, risk: Float64s) -> float:
    """AURC: the mean of the risk over the coverage (Geifman and El-Yaniv 2017)."""
    return float(np.diff(coverage, prepend=0.0) @ risk)


def _logistic(x: Float64s, y: Float64s, low: Float64s, high: Float64s) -> Float64s:
    """The w, (2,), in [low, high] with the least log loss of sigmoid(x·w): projected Newton steps."""
    weights: Float64s = np.clip(np.array([1.0, 0.0]), low, high)
    loss = _log_loss(x @ weights, y)
    for _ in range(100):
        p = _sigmoid(x @ weights)
        gradient = x.T @ (p - y) / len(y)
        hessian = (x.T * (p * (1 - p))) @ x / len(y)
        stuck = ((weights <= low) & (gradient > 0)) | ((weights >= high) & (gradient < 0))
        free = ~stuck & (hessian.diagonal() > 0)
        step = np.zeros(2)
        step[free] = np.linalg.lstsq(hessian[np.ix_(free, free)], gradient[free], rcond=None)[0]
        size = 1.0
        while size > 1e-9:
            tried = np.clip(weights - size * step, low, high)
            now = _log_loss(x @ tried, y)
            if now < loss:
                break
            size /= 2
        else:
            return weights
        weights, loss = tried, now
    return weights


def _log_loss(logit: Float64s, y: Float64s) -> float:
    return float((np.logaddexp(0.0, logit) - y * logit).mean())


def _sigmoid(logit: Float64s) -> Float64s:
    with np.errstate(over="ignore"):  # exp(∞) is what we want: 1 / ∞ = 0
        return np.asarray(1.0 / (1.0 + np.exp(-logit)))


def _column(name: str, values: ArrayLike, length: int | None = None) -> Float64s:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or (length is not None and len(column) != length):
        wanted = "one dimension" if length is None else f"shape ({length},)"
        raise QuothError(f"{name} has shape {column.shape} but must have {wanted}: one value for each question")
    return column

"""The metrics of GLUE (Wang et al., 2019), as fractions: accuracy, F1, Matthews, Pearson, Spearman.

Every function takes n predictions and n labels. Where a formula divides zero by zero the result is 0.0, never NaN: F1
without any positive, Matthews where predictions or labels are all of one class, Pearson and Spearman where either side
is constant. Input that is empty, of unequal length or not finite is a `QuothError`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quoth.data.glue import find_task
from quoth.errors import QuothError

Floats = NDArray[np.float64]

METRICS = {
    "CoLA": ("mcc",),
    "SST-2": ("acc",),
    "MRPC": ("acc", "f1"),
    "QQP": ("acc", "f1"),
    "STS-B": ("pearson", "spearman"),
    "MNLI": ("acc",),
    "QNLI": ("acc",),
    "RTE": ("acc",),
}


def glue_score(task: str, predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """The official metrics of a GLUE task, by the names in `METRICS`; the task may be spelt "sst2" too."""
    name = find_task(task)
    if name is None:
        raise QuothError(f"{task}: not a GLUE task with a score; one of {', '.join(METRICS)}")
    functions = {"acc": accuracy, "f1": f1, "mcc": matthews, "pearson": pearson, "spearman": spearman}
    return {metric: functions[metric](predictions, labels) for metric in METRICS[name]}


def accuracy(predictions: ArrayLike, labels: ArrayLike) -> float:
    """The fraction of predictions equal to their label; labels are numbers or strings."""
    predicted, gold = np.asarray(predictions), np.asarray(labels)
    _check_lengths(predicted, gold)
    if (predicted.dtype.kind in "US") != (gold.dtype.kind in "US"):
        raise QuothError("predictions and labels: one has strings and the other numbers; use one kind")
    return float(np.mean(predicted == gold))


def f1(predictions: ArrayLike, labels: ArrayLike) -> float:
    """F1 = 2TP / (2TP + FP + FN) of class 1 against class 0."""
    true_positive, false_positive, false_negative, _ = _confusion(predictions, labels)
    return 2 * true_positive / max(2 * true_positive + false_positive + false_negative, 1)


def matthews(predictions: ArrayLike, labels: ArrayLike) -> float:
    """(TP·TN − FP·FN) / √((TP+FP)(TP+FN)(TN+FP)(TN+FN)) of classes 1 and 0 (Matthews, 1975)."""
    tp, fp, fn, tn = _confusion(predictions, labels)
    # Python's integers do not overflow as the product of four counts would in 64 bits.
    product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return (tp * tn - fp * fn) / math.sqrt(product) if product else 0.0


def pearson(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Pearson's correlation: the cosine of the angle between the centred vectors."""
    x, y = _numbers("prediction", predictions), _numbers("label", labels)
    _check_lengths(x, y)
    # A mean of equal numbers may round away from them: ask for constancy before, not after, centring.
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    x, y = _unit(x - x.mean()), _unit(y - y.mean())
    return float(np.clip(x @ y, -1.0, 1.0))


def spearman(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Spearman's correlation: Pearson's of the ranks, where ties share the average of their ranks."""
    return pearson(_ranks(_numbers("prediction", predictions)), _ranks(_numbers("label", labels)))


def _check_lengths(predictions: NDArray, labels: NDArray) -> None:
    if predictions.ndim != 1 or predictions.shape != labels.shape:
        raise QuothError(f"predictions {predictions.shape}, labels {labels.shape}: need two lists of one length")
    if not len(labels):
        raise QuothError("no predictions: nothing to score")


def _confusion(predictions: ArrayLike, labels: ArrayLike) -> tuple[int, int, int, int]:
    """Counts of (1, 1), (1, 0), (0, 1), (0, 0), prediction first."""
    predicted, gold = _numbers("prediction", predictions), _numbers("label", labels)
    _check_lengths(predicted, gold)
    for name, values in (("prediction", predicted), ("label", gold)):
        if not np.isin(values, (0, 1)).all():
            raise QuothError(f"{name} {values[~np.isin(values, (0, 1))][0]:g}: must be class 0 or 1")
    counts = np.bincount((2 * predicted + gold).astype(np.int64), minlength=4)
    return int(counts[3]), int(counts[2]), int(counts[1]), int(counts[0])


def _numbers(name: str, values: ArrayLike) -> Floats:
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise QuothError(f"{name}s: must be numbers for this metric") from None
    if not np.isfinite(numbers).all():
        place = int(np.argmin(np.isfinite(numbers)))
        raise QuothError(f"{name} {place} (counted from 0) is {numbers.flat[place]}: not a finite number")
    return numbers


def _unit(vector: Floats) -> Floats:
    """The vector at length 1, by way of its largest number, so that no square vanishes or overflows."""
    vector = vector / np.abs(vector).max()
    return vector / np.linalg.norm(vector)


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, (n,); equal values get the mean of the ranks that they fill."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[which]

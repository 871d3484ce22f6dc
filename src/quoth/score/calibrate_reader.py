"""Fitting a reader's calibration on datasets, and what it is worth on each of them, by fits that have not seen it.

Variants of a model are chosen by their scores on some data, and scores on the same data flatter the chosen one. So the
scores are also given for two halves of each dataset: choices are made on the first half of its articles, in the order
of the file, and what is reported of the other half has not been chosen by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from quoth.answer import Confidence, Reader
from quoth.answer.confidence import RIGHT
from quoth.answer.reader import Progress
from quoth.data import Dataset
from quoth.errors import QuothError
from quoth.score.calibrate import Float64s, Sample, cross_fit, fit_confidence, quality, reliability, sample

ProgressOf = Callable[[str], AbstractContextManager[Progress | None]]
"""From what is done to a context that shows how far it is."""
MOST = 1000.0  # the largest weight
KEPT = ("weight", "questions", "f1", "HasAns_f1", "NoAns_f1", "expected_calibration_error")  # in the model folder


def fit_reader(
    reader: Reader,
    datasets: Sequence[Dataset],
    names: Sequence[str],
    weights: Sequence[float] = (),
    progress: ProgressOf | None = None,
) -> tuple[Confidence, dict[str, Any]]:
    """Fit a reader's calibration. The facts of it are `calibration` itself and `cross_fitted`, as `report` has it.

    weights: of the datasets, each 1 if left out
    """
    show = progress or (lambda _: nullcontext())
    samples = []
    for dataset, name, weight in zip(datasets, names, weights or [1.0] * len(names), strict=True):
        with show(name) as tell:
            samples.append(replace(sample(reader, dataset.questions, name, progress=tell), weight=weight))
    scores = report(samples)
    fitted = {"cross_fitted": {name: {key: facts[key] for key in KEPT} for name, facts in scores.items()}}
    confidence = fit_confidence(samples)
    return replace(confidence, fitted=fitted), {"cross_fitted": scores, "calibration": confidence.to_json()}


def check_weights(weights: Sequence[float], count: int, where: str) -> None:
    """Refuse weights that are not one for each of `count` datasets, or not above 0."""
    if len(weights) != count:
        raise QuothError(f"{where}: has {len(weights)} weights for {count} files of questions; give one for each")
    wrong = next((weight for weight in weights if not 0 < weight <= MOST), None)
    if wrong is not None:
        raise QuothError(f"{where}: {wrong:g} is no weight; a number above 0 and at most {MOST:g} is wanted")


def report(samples: Sequence[Sample]) -> dict[str, dict[str, Any]]:
    """Of each sample its `quality`, cross-fitted by article, its weight, and

    - reliability: ten bins of equal mass: how many, the mean probability, the share that was right
    - first_half, second_half: the quality on halves of its articles, where it has two or more
    - left_out_f1: F1 by a fit on all other samples, where these suffice for one
    """
    found = {}
    for i, (one, p) in enumerate(zip(samples, cross_fit(samples))):
        facts = {"weight": one.weight, **quality(one, p)}
        right = (one.outcome == RIGHT).astype(np.float64)
        facts["reliability"] = reliability(p[:, RIGHT], right)
        first = one.article < (one.article.max() + 2) // 2
        if not first.all():
            facts["first_half"], facts["second_half"] = (quality(one.part(half), p[half]) for half in (first, ~first))
        facts["left_out_f1"] = _left_out_f1(one, [*samples[:i], *samples[i + 1 :]])
        found[one.name] = facts
    return found


def _left_out_f1(one: Sample, others: Sequence[Sample]) -> float | None:
    try:
        p: Float64s = fit_confidence(others).probabilities(one.values)
    except QuothError:  # there are no others, or too few kinds of outcomes in them
        return None
    f1: float = quality(one, p)["f1"]
    return f1

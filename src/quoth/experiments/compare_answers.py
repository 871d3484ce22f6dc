"""The score of every question, from the answers that runs have kept: what intervals and paired tests are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quoth.answer import Abstention, best_threshold, risk_coverage
from quoth.answer.record import read_answers
from quoth.data import Dataset
from quoth.errors import QuothError
from quoth.experiments.run_results import Result
from quoth.score.seeds import Groups, group_questions
from quoth.score.squad import score_squad2
from quoth.score.thresholds import Choices

Floats = NDArray[np.float64]

METRICS = ("f1", "exact", "best_f1")  # that are means over questions
CLOSE = 0.01  # points by which the scores of stored answers and of metrics.json may differ
POINTS = 100  # of a curve of risk and coverage, at most


@dataclass(frozen=True, eq=False)
class Answered:
    """The scores of one result: by metric (Q,) from 0 to 1; curve: coverage and risk, (K,) each."""

    scores: dict[str, Floats]
    curve: tuple[list[float], list[float]]


@dataclass(frozen=True, eq=False)
class Answers:
    """All results with answers, by their folders. groups: which questions belong together."""

    dataset: Dataset
    groups: Groups
    answered: dict[str, Answered]

    def scores(self, results: Sequence[Result], metric: str) -> Floats | None:
        """(S, Q), a row a result; None if one of them has no answers, or not this metric."""
        found = [self.answered.get(str(result.folder)) for result in results]
        rows = [one.scores[metric] for one in found if one is not None and metric in one.scores]
        return np.stack(rows) if rows and len(rows) == len(results) else None


def score_answers(
    dataset: Dataset, results: Sequence[Result], progress: Callable[[int, int], None] = lambda done, all: None
) -> Answers:
    """Score the answers of results on their questions, by the official rule.

    best_f1 is at the best threshold of each run on these very questions, as in metrics.json.
    """
    questions = dataset.questions
    groups = group_questions([q.title for q in questions], [q.context for q in questions])
    abstained = score_squad2(questions, {question.id: "" for question in questions})
    found = {}
    for done, result in enumerate(results):
        progress(done, len(results))
        if result.answers is not None:
            recorded = read_answers(result.answers).of([question.id for question in questions])
            texts = dict(zip(recorded.ids, recorded.predictions(np.inf)))
            these = Choices(score_squad2(questions, texts), abstained, recorded.null_minus_best)
            found[str(result.folder)] = _answered(these, dataset.version)
            _check(result, found[str(result.folder)], dataset)
    return Answers(dataset, groups, found)


def _answered(these: Choices, version: str) -> Answered:
    limit = Abstention(0.0).limit("1.1" if version == "1.1" else "2.0")
    scored = these.at(limit)
    scores = {"f1": scored.f1, "exact": scored.exact}
    if version != "1.1":
        best = best_threshold(these.answered.f1, these.abstained.f1, these.margin).value
        scores["best_f1"] = these.at(best).f1
    finite = np.nan_to_num(these.margin, posinf=np.finfo(np.float64).max)
    confidence = np.abs(finite - limit) if np.isfinite(limit) else -finite
    coverage, risk = risk_coverage(confidence, scored.f1)
    some = np.unique(np.linspace(0, len(coverage) - 1, POINTS).round().astype(int))
    return Answered(scores, (coverage[some].tolist(), risk[some].tolist()))


def _check(result: Result, found: Answered, dataset: Dataset) -> None:
    """The stored answers must give the stored score: else the data have changed."""
    stored, now = result.quality.get("f1"), 100 * float(found.scores["f1"].mean())
    if stored is not None and abs(stored - now) > CLOSE:
        source = dataset.report.source
        raise QuothError(
            f"{result.answers}: has F1 {now:.2f} on {source}, but metrics.json says {stored:.2f}; "
            "has the file changed? --data names the questions that were evaluated on"
        )

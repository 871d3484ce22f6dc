"""The score of every question, from the answers that runs have kept: what intervals and paired tests are made of.

Where runs are stored without their answers, scores.json.gz has these scores: no questions are needed to read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quoth.answer import Abstention, best_threshold, risk_coverage
from quoth.answer.record import read_answers
from quoth.data import Dataset
from quoth.data.source import parse_json, read_source
from quoth.errors import QuothError
from quoth.experiments.run_results import Result, finite, known, text, whole
from quoth.files import write_text
from quoth.score.analysis import abstentions, outcome, second_answers
from quoth.score.seeds import Groups, group_questions
from quoth.score.squad import Scored, score_squad2
from quoth.score.thresholds import Choices

Floats = NDArray[np.float64]

METRICS = ("f1", "exact", "best_f1")  # that are means over questions
CLOSE = 0.01  # points by which the scores of stored answers and of metrics.json may differ
POINTS = 100  # of a curve of risk and coverage, at most
FORMAT = 1
SHARES = ("called_no_answer", "second_right")  # of errors, in per cent: figure 4 of BERTVision


@dataclass(frozen=True, eq=False)
class Answered:
    """The scores of one result: by metric (Q,) from 0 to 1; curve: coverage and risk, (K,) each.

    HasAns_f1 and NoAns_f1 are those of the questions with and without an answer: 0 for the others, and more for these,
    so that the mean over all questions is that over these.
    """

    scores: dict[str, Floats]
    curve: tuple[list[float], list[float]]


@dataclass(frozen=True, eq=False)
class Answers:
    """All results with answers, by their folders. groups: which questions belong together."""

    groups: Groups
    answered: dict[str, Answered]

    def scores(self, results: Sequence[Result], metric: str) -> Floats | None:
        """(S, Q), a row a result; None if one of them has no answers, or not this metric."""
        found = [self.answered.get(str(result.folder)) for result in results]
        rows = [one.scores[metric] for one in found if one is not None and metric in one.scores]
        return np.stack(rows) if rows and len(rows) == len(results) else None


def score_answers(
    dataset: Dataset | None,
    results: Sequence[Result],
    progress: Callable[[int, int], None] = lambda done, all: None,
) -> Answers | None:
    """The scores of results by the official rule: from their answers to the questions, else as they were stored.

    best_f1 is at the best threshold of each run on these very questions, as in metrics.json. None if there is nothing.
    """
    groups = grouped(dataset) if dataset else None
    abstained = score_squad2(dataset.questions, {q.id: "" for q in dataset.questions}) if dataset else None
    found = {}
    for done, result in enumerate(results):
        progress(done, len(results))
        if dataset and abstained and result.answers is not None:
            found[str(result.folder)] = answered = _scored(dataset, abstained, result.answers)
            _check(result, answered, dataset)
        elif result.scores is not None:
            theirs, found[str(result.folder)] = read_scores(result.scores)
            groups = groups or theirs
            _check_groups(result.scores, groups, theirs)
    return Answers(groups, found) if groups else None


def grouped(dataset: Dataset) -> Groups:
    """Which questions belong together."""
    return group_questions([q.title for q in dataset.questions], [q.context for q in dataset.questions])


def _scored(dataset: Dataset, abstained: Scored, path: Path) -> Answered:
    recorded = read_answers(path).of([question.id for question in dataset.questions])
    texts = dict(zip(recorded.ids, recorded.predictions(np.inf)))
    these = Choices(score_squad2(dataset.questions, texts), abstained, recorded.null_minus_best)
    return _answered(these, dataset.version)


def write_scores(path: Path, dataset: Dataset, answers: Path) -> None:
    """Write the scores of answers, for runs that are stored without them."""
    abstained = score_squad2(dataset.questions, {question.id: "" for question in dataset.questions})
    found, groups = _scored(dataset, abstained, answers), grouped(dataset)
    rounded = {name: np.round(values, 5).tolist() for name, values in found.scores.items()}
    curve = [np.round(values, 5).tolist() for values in found.curve]
    facts = {"format": FORMAT, "groups": groups.number.tolist(), "what": groups.what, "scores": rounded, "curve": curve}
    facts["shares"] = error_shares(dataset, answers)
    write_text(path, json.dumps(facts, separators=(",", ":")))


def error_shares(dataset: Dataset, answers: Path) -> dict[str, float | None]:
    """How many wrong answers to questions with an answer are "no answer", and how often the second answer is right."""
    run = outcome(answers.parent.name, dataset.questions, read_answers(answers))
    second = second_answers(dataset.questions, run)["second"]["all"]["share"]
    return dict(zip(SHARES, (abstentions(run)["called_no_answer"]["share"], second)))


def read_shares(path: Path) -> dict[str, float | None]:
    """The same, as `write_scores` wrote it."""
    facts = parse_json(read_source(path), str(path))
    with known(path):
        return {name: None if facts["shares"][name] is None else finite(facts["shares"][name]) for name in SHARES}


def read_scores(path: Path) -> tuple[Groups, Answered]:
    """What `write_scores` wrote."""
    facts = parse_json(read_source(path), str(path))
    with known(path):
        if facts["format"] != FORMAT:
            raise QuothError(f"{path}: format {facts['format']!r} is not {FORMAT}, which this version reads")
        number = np.array([whole(group) for group in facts["groups"]], np.int64)
        every = {text(name): np.array([finite(x) for x in values]) for name, values in facts["scores"].items()}
        coverage, risk = ([finite(x) for x in values] for values in facts["curve"])
        count = len(number)
        if not count or number.min() < 0 or number.max() >= count or any(len(x) != count for x in every.values()):
            raise ValueError(count)
        return Groups(text(facts["what"]), number), Answered(every, (coverage, risk))


def _check_groups(path: Path, ours: Groups, theirs: Groups) -> None:
    if ours.what != theirs.what or not np.array_equal(ours.number, theirs.number):
        raise QuothError(f"{path}: has the scores of other questions than the rest; compare them apart")


def _answered(these: Choices, version: str) -> Answered:
    limit = Abstention(0.0).limit("1.1" if version == "1.1" else "2.0")
    scored = these.at(limit)
    scores = {"f1": scored.f1, "exact": scored.exact}
    has = scored.has_answer
    for name, part in (("HasAns_f1", has), ("NoAns_f1", ~has)):
        if part.any():
            scores[name] = np.where(part, scored.f1, 0.0) * len(has) / part.sum()
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

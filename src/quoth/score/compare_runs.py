"""Several runs on the same questions: what only one gets right, what the best of them would score, which is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quoth.answer import Abstention
from quoth.answer.record import Recorded
from quoth.data import Dataset, Question
from quoth.score.analysis import Outcome, lengths, outcome, run_facts
from quoth.score.significance import RESAMPLES, compare
from quoth.score.slices import slicings


def analyse_runs(
    dataset: Dataset,
    recorded: Sequence[tuple[str, Recorded]],
    threshold: float | Literal["best"] | None = None,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """Named runs on the same questions: what `quoth analyse --json` prints, but for the layer weights.

    threshold: left out, 0 where questions may have no answer, else a run never abstains; "best" is each run's own
    """
    questions = dataset.questions
    limit = Abstention(0.0).limit(dataset.version) if threshold is None else threshold
    runs = [outcome(name, questions, answers, limit) for name, answers in recorded]
    parts = slicings(questions)
    facts: dict[str, Any] = {"data": dataset.report.source, "questions": len(questions)}
    facts["runs"] = [run_facts(questions, run, parts, resamples) for run in runs]
    if len(runs) > 1:
        facts["together"] = together_facts(questions, runs, resamples)
    return facts


def together_facts(
    questions: Sequence[Question], runs: Sequence[Outcome], resamples: int = RESAMPLES
) -> dict[str, Any]:
    """All that is known of R > 1 runs together, ready for JSON.

    - oracle: the official keys if every question were answered by the best of the runs
    - all_right, none_right: questions that every run, and that no run gets right
    - both_right: R rows of R counts, the questions that two runs both get right; the diagonal is each run's own
    - uniquely_right: for each run its questions that no other run gets right, and their mean lengths (BERTVision, §4.3:
      contexts of 175 tokens where only BERT is right, of 162 where only the head is)
    - against_first: each later run minus the first, paired by question
    """
    rights = np.array([run.right for run in runs])
    counts = rights.astype(np.int64)
    return {
        "oracle": oracle(runs),
        "all_right": int(rights.all(axis=0).sum()),
        "none_right": int((~rights.any(axis=0)).sum()),
        "both_right": (counts @ counts.T).tolist(),
        "uniquely_right": [
            {
                "run": run.name,
                **lengths(questions, alone),
                "ids": [question.id for question, yes in zip(questions, alone) if yes],
            }
            for run, alone in zip(runs, uniquely_right(rights))
        ],
        "against_first": [_against(run, runs[0], resamples) for run in runs[1:]],
    }


def uniquely_right(rights: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(R, Q): where a run is right and no other is."""
    return np.asarray(rights & (rights.sum(axis=0) == 1))


def oracle(runs: Sequence[Outcome]) -> dict[str, float]:
    """The official keys for the best of the runs at each question, exact and F1 each."""
    exact = np.max([run.scored.exact for run in runs], axis=0)
    f1 = np.max([run.scored.f1 for run in runs], axis=0)
    return replace(runs[0].scored, exact=exact, f1=f1).summary()


def _against(ours: Outcome, theirs: Outcome, resamples: int) -> dict[str, Any]:
    """Ours − theirs in per cent, with interval and p-value."""
    a, b = ours.scored, theirs.scored
    exact, f1 = compare(a.exact, b.exact, resamples=resamples), compare(a.f1, b.f1, resamples=resamples)
    return {"run": ours.name, "exact": exact.to_json(), "f1": f1.to_json()}

"""The quality of the answers to a dataset: the official scores at one threshold, and at the best one."""

from __future__ import annotations

import math

from quoth.answer import Abstention, Decoded
from quoth.data import Dataset
from quoth.score.squad import Scored, best_thresholds, score_squad2

# What people are shown of all scores, those of classes too (`quoth.score.glue`).
NAMES = {
    "exact": "exact",
    "f1": "F1",
    "best_f1": "F1 at the best threshold",
    "acc": "accuracy",
    "mcc": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "mlm_loss": "MLM loss",
    "mlm_accuracy": "MLM accuracy",
    "perplexity": "perplexity",
    "nsp_accuracy": "NSP accuracy",
}


def span_quality(
    dataset: Dataset, decoded: Decoded, threshold: float | None = None
) -> tuple[Scored, dict[str, float | None]]:
    """The score of every question at `threshold`, and the summary by the official keys.

    Where questions may have no answer, the summary has the best thresholds too, and `answered_f1`: F1 on the questions
    with an answer if the reader never abstains.
    """
    limit = Abstention(0.0).limit(dataset.version) if threshold is None else threshold
    ids = [question.id for question in dataset.questions]
    # as `quoth score` does, for 1.1 too
    scored = score_squad2(dataset.questions, dict(zip(ids, decoded.predictions(limit))))
    summary: dict[str, float | None] = dict(scored.summary())
    if dataset.version == "1.1":  # every question has an answer: there is no threshold to judge
        return scored, summary
    best_spans = dict(zip(ids, decoded.predictions(math.inf)))
    always = score_squad2(dataset.questions, best_spans)
    summary |= best_thresholds(always, best_spans, dict(zip(ids, decoded.finite_margins())))
    summary["threshold"] = limit if math.isfinite(limit) else None
    if always.has_answer.any():
        summary["answered_f1"] = 100 * float(always.f1[always.has_answer].mean())
    return scored, summary

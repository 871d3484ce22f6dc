"""Answers: `Reader`, decoding, abstention and its calibration, the rule of transformers' pipeline."""

from quoth.answer.abstention import Abstention, store_abstention
from quoth.answer.calibration import (
    Threshold,
    area_under_risk_coverage,
    best_threshold,
    expected_calibration_error,
    fit_calibration,
    risk_coverage,
)
from quoth.answer.confidence import Confidence, store_confidence
from quoth.answer.decode import Answer, Decoded, Rule, decode
from quoth.answer.find import Hit, SearchResult
from quoth.answer.judge import judge
from quoth.answer.reader import Reader
from quoth.runtime.logits import SpanLogits

__all__ = [
    "Abstention",
    "Answer",
    "Confidence",
    "Decoded",
    "Hit",
    "Reader",
    "Rule",
    "SearchResult",
    "SpanLogits",
    "Threshold",
    "area_under_risk_coverage",
    "best_threshold",
    "decode",
    "expected_calibration_error",
    "fit_calibration",
    "judge",
    "risk_coverage",
    "store_abstention",
    "store_confidence",
]

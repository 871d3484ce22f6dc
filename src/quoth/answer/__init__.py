"""Answers: `Reader`, decoding spans, "no answer" and its calibration, the rule of the old pipeline."""

from quoth.answer.abstention import Silence, store_silence
from quoth.answer.answer import Answer
from quoth.answer.calibration import (
    Calibration,
    Threshold,
    area_under_risk_coverage,
    best_threshold,
    expected_calibration_error,
    fit_calibration,
    risk_coverage,
)
from quoth.answer.decode import Decoded, Rule, decode
from quoth.answer.documents import Found, Hit
from quoth.answer.pipeline_rule import pipeline_answers
from quoth.answer.reader import Reader
from quoth.errors import QuothWarning
from quoth.runtime.logits import SpanLogits

__all__ = [
    "Answer",
    "Calibration",
    "Decoded",
    "Found",
    "Hit",
    "QuothWarning",
    "Reader",
    "Rule",
    "Silence",
    "SpanLogits",
    "Threshold",
    "area_under_risk_coverage",
    "best_threshold",
    "decode",
    "expected_calibration_error",
    "fit_calibration",
    "pipeline_answers",
    "risk_coverage",
    "store_silence",
]

"""Answers: `Reader`, decoding spans, "no answer" and its calibration, the rule of the old pipeline."""

from laconic.answer.decode import Decoded, Rule, decode
from laconic.answer.null import (
    Calibration,
    Threshold,
    area_under_risk_coverage,
    best_threshold,
    expected_calibration_error,
    fit_calibration,
    risk_coverage,
)
from laconic.answer.pipeline_rule import pipeline_answers
from laconic.answer.reader import Reader
from laconic.answer.search import Found, Hit
from laconic.answer.silence import Silence, store_silence
from laconic.answer.spans import Answer, LaconicWarning, SpanLogits

__all__ = [
    "Answer",
    "Calibration",
    "Decoded",
    "Found",
    "Hit",
    "LaconicWarning",
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

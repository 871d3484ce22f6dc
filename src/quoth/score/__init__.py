"""Official metrics, their intervals and significance, costs, error analysis. Runs on numpy alone."""

from quoth.data import normalise
from quoth.score.cost import Cost, file_bytes, hardware, peak_memory
from quoth.score.glue import glue_score
from quoth.score.quality import default_threshold, span_quality
from quoth.score.significance import Comparison, Interval, bootstrap, compare
from quoth.score.squad import Gold, Scored, average_precisions, best_thresholds, score_squad1, score_squad2

__all__ = [
    "Comparison",
    "Cost",
    "Gold",
    "Interval",
    "Scored",
    "average_precisions",
    "best_thresholds",
    "bootstrap",
    "compare",
    "default_threshold",
    "file_bytes",
    "glue_score",
    "hardware",
    "normalise",
    "peak_memory",
    "score_squad1",
    "score_squad2",
    "span_quality",
]

"""Official metrics, their intervals and significance, costs, error analysis. Runs on numpy alone."""

from quoth.score.cost import Cost, file_bytes, hardware, peak_memory
from quoth.score.glue import glue_score
from quoth.score.quality import span_quality
from quoth.score.significance import bootstrap, compare
from quoth.score.squad import Scored, average_precisions, best_thresholds, score_squad1, score_squad2

__all__ = [
    "Cost",
    "Scored",
    "average_precisions",
    "best_thresholds",
    "bootstrap",
    "compare",
    "file_bytes",
    "glue_score",
    "hardware",
    "peak_memory",
    "score_squad1",
    "score_squad2",
    "span_quality",
]

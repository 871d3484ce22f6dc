"""More training data: unanswerable questions, pairs without a label, styles of questions, layouts of passages."""

from quoth.augment.base import Negative
from quoth.augment.layouts import relayout
from quoth.augment.negatives import as_squad, make_negatives
from quoth.augment.styles import restyle
from quoth.augment.unlabelled import make_unlabelled

__all__ = ["Negative", "as_squad", "make_negatives", "make_unlabelled", "relayout", "restyle"]

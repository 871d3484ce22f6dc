"""Unanswerable questions made from answerable ones; pairs of question and passage without a label."""

from quoth.augment.base import Negative
from quoth.augment.negatives import as_squad, make_negatives
from quoth.augment.unlabelled import make_unlabelled

__all__ = ["Negative", "as_squad", "make_negatives", "make_unlabelled"]

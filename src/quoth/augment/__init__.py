"""Unanswerable questions made from answerable ones."""

from quoth.augment.base import Negative
from quoth.augment.negatives import as_squad, make_negatives

__all__ = ["Negative", "as_squad", "make_negatives"]

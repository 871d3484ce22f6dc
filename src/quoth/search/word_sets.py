"""Sets of words, written as one text each."""

from __future__ import annotations


def word_set(*lines: str) -> frozenset[str]:
    """The words of some lines."""
    return frozenset(" ".join(lines).split())

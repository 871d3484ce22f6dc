"""`Answer`: what a reader gives to people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """An answer in the words of its source: `context[start:end] == text`, always.

    If `no_answer`, the text is empty, start and end are 0 and the score is that of the null answer.
    """

    text: str
    start: int
    end: int
    score: float
    no_answer: bool = False

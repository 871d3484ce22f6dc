"""The values that reading gives: questions with their gold answers, and a report of what was found wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Version = Literal["1.1", "2.0"]


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold answer that stands in the context: `context[start : start + len(text)] == text`."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """The character past the last one of the answer."""
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its passage and what annotators answered.

    - `answers`: the golds that can be pointed at in the context; training uses the first
    - `impossible`: the passage does not answer it; then `answers` is empty
    - `gold_texts`: every annotated text as given, in order, also those that `answers` had to leave out: what
      the official score compares with. Left out, it is the texts of `answers`.
    """

    id: str
    question: str
    context: str
    answers: tuple[Gold, ...]
    impossible: bool = False
    title: str = ""
    gold_texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.answers and not self.gold_texts:
            object.__setattr__(self, "gold_texts", tuple(gold.text for gold in self.answers))

    @property
    def trainable(self) -> bool:
        """Whether training can use it: it has a gold in the context, or is known to have no answer."""
        return self.impossible or bool(self.answers)


@dataclass(frozen=True)
class Report:
    """What reading found, by question id (by line for GLUE). Nothing is dropped without standing here.

    - `read`: how many questions (or rows) were read; `unanswerable`: how many of them are impossible
    - `repaired`: an answer was not at its offset (or had none) and was moved to its only occurrence
    - `partial`: an answer could not be placed and was left out of `answers`; another one of the question remains
    - `skipped`: no answer could be placed; the question is kept for scoring but is not `trainable` (for GLUE:
      the row lacks a column or a label and is not in the data)
    - `contradictory`: marked impossible, yet with answers; taken as impossible, the texts kept in `gold_texts`
    """

    source: str
    read: int = 0
    unanswerable: int = 0
    repaired: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    contradictory: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """A summary for people: what was read, then a line for each kind of trouble with some of its ids."""
        known = f", {self.unanswerable:,} of them unanswerable" if self.unanswerable else ""
        lines = [f"{self.source}: {self.read:,} read{known}"]
        for ids, what in (
            (self.repaired, "answer not at its offset, moved to its only occurrence"),
            (self.partial, "an answer that cannot be placed left out, others kept"),
            (self.skipped, "no usable answer or label, skipped in training"),
            (self.contradictory, "marked impossible but with answers, taken as impossible"),
        ):
            if ids:
                some = ", ".join(ids[:5]) + (", …" if len(ids) > 5 else "")
                lines.append(f"  {len(ids):,} {what}: {some}")
        return lines


@dataclass(frozen=True)
class Dataset:
    """All questions of a source, in its order, and the report of reading them.

    Every question is here, for answering and scoring. Training takes `trainable`.
    `version` is "2.0" if a question is impossible or the source says that one may be.
    """

    questions: list[Question]
    report: Report
    version: Version

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def trainable(self) -> list[Question]:
        """The questions that training can use; those left out are `report.skipped`."""
        return [question for question in self.questions if question.trainable]


@dataclass(frozen=True)
class Sentences:
    """A GLUE split: n sentences or pairs with labels.

    - `first`, `second`: n texts each; `second` is None where the task has single sentences
    - `labels`: (n,) int64 indices into `names`, or (n,) float64 scores (STS-B, `names` empty); None for a test split
    """

    task: str
    first: list[str]
    second: list[str] | None
    labels: np.ndarray | None
    names: tuple[str, ...]
    report: Report

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, slots=True)
class Raw:
    """A question as a file has it, before it is checked. `impossible` is None where the file does not say."""

    id: str
    question: str
    context: str
    golds: Sequence[tuple[str, int | None]]
    impossible: bool | None = None
    title: str = ""

"""`[data]` of a recipe: which examples, and how they become windows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from quoth.config import check_value


@dataclass(frozen=True)
class Negatives:
    """Unanswerable questions made from the training data, each kind as a part of its questions.

    As in `quoth.augment.negatives`: asked of another passage of the article (moved) or of a look-alike anywhere, with
    another name or number (entity), or turned round (negation)
    """

    moved: float = 0.0
    lookalike: float = 0.0
    entity: float = 0.0
    negation: float = 0.0

    def check(self, task: str) -> None:
        """Refuse parts that are none, and a task that has no questions."""
        for name, part in asdict(self).items():
            check_value(0 <= part <= 1, f"data.negatives.{name}", part, "a part of the questions, from 0 to 1")
            check_value(
                part == 0 or task in ("span", "answerable"),
                f"data.negatives.{name}",
                part,
                f"0 with data.task {task!r}",
            )


@dataclass(frozen=True)
class Data:
    """Which questions, and how they become windows.

    task: "span", answers to find; "answerable", whether there is one; "glue", classes of sentences in GLUE's tables;
    "pretrain", masked words and following pieces of plain text
    train: files or hub datasets (`name:split`), one or a list; evaluate: one, or "" for none
    fraction: of the training questions, drawn by the seed; a smaller fraction is a part of a larger one
    held_out: of plain text, the part of the paragraphs to evaluate on, drawn by the seed, where `evaluate` is ""
    max_length, step, question_limit: of the windows, as in `quoth.windows.make_windows`
    negatives: unanswerable questions to add to those of train, drawn by the seed from what `fraction` leaves
    """

    train: tuple[str, ...]
    evaluate: str = ""
    task: Literal["span", "answerable", "glue", "pretrain"] = "span"
    fraction: float = 1.0
    held_out: float = 0.0
    max_length: int = 384
    step: int = 128
    question_limit: int = 64
    negatives: Negatives = Negatives()

    def window_settings(self) -> dict[str, int]:
        """What a model folder remembers of its windows."""
        return {"max_length": self.max_length, "step": self.step, "question_limit": self.question_limit}

"""The tasks "glue", classes of sentences, and "answerable", whether a passage answers a question at all.

"No answer" is class 1, the positive class of F1. As in BERTVision (Jiang et al. 2022, §2.7) a window that does not hold
the whole answer is labelled "no answer", and a question is "no answer" if any of its windows says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from quoth.data import Question, read, read_glue
from quoth.encoder import Device
from quoth.errors import QuothError
from quoth.model import Model
from quoth.score import glue_score
from quoth.score.glue import accuracy, f1
from quoth.tasks.examples import ClassExamples, read_questions, split_groups
from quoth.tasks.seeds import sample
from quoth.tasks.settings import Data
from quoth.tasks.task import Evaluated, Task, kl_rows, register_task, windows_of
from quoth.windows import Packed, Tokenizer, Windows, by_length, span_labels
from quoth.windows.packed import NOTHING
from quoth.windows.sentences import make_pairs
from quoth.windows.stored import stored_windows

MAIN = ("acc", "mcc", "pearson", "f1")  # the first that the task has is its main score


@dataclass(frozen=True)
class Classification(Task):
    """Rows with classes: what both tasks share.

    metrics: GLUE's name of the task, or "answerable"; classes: their names, none for scores (STS-B)
    passages: that the rows ask about, where they are questions
    """

    head_task: ClassVar[str] = "class"
    outputs: ClassVar[str] = "classes"
    cacheable: ClassVar[bool] = True

    metrics: str
    classes: tuple[str, ...]
    examples: ClassExamples
    evaluation: ClassExamples | None = None
    negatives: dict[str, int] = field(default_factory=dict)
    passages: list[str] = field(default_factory=list)

    @classmethod
    def describe_head(cls, head: Any) -> str:
        """Heads with the same number of classes give the same."""
        return f"{head.to_json()['labels']} class(es)"

    @property
    def labels(self) -> int:
        """How many logits a head needs: one for scores (STS-B)."""
        return len(self.classes) or 1

    def check_head(self, where: str, head: Any) -> None:
        """Refuse another number of labels."""
        found = head.to_json()["labels"]
        if found != self.labels:
            raise QuothError(f"recipe: {where} has {found} label(s), but the data want {self.labels}")

    def loss(self, output: Tensor, packed: Packed[Tensor], labels: Tensor) -> Tensor:
        """The sum over windows of the cross-entropy; with one logit, of the squared error. output: (n, classes)."""
        if output.shape[1] == 1:
            return torch.where(labels == NOTHING, 0, (output[:, 0].float() - labels.float()) ** 2).sum()
        return F.cross_entropy(output.float(), labels, reduction="sum")

    def distillation_loss(self, student: Tensor, teacher: Tensor, packed: Packed[Tensor], temperature: float) -> Tensor:
        """Over the classes; with one logit, the squared error."""
        if student.shape[1] == 1:
            return packed.real((student.float() - teacher.float()) ** 2).sum()  # type: ignore[no-any-return]
        return packed.real(kl_rows(student, teacher, temperature)).sum()  # type: ignore[no-any-return]

    def evaluate(self, model: Model, device: Device) -> Evaluated:
        """Classify and score."""
        windows = windows_of(self.evaluation)
        begin = time.perf_counter()
        logits = class_logits(model, windows, device)
        seconds = time.perf_counter() - begin
        return Evaluated({**self.quality(logits), "seconds": seconds, "windows": len(windows)})

    def score(self, batches: Iterable[tuple[np.ndarray, Sequence[Tensor]]], heads: int) -> list[Evaluated]:
        """Scores of several heads."""
        order, found = [], []
        for indices, outputs in batches:
            order.append(indices)
            found.append([logits.float().cpu().numpy() for logits in outputs])
        back = np.argsort(np.concatenate(order))
        whole = [np.concatenate([outputs[head] for outputs in found])[back] for head in range(heads)]
        return [Evaluated(self.quality(logits)) for logits in whole]

    def quality(self, logits: np.ndarray) -> dict[str, float]:
        """The official metrics in per cent, by GLUE's names. logits: (n, classes) of the evaluation's windows."""
        assert self.evaluation is not None
        rows, wanted = self.evaluation.windows.question, self.evaluation.classes
        if self.labels == 1:
            predicted: np.ndarray = logits[:, 0]
        else:
            predicted = np.zeros(len(wanted), np.int64)
            np.maximum.at(predicted, rows, logits.argmax(1))  # any window that says "no answer"
        if self.metrics == "answerable":
            return {"exact": 100 * accuracy(predicted, wanted), "f1": 100 * f1(predicted, wanted)}
        return {name: 100 * value for name, value in glue_score(self.metrics, predicted, wanted).items()}

    def main_score(self, quality: dict[str, Any]) -> tuple[str, float]:
        """Accuracy, or what GLUE has in its place."""
        name = next(name for name in MAIN if name in quality)
        return name, float(quality[name])

    def hold_out(self, part: float, most: int, seed: int) -> Any:
        """Rows, or whole passages of questions, are held out, and nothing that was made up."""
        count = int(self.examples.windows.question[-1]) + 1
        groups: list[Any] = list(self.passages) or list(range(count))
        rest, out = split_groups(groups, sum(self.negatives.values()), min(part, most / count), seed)
        return replace(self, examples=self.examples.of_questions(rest), evaluation=self.examples.of_questions(out))


@register_task
@dataclass(frozen=True)
class AnswerableTask(Classification):
    """Whether there is an answer: questions of SQuAD 2.0, class 0 with an answer, class 1 without."""

    name: ClassVar[str] = "answerable"
    has_questions: ClassVar[bool] = True

    @classmethod
    def prepare(
        cls, data: Data, tokenizer: Tokenizer, model: Model, seed: int, max_answer_tokens: int
    ) -> AnswerableTask:
        """Read and tokenise the questions of a recipe."""
        found = read_questions(data, seed)
        task = cls(
            "answerable",
            ("answer", "no_answer"),
            _answerable(found.asked, data, tokenizer),
            negatives=found.made,
            passages=found.passages,
        )
        if not data.evaluate:
            return task
        questions = read(data.evaluate).questions
        if not questions:
            raise QuothError(f"{data.evaluate}: has no questions")
        return replace(task, evaluation=_answerable(questions, data, tokenizer))


@register_task
@dataclass(frozen=True)
class GlueTask(Classification):
    """Sentences and pairs of sentences in GLUE's tables."""

    name: ClassVar[str] = "glue"

    @classmethod
    def prepare(cls, data: Data, tokenizer: Tokenizer, model: Model, seed: int, max_answer_tokens: int) -> GlueTask:
        """Read and tokenise the tables of a recipe."""
        if len(data.train) != 1:
            raise QuothError(f"data: a GLUE task is one table, {len(data.train)} were given")
        task = cls(*_table(data.train[0], data, tokenizer))
        if data.fraction < 1:
            rows = np.array(sample(range(len(task.examples)), data.fraction, seed))
            task = replace(task, examples=task.examples.of_questions(rows))
        if not data.evaluate:
            return task
        metrics, _, evaluation = _table(data.evaluate, data, tokenizer)
        if metrics != task.metrics:
            raise QuothError(f"recipe: data.train is {task.metrics}, but data.evaluate is {metrics}")
        return replace(task, evaluation=evaluation)


def _answerable(questions: list[Question], data: Data, tokenizer: Tokenizer) -> ClassExamples:
    """Windows labelled 0 if they hold the whole answer, else 1; `NOTHING` where it is not known where the answer is."""
    windows = stored_windows(questions, tokenizer, data.window_settings())
    labels = np.where(span_labels(windows, questions).any(1), 0, 1)
    labels[[not questions[number].trainable for number in windows.question]] = NOTHING
    return ClassExamples(windows, labels, np.array([int(question.impossible) for question in questions]))


def _table(source: str, data: Data, tokenizer: Tokenizer) -> tuple[str, tuple[str, ...], ClassExamples]:
    """A table of GLUE: the task's name, its classes, one window a row."""
    sentences = read_glue(source)
    if sentences.labels is None:
        raise QuothError(f"{source}: has no labels; a test split cannot be trained on or scored")
    windows = make_pairs(sentences, tokenizer, max_length=data.max_length)
    return sentences.task, sentences.names, ClassExamples(windows, sentences.labels[windows.question], sentences.labels)


@torch.inference_mode()
def class_logits(model: Model, windows: Windows, device: Device) -> np.ndarray:
    """Logits of all windows, (n, classes) float32, in batches of similar length."""
    model.to(device.place).eval()
    found: np.ndarray | None = None
    for indices in by_length(windows.lengths, device.token_budget(windows.lengths)):
        packed = windows.packed(indices).to(device.place)
        with device.autocast():
            logits = model(packed).float().cpu().numpy()
        found = np.empty((len(windows), logits.shape[1]), np.float32) if found is None else found
        found[indices] = logits
    if found is None:
        raise QuothError("there are no rows to classify")
    return found

"""The task "span": find the answer to a question in its passage, or say that there is none."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from quoth.answer import Reader, decode
from quoth.answer.record import write_answers
from quoth.data import Dataset, Question, Report, read
from quoth.data.dataset import Version
from quoth.encoder import Device
from quoth.encoder.steps import have_kernels
from quoth.errors import QuothError
from quoth.model import Model
from quoth.runtime.logits import SpanLogits
from quoth.runtime.runner import over_windows
from quoth.runtime.torch_runner import TorchRunner
from quoth.score import span_quality
from quoth.tasks.examples import Examples, read_questions, split_groups
from quoth.tasks.settings import Data
from quoth.tasks.task import Evaluated, Progress, Task, register_task, windows_of
from quoth.windows import Packed, Tokenizer, Windows, span_labels
from quoth.windows.alignment import matching_windows, onto_tokens, reading_identity
from quoth.windows.packed import NOTHING
from quoth.windows.stored import stored_windows

Span = tuple[Tensor, Tensor]  # start and end logits, (T,) each


@register_task
@dataclass(frozen=True)
class SpanTask(Task):
    """Questions whose answers are spans. questions: those trained on; dataset: those evaluated on.

    unlabelled: how many of the questions, the last ones, have no label, by kind; max_query_length: of the windows
    passages: those of `questions` as the data have them, before data.layouts
    """

    name: ClassVar[str] = "span"
    head_task: ClassVar[str] = "span"
    outputs: ClassVar[str] = "spans"
    has_questions: ClassVar[bool] = True
    keeps_logits: ClassVar[bool] = True

    examples: Examples
    questions: list[Question]
    tokenizer: Tokenizer
    max_answer_tokens: int = 30
    negatives: dict[str, int] = field(default_factory=dict)
    dataset: Dataset | None = None
    evaluation: Examples | None = None
    version: Version = "2.0"
    unlabelled: dict[str, int] = field(default_factory=dict)
    max_query_length: int = 64
    passages: list[str] = field(default_factory=list)

    @classmethod
    def prepare(cls, data: Data, tokenizer: Tokenizer, model: Model, seed: int, max_answer_tokens: int) -> SpanTask:
        """Read and tokenise the questions of a recipe; those that cannot be trained on are left out."""
        found = read_questions(data, seed)
        questions = [*found.asked, *found.unlabelled]
        windows = stored_windows(questions, tokenizer, data.window_settings())
        labels = span_labels(windows, questions)
        labels[windows.question >= len(found.asked)] = NOTHING
        task = cls(
            Examples(windows, labels),
            questions,
            tokenizer,
            max_answer_tokens,
            found.made,
            version=found.version,
            unlabelled=found.unlabelled_counts,
            max_query_length=data.max_query_length,
            passages=found.passages,
        )
        if not data.evaluate:
            return task
        dataset = read(data.evaluate)
        if not dataset.questions:
            raise QuothError(f"{data.evaluate}: has no questions")
        windows = stored_windows(dataset.questions, tokenizer, data.window_settings())
        evaluation = Examples(windows, span_labels(windows, dataset.questions))
        return replace(task, dataset=dataset, evaluation=evaluation)

    def loss(self, output: Span, packed: Packed[Tensor], labels: Tensor) -> Tensor:
        """As `span_loss`; windows without a label have none."""
        return span_loss(*output, packed, labels)

    def distillation_loss(self, student: Span, teacher: Span, packed: Packed[Tensor], temperature: float) -> Tensor:
        """The mean of start and end, over the tokens of each window but for those where the teacher has −inf."""
        left_out = torch.stack(tuple(teacher)).isneginf()
        student = tuple(torch.stack(tuple(student)).masked_fill(left_out, float("-inf")))
        ours, theirs = (_log_probabilities(logits, packed, temperature) for logits in (student, teacher))
        terms = theirs.exp() * (theirs.masked_fill(left_out, 0) - ours.masked_fill(left_out, 0))
        real = packed.real_tokens()
        return temperature**2 * (terms if real is None else torch.where(real, terms, 0)).sum() / 2

    def teaching_identity(self) -> str:
        """Of the texts, and where the tokens of each window stand in them."""
        return reading_identity(self.examples.windows, self.questions, self.max_query_length)

    def teacher_windows(self, tokenizer: Tokenizer) -> Windows:
        """The same questions and the same characters of passages, in tokens of its own."""
        return matching_windows(self.examples.windows, self.questions, tokenizer, self.max_query_length)

    def ask_teacher(
        self, teacher: Model, windows: Windows, device: Device, progress: Progress
    ) -> tuple[np.ndarray, int]:
        """Over the first token and those of the passage; see `quoth.windows.alignment`."""
        runner = TorchRunner(teacher, str(device.place), device.precision)
        logits = np.stack(over_windows(windows, runner.budget, runner, progress))
        return onto_tokens(self.examples.windows, windows, logits)

    def evaluate(self, model: Model, device: Device) -> Evaluated:
        """Answer and score; `seconds` is from windows to logits."""
        windows = windows_of(self.evaluation)
        reader = Reader(TorchRunner(model, str(device.place), device.precision), self.tokenizer)
        begin = time.perf_counter()
        logits = reader.logits(windows)
        seconds = time.perf_counter() - begin
        found = self._score(logits)
        return replace(found, quality={**found.quality, "seconds": seconds, "windows": len(windows)})

    def score(self, batches: Iterable[tuple[np.ndarray, Sequence[Span]]], heads: int) -> list[Evaluated]:
        """Scores of several heads."""
        windows = windows_of(self.evaluation)
        flat = np.empty((heads, 2, len(windows.ids)), np.float32)
        for indices, outputs in batches:
            place = windows.token_places(indices)
            flat[:, :, place] = torch.stack([torch.stack(tuple(span)).float() for span in outputs]).cpu().numpy()
        return [self._score(SpanLogits(start, end)) for start, end in flat]

    def _score(self, logits: SpanLogits) -> Evaluated:
        assert self.dataset is not None
        questions = self.dataset.questions
        contexts, ids = [q.context for q in questions], [q.id for q in questions]
        windows = windows_of(self.evaluation)
        decoded = decode(windows, logits, contexts, max_answer_tokens=self.max_answer_tokens, ids=ids)
        return Evaluated(dict(span_quality(self.dataset, decoded)[1]), decoded)

    def write_answers(self, path: Path, answers: Any) -> None:
        """The best answers to each question, for `quoth analyse`."""
        if answers is not None and self.dataset is not None:
            write_answers(path, self.dataset.questions, answers)

    def main_score(self, quality: dict[str, Any]) -> tuple[str, float]:
        """F1 at the best threshold, where there is one."""
        name = "best_f1" if "best_f1" in quality else "f1"
        return name, float(quality[name])

    def hold_out(self, part: float, most: int, seed: int) -> SpanTask:
        """Whole passages are held out, and nothing that was made up."""
        groups = self.passages
        part = min(part, most / len(groups))
        made = sum(self.negatives.values()) + sum(self.unlabelled.values())
        rest, out = split_groups(groups, made, part, seed)
        dataset = Dataset([self.questions[i] for i in out], Report("held out"), self.version)
        examples, held = self.examples.of_questions(rest), self.examples.of_questions(out)
        questions, passages = [self.questions[i] for i in rest], [groups[i] for i in rest]
        return replace(
            self, examples=examples, questions=questions, passages=passages, dataset=dataset, evaluation=held
        )


def span_loss(start: Tensor, end: Tensor, packed: Packed[Tensor], labels: Tensor) -> Tensor:
    """The sum over windows of the mean of two cross-entropies, each over the tokens of a window (Devlin et al. §4.2).

    start, end: (T,) logits; labels: (n, 2). Divide by the number of windows of the step for the mean.
    """
    if have_kernels(start):
        from quoth.tasks import span_kernel  # Triton is optional

        return span_kernel.span_loss(start, end, packed.starts, labels, packed.longest)
    table = start.new_full((2, packed.windows, packed.longest), float("-inf"), dtype=torch.float32)
    table[:, packed.window_of_token(), packed.positions.long()] = torch.stack([start, end]).float()
    return F.cross_entropy(table.flatten(0, 1), labels.T.flatten(), reduction="sum") / 2


def _log_probabilities(logits: Span, packed: Packed[Tensor], temperature: float) -> Tensor:
    """Start and end as log-probabilities over the tokens of each window. (T,) twice → (2, T)."""
    both = torch.stack(tuple(logits)).float() / temperature
    window, place = packed.window_of_token(), packed.positions.long()
    table = both.new_full((2, packed.windows, packed.longest), float("-inf"))
    table[:, window, place] = both
    return table.log_softmax(-1)[:, window, place]

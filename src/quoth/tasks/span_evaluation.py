"""Looking at a model while it learns: the official scores on a dataset."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from quoth.answer.decode import Decoded, decode
from quoth.answer.reader import Reader
from quoth.data import read
from quoth.data.dataset import Dataset
from quoth.errors import QuothError
from quoth.model.model import Model
from quoth.runtime.logits import SpanLogits
from quoth.runtime.torch_runner import TorchRunner
from quoth.score.quality import span_quality
from quoth.tasks.settings import Data
from quoth.windows.columns import Windows
from quoth.windows.questions import make_windows
from quoth.windows.tokenizer import Tokens


@dataclass(frozen=True)
class SpanEvaluation:
    """Questions to be answered, already cut into windows."""

    dataset: Dataset
    windows: Windows
    tokens: Tokens
    max_answer_tokens: int

    def __call__(self, model: Model, device: str, precision: str | None) -> tuple[Decoded, dict[str, Any]]:
        """Answer and score; the model is left in evaluation mode. `seconds` is from windows to logits."""
        reader = Reader(TorchRunner(model, device, precision), self.tokens)
        begin = time.perf_counter()
        logits = reader.logits(self.windows)
        seconds = time.perf_counter() - begin
        decoded, quality = self.score(logits)
        return decoded, {**quality, "seconds": seconds, "windows": len(self.windows)}

    def score(self, logits: SpanLogits) -> tuple[Decoded, dict[str, Any]]:
        """The answers that these logits give, and their scores."""
        questions = self.dataset.questions
        contexts, ids = [q.context for q in questions], [q.id for q in questions]
        decoded = decode(self.windows, logits, contexts, max_answer_tokens=self.max_answer_tokens, ids=ids)
        return decoded, dict(span_quality(self.dataset, decoded)[1])


def span_evaluation(data: Data, tokens: Tokens, max_answer_tokens: int) -> SpanEvaluation | None:
    """The evaluation that a recipe asks for, if any."""
    if not data.evaluate:
        return None
    dataset = read(data.evaluate)
    if not dataset.questions:
        raise QuothError(f"{data.evaluate}: has no questions")
    windows = make_windows(
        dataset.questions, tokens, max_length=data.max_length, step=data.step, question_limit=data.question_limit
    )
    return SpanEvaluation(dataset, windows, tokens, max_answer_tokens)

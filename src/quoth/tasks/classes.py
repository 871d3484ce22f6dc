"""Learning classes of sentences (GLUE), and whether a passage answers a question at all.

Every window of a question is labelled with the question's own class, and a question is "no answer" if any of its
windows says so (BERTVision); "no answer" is class 1, the positive class of F1.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from quoth.data import read
from quoth.data.glue import read_glue
from quoth.encoder.device import CPU_TOKENS, CUDA_TOKENS, choose
from quoth.errors import QuothError
from quoth.model.model import Model
from quoth.score.glue import accuracy, f1, glue_score
from quoth.tasks.settings import Data, Negatives
from quoth.tasks.span_data import Examples, part_of, with_negatives
from quoth.windows.batches import by_length
from quoth.windows.columns import Windows
from quoth.windows.questions import make_windows
from quoth.windows.sentences import make_pairs
from quoth.windows.tokenizer import Tokens

NONE = Negatives()
ANSWERABLE = ("answer", "no_answer")


@dataclass(frozen=True)
class ClassData:
    """Windows of rows (sentences, pairs, questions) with classes. labels: of the rows; names: of the classes.

    negatives: how many of the questions each maker of unanswerable ones made
    """

    task: str
    windows: Windows
    labels: np.ndarray
    names: tuple[str, ...]
    negatives: dict[str, int] = field(default_factory=dict)

    @property
    def classes(self) -> int:
        """How many logits a head needs: one for scores (STS-B)."""
        return len(self.names) or 1

    def examples(self) -> Examples:
        """What a loop learns from."""
        return Examples(self.windows, self.labels[self.windows.question], self.negatives)


def class_data(
    sources: tuple[str, ...],
    data: Data,
    tokens: Tokens,
    fraction: float = 1.0,
    seed: int = 0,
    negatives: Negatives = NONE,
) -> ClassData:
    """Read labelled rows: GLUE tables, or SQuAD questions labelled by whether they have an answer.

    negatives: unanswerable questions to make of these; none of data to evaluate on
    """
    if data.task == "answerable":
        questions = [question for source in sources for question in read(source).questions]
        if not questions:
            raise QuothError(f"{', '.join(sources)}: has no questions")
        questions, made = with_negatives(part_of(questions, fraction, seed), negatives, seed)
        windows = make_windows(
            questions, tokens, max_length=data.max_length, step=data.step, question_limit=data.question_limit
        )
        return ClassData("answerable", windows, np.array([int(q.impossible) for q in questions]), ANSWERABLE, made)
    if len(sources) != 1:
        raise QuothError(f"data: a GLUE task is one table, {len(sources)} were given")
    sentences = read_glue(sources[0])
    if sentences.labels is None:
        raise QuothError(f"{sources[0]}: has no labels; a test split cannot be learnt from or scored")
    windows = make_pairs(sentences, tokens, max_length=data.max_length)
    whole = ClassData(sentences.task, windows, sentences.labels, sentences.names)
    return whole if fraction == 1 else _part(whole, fraction, seed)


def _part(data: ClassData, fraction: float, seed: int) -> ClassData:
    rows = np.array(part_of(range(len(data.labels)), fraction, seed))
    lengths = data.windows.lengths[rows]
    starts = np.append(0, np.cumsum(lengths))
    source = np.concatenate([np.arange(*data.windows.starts[[row, row + 1]]) for row in rows])
    w = data.windows
    kept = Windows(
        w.ids[source], w.types[source], w.spans[source], w.words[source], starts,
        np.arange(len(rows), dtype=np.int32), w.passage[rows],
    )  # fmt: skip
    return ClassData(data.task, kept, data.labels[rows], data.names)


def class_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum over windows of the cross-entropy; with one logit, of the squared error. logits: (n, classes)."""
    if logits.shape[1] == 1:
        return F.mse_loss(logits[:, 0].float(), labels.float(), reduction="sum")
    return F.cross_entropy(logits.float(), labels, reduction="sum")


@dataclass(frozen=True)
class ClassEvaluation:
    """Rows to be classified."""

    data: ClassData

    def __call__(self, model: Model, device: str, precision: str | None) -> tuple[None, dict[str, Any]]:
        """Classify and score; the model is left in evaluation mode."""
        begin = time.perf_counter()
        logits = class_logits(model, self.data.windows, device, precision)
        seconds = time.perf_counter() - begin
        return None, {**class_quality(self.data, logits), "seconds": seconds, "windows": len(self.data.windows)}


def class_quality(data: ClassData, logits: np.ndarray) -> dict[str, float]:
    """The official metrics in per cent, by GLUE's names. logits: (n, classes) of the windows."""
    if data.classes == 1:
        predicted: np.ndarray = logits[:, 0]
    else:
        predicted = np.zeros(len(data.labels), np.int64)
        np.maximum.at(predicted, data.windows.question, logits.argmax(1))  # any window that says "no answer"
    if data.task == "answerable":
        return {"exact": 100 * accuracy(predicted, data.labels), "f1": 100 * f1(predicted, data.labels)}
    return {name: 100 * value for name, value in glue_score(data.task, predicted, data.labels).items()}


@torch.inference_mode()
def class_logits(model: Model, windows: Windows, device: str, precision: str | None) -> np.ndarray:
    """Logits of all windows, (n, classes) float32, in batches of similar length."""
    place, half = choose(device, precision)
    model.to(place).eval()
    found: np.ndarray | None = None
    budget = max(CUDA_TOKENS if place.type == "cuda" else CPU_TOKENS, int(windows.lengths.max(initial=1)))
    cast: Any = torch.autocast(place.type, torch.bfloat16) if half else nullcontext()
    for indices in by_length(windows.lengths, budget):
        packed = windows.packed(indices).map(lambda array: torch.from_numpy(array).to(place, non_blocking=True))
        with cast:
            logits = model(packed).float().cpu().numpy()
        found = np.empty((len(windows), logits.shape[1]), np.float32) if found is None else found
        found[indices] = logits
    if found is None:
        raise QuothError("there are no rows to classify")
    return found

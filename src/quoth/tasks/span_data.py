"""Learning answer spans: from questions to batches on the device, and the loss.

The tokens of all windows lie flat on the device, and a batch is gathered there: what the host sends is the numbers of
the windows, a few hundred bytes a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from quoth.augment.negatives import make_negatives
from quoth.data import read
from quoth.data.dataset import Question
from quoth.encoder.steps import have_kernels
from quoth.errors import QuothError
from quoth.tasks.settings import Data, Negatives
from quoth.windows.columns import Windows
from quoth.windows.labels import targets
from quoth.windows.packed import Packed
from quoth.windows.questions import make_windows
from quoth.windows.tokenizer import Tokens

Item = TypeVar("Item")


@dataclass(frozen=True)
class Examples:
    """Windows to learn from.

    answers: (n, 2), the answer's first and last token inside each window, (0, 0) for none; or (n,), a class of each
    negatives: how many of the questions each maker of unanswerable ones made
    """

    windows: Windows
    answers: np.ndarray
    negatives: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.windows)


def span_examples(data: Data, tokens: Tokens, seed: int = 0) -> Examples:
    """The training windows of a recipe. Questions that cannot be learnt from are left out."""
    questions = [question for source in data.train for question in read(source).questions if question.trainable]
    if not questions:
        raise QuothError(f"{', '.join(data.train)}: no question in it can be learnt from")
    questions, made = with_negatives(part_of(questions, data.fraction, seed), data.negatives, seed)
    windows = make_windows(
        questions, tokens, max_length=data.max_length, step=data.step, question_limit=data.question_limit
    )
    return Examples(windows, targets(windows, questions), made)


def with_negatives(questions: list[Question], parts: Negatives, seed: int) -> tuple[list[Question], dict[str, int]]:
    """Questions with the unanswerable ones that are made of them after them, and how many each maker made."""
    wanted = {name: part for name, part in asdict(parts).items() if part}
    made = make_negatives(questions, wanted, seed)
    counts = {name: sum(one.maker == name for one in made) for name in wanted}
    return [*questions, *(one.question for one in made)], counts


def part_of(questions: Sequence[Item], fraction: float, seed: int) -> list[Item]:
    """A random part of questions, or of other things, in order; a smaller fraction is a part of a larger one."""
    keys = np.random.PCG64(np.random.SeedSequence([seed, 0xF2AC])).random_raw(len(questions))
    count = max(1, round(fraction * len(questions)))
    return [questions[i] for i in np.sort(np.argsort(keys, kind="stable")[:count])]


class Feed:
    """Batches of examples, made where the model is."""

    def __init__(self, examples: Examples, device: torch.device) -> None:
        windows = examples.windows
        self.lengths = windows.lengths
        self._starts = windows.starts[:-1]
        self._ids = torch.from_numpy(windows.ids).to(device)
        self._types = torch.from_numpy(windows.types).to(device)
        answers = examples.answers if examples.answers.dtype.kind == "f" else examples.answers.astype(np.int64)
        self._answers = torch.from_numpy(answers).to(device)
        self._device = device

    def batch(self, indices: np.ndarray) -> tuple[Packed[Tensor], Tensor]:
        """The windows `indices` as one packed batch of T tokens, and their answers (n, 2)."""
        lengths = self.lengths[indices]
        starts = np.append(0, np.cumsum(lengths))
        total = int(starts[-1])
        columns = np.stack([indices, self._starts[indices], starts[:-1], lengths])
        index, source, start, length = torch.from_numpy(columns).to(self._device, non_blocking=True)
        window = torch.repeat_interleave(length, output_size=total)
        place = torch.arange(total, device=self._device)
        positions = place - start[window]
        flat = positions + source[window]
        ends = torch.cat([start, start.new_full((1,), total)]).to(torch.int32)
        batch = Packed(self._ids[flat], positions.to(torch.int32), self._types[flat], ends, tuple(lengths.tolist()))
        return batch, self._answers[index]


def span_loss(start: Tensor, end: Tensor, packed: Packed[Tensor], answers: Tensor) -> Tensor:
    """The sum over windows of the mean of two cross-entropies, each over the tokens of a window (Devlin et al. §4.2).

    start, end: (T,) logits; answers: (n, 2). Divide by the number of windows of the step for the mean.
    """
    if have_kernels(start):
        from quoth.tasks import span_kernel

        return span_kernel.span_loss(start, end, packed.starts, answers, packed.longest)
    windows = len(packed.lengths)
    window = torch.repeat_interleave(packed.starts.diff(), output_size=packed.tokens)
    table = start.new_full((2, windows, packed.longest), float("-inf"), dtype=torch.float32)
    logits = torch.stack([start, end]).float()
    table[:, window, packed.positions.long()] = logits
    return F.cross_entropy(table.flatten(0, 1), answers.T.flatten(), reduction="sum") / 2

"""`Examples`: windows with labels; and `Feed`: batches of them, made on the device.

The tokens of all windows lie flat on the device, and a batch is gathered there: what the host sends (`Request`) is the
numbers of the windows, a few hundred bytes a step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from quoth.augment import make_negatives, make_unlabelled, relayout, restyle
from quoth.augment.unlabelled import bare
from quoth.data import Question, read
from quoth.data.dataset import Version
from quoth.data.plain_text import read_paragraphs
from quoth.errors import QuothError
from quoth.tasks.seeds import sample
from quoth.tasks.settings import Data, Unlabelled
from quoth.windows import Packed, Windows
from quoth.windows.packed import NOTHING, Size


@dataclass(frozen=True)
class Examples:
    """Windows to train on, or to evaluate on.

    labels: (n, 2), the first and last token of the answer inside each window, (0, 0) for none, `NOTHING` twice where it
    is not known; or (n,), its class
    """

    windows: Windows
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.windows)

    def take(self, indices: np.ndarray) -> Examples:
        """Some of the windows, with their labels."""
        return Examples(self.windows.take(indices), self.labels[indices])

    def of_questions(self, questions: np.ndarray) -> Examples:
        """The windows of some questions or rows (ascending), which are numbered anew from 0."""
        found = self.take(np.flatnonzero(np.isin(self.windows.question, questions)))
        number = np.searchsorted(questions, found.windows.question).astype(np.int32)
        return replace(found, windows=replace(found.windows, question=number))

    def spread(self, most: int) -> Examples:
        """At most so many windows, evenly spread."""
        if len(self) <= most:
            return self
        return self.take(np.linspace(0, len(self) - 1, most).round().astype(np.int64))

    @property
    def identity(self) -> str:
        """The sha256 of all tokens and labels."""
        digest = hashlib.sha256()
        for column in (self.windows.ids, self.windows.starts, self.labels):
            digest.update(column.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class ClassExamples(Examples):
    """Windows with classes. classes: (rows,), that of each question or row, whatever those of its windows are."""

    classes: np.ndarray

    def of_questions(self, questions: np.ndarray) -> ClassExamples:
        """As for any examples, with their classes."""
        found = super().of_questions(questions)
        return ClassExamples(found.windows, found.labels, self.classes[questions])


@dataclass(frozen=True)
class Request:
    """What the host sends to the device for a batch: whole numbers, from which the device makes the batch.

    numbers: (k,) int64, an array of numpy or, once sent, a tensor; lengths: of the windows, none where `size` is given
    size: what the batch is brought to, if it is; masked: how many tokens of it are masked, if any are
    """

    numbers: Any
    lengths: tuple[int, ...]
    size: Size | None = None
    masked: int = 0

    def to(self, device: torch.device) -> Request:
        """The same on a device."""
        return replace(self, numbers=torch.from_numpy(self.numbers).to(device, non_blocking=True))


class Batches(Protocol):
    """What a training loop reads its batches from: `Feed`, or `MaskedFeed` of pre-training."""

    lengths: np.ndarray

    def request(self, indices: np.ndarray, step: int, size: Size | None = None) -> Request:
        """What the device must know of the windows `indices` as they are at this step."""

    def gather(self, request: Request) -> tuple[Packed[Any], Tensor]:
        """A request that lies on the device as one packed batch, and its labels. Nothing waits for the device."""

    def batch(self, indices: np.ndarray, step: int) -> tuple[Packed[Any], Tensor]:
        """The windows `indices` as one packed batch on the device, as they are at this step, and their labels."""


class Feed:
    """Batches of examples, the same at every step."""

    def __init__(self, examples: Examples, device: torch.device) -> None:
        windows = examples.windows
        self.lengths = windows.lengths
        self._starts = windows.starts[:-1]
        self._ids = torch.from_numpy(windows.ids).to(device)
        self._types = torch.from_numpy(windows.types).to(device)
        labels = examples.labels if examples.labels.dtype.kind == "f" else examples.labels.astype(np.int64)
        self._labels = torch.from_numpy(labels).to(device)
        self._device = device

    def request(self, indices: np.ndarray, step: int = 0, size: Size | None = None) -> Request:
        """Of each window its number, where its tokens lie in the data and in the batch, and its length.

        With a size, the real windows are followed by inert ones of nearly equal lengths, whose number is −1; and the
        last of all numbers is the count of the real windows.
        """
        lengths = self.lengths[indices]
        if size is not None:
            lengths = np.append(lengths, size.inert(lengths))
        starts = np.append(0, np.cumsum(lengths[:-1]))
        columns = np.zeros((4, len(lengths)), np.int64)
        columns[0] = -1
        columns[:2, : len(indices)] = indices, self._starts[indices]
        columns[2:] = starts, lengths
        if size is None:
            return Request(columns.ravel(), tuple(lengths.tolist()))
        return Request(np.append(columns.ravel(), len(indices)), (), size)

    def gather(self, request: Request) -> tuple[Packed[Tensor], Tensor]:
        """The windows of a request as one packed batch of T tokens, and their labels (n, 2) or (n,)."""
        return self._gather(request)[:2]

    def _gather(self, request: Request) -> tuple[Packed[Tensor], Tensor, Tensor]:
        """The same, and where each token of the batch lies in the data, (T,)."""
        size, numbers = request.size, request.numbers
        windows = size.windows if size else len(request.lengths)
        total = size.tokens if size else sum(request.lengths)
        index, source, start, length = numbers[: 4 * windows].view(4, windows)
        window = torch.repeat_interleave(length, output_size=total)
        place = torch.arange(total, device=self._device)
        positions = place - start[window]
        count = numbers[4 * windows] if size else None
        flat = positions + source[window]
        ends = torch.cat([start, start.new_full((1,), total)]).to(torch.int32)
        batch = Packed(
            self._ids[flat], positions.to(torch.int32), self._types[flat], ends, request.lengths, size=size, count=count
        )
        return batch, self._labels_of(index, size is not None), flat

    def _labels_of(self, index: Tensor, inert: bool) -> Tensor:
        """The labels of windows; `NOTHING` for inert ones."""
        if not inert:
            return self._labels[index]
        labels = self._labels[index.clamp(min=0)]
        return torch.where((index < 0).view(-1, *(1,) * (labels.ndim - 1)), NOTHING, labels)

    def batch(self, indices: np.ndarray, step: int = 0) -> tuple[Packed[Tensor], Tensor]:
        """The windows `indices` as one packed batch of T tokens, and their labels (n, 2) or (n,)."""
        return self.gather(self.request(indices, step).to(self._device))


@dataclass(frozen=True)
class Questions:
    """The questions of a recipe that are trained on.

    made: how many, the last ones, each maker of negatives made; version: of SQuAD, as `Dataset.version`
    passages: of all of them, before they were laid out: questions of one passage are known by it
    unlabelled: pairs without a label, which come after all others, and how many there are of each kind
    """

    asked: list[Question]
    made: dict[str, int]
    version: Version
    passages: list[str]
    unlabelled: list[Question] = field(default_factory=list)
    unlabelled_counts: dict[str, int] = field(default_factory=dict)


def read_questions(data: Data, seed: int) -> Questions:
    """The training questions of a recipe: a sample of those in its files, then the negatives made from them.

    Questions whose answer does not stand in their passage are left out: no window can be labelled.
    """
    sources = [read(source) for source in data.train]
    found = [question for source in sources for question in source.trainable]
    if not found:
        raise QuothError(f"{', '.join(data.train)}: no question in it can be trained on")
    asked = sample(found, data.fraction, seed)
    wanted = {name: part for name, part in asdict(data.negatives).items() if part}
    made = make_negatives(asked, wanted, seed)
    counts = {name: sum(one.maker == name for one in made) for name in wanted}
    version = max(source.version for source in sources)
    labelled = [*asked, *(one.question for one in made)]
    pairs, kinds = read_unlabelled(data.unlabelled, asked, seed) if data.unlabelled.wanted else ([], {})
    passages = [question.context for question in (*labelled, *pairs)]
    return Questions(_rewritten(labelled, data, seed), counts, version, passages, _rewritten(pairs, data, seed), kinds)


def _rewritten(questions: Sequence[Question], data: Data, seed: int) -> list[Question]:
    """The questions in the styles, and their passages in the layouts, that a recipe asks for."""
    return relayout(restyle(questions, asdict(data.styles), seed), asdict(data.layouts), seed)


def read_unlabelled(wanted: Unlabelled, asked: Sequence[Question], seed: int) -> tuple[list[Question], dict[str, int]]:
    """The pairs without labels that a recipe asks for, and how many there are of each kind.

    asked: the questions, without negatives, that other passages are asked
    """
    new = [text for path in wanted.passages for text in read_paragraphs(path)]
    made = make_unlabelled(asked, wanted.parts, new, seed)
    made["questions"] = [bare(question) for source in wanted.questions for question in read(source).questions]
    counts = {name: len(found) for name, found in made.items() if found}
    return [question for found in made.values() for question in found], counts


def split_groups(groups: Sequence[Any], made: int, part: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows to train on and which to hold out: whole groups (such as passages) of a random part of the groups.

    made: how many rows, the last ones, were made up, and are never held out
    """
    real = len(groups) - made
    known = list(dict.fromkeys(groups[:real]))
    chosen = set(sample(known, part, seed))
    if len(chosen) == len(known):
        raise QuothError("too little to hold a part out for the search; give more data")
    out = np.array([group in chosen for group in groups])
    return np.flatnonzero(~out), np.flatnonzero(out[:real])

"""`Windows`: all windows of many questions as a few flat columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quoth.windows.packed import Packed

TOKENS = ("ids", "types", "spans", "words")  # the columns that have a row for each token


@dataclass(frozen=True)
class Window:
    """One window, for people: tokens (n,), types (n,), the character span of each (n, 2), its question."""

    ids: np.ndarray
    types: np.ndarray
    spans: np.ndarray
    question: int
    passage: tuple[int, int]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Windows:
    """Columns for n windows of T tokens in all. The windows of one question are adjacent, questions ascend.

    - ids, types: int32 (T,); the first token of every window is [CLS] / <s>, the place of "no answer"
    - spans: int32 (T, 2), the characters [start, end) of each passage token in the context; (-1, -1) elsewhere
    - words: int32 (T,), the word of each passage token, numbered within its passage; -1 elsewhere
    - starts: int64 (n + 1,); window w is the tokens [starts[w], starts[w + 1])
    - question: int32 (n,), the index of its question
    - passage: int32 (n, 2), the passage tokens [first, past), counted inside the window
    """

    ids: np.ndarray
    types: np.ndarray
    spans: np.ndarray
    words: np.ndarray
    starts: np.ndarray
    question: np.ndarray
    passage: np.ndarray

    def __len__(self) -> int:
        return len(self.question)

    def __getitem__(self, w: int) -> Window:
        w = range(len(self))[w]
        here = slice(self.starts[w], self.starts[w + 1])
        first, past = self.passage[w].tolist()
        return Window(self.ids[here], self.types[here], self.spans[here], int(self.question[w]), (first, past))

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each window, int64 (n,)."""
        return np.diff(self.starts)

    def take(self, indices: Sequence[int] | np.ndarray) -> Windows:
        """The windows `indices`, in that order; `question` stays as it is."""
        indices = np.asarray(indices, dtype=np.int64)
        starts, source = self._gather(indices)
        tokens = {name: getattr(self, name)[source] for name in TOKENS}
        return Windows(**tokens, starts=starts, question=self.question[indices], passage=self.passage[indices])

    def packed(self, indices: Sequence[int] | np.ndarray) -> Packed[np.ndarray]:
        """The windows `indices`, in that order, as one batch without padding."""
        indices = np.asarray(indices, dtype=np.int64)
        lengths = self.lengths[indices]
        starts, source = self._gather(indices)
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
        return Packed(
            self.ids[source],
            within.astype(np.int32),
            self.types[source],
            starts.astype(np.int32),
            tuple(lengths.tolist()),
        )

    def token_places(self, indices: np.ndarray) -> np.ndarray:
        """The places in the columns of all tokens of the windows `indices`, in that order."""
        return self._gather(indices)[1]

    def _gather(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the chosen windows begin, (n + 1,), and the places of their tokens in the columns."""
        lengths = self.lengths[indices]
        starts = np.append(0, np.cumsum(lengths))
        return starts, np.arange(starts[-1]) + np.repeat(self.starts[indices] - starts[:-1], lengths)


def concatenate(pieces: Sequence[Windows]) -> Windows:
    """Several `Windows` as one."""
    pieces = [without_passages([], []), *pieces]
    names = (*TOKENS, "question", "passage")
    columns = {name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in names}
    return Windows(**columns, starts=np.append(0, np.cumsum(np.concatenate([piece.lengths for piece in pieces]))))


def without_passages(
    ids: Sequence[np.ndarray], types: Sequence[np.ndarray], words: Sequence[np.ndarray] | None = None
) -> Windows:
    """Windows that have no passages, from the ids and types (and words, else -1) of each; `question` numbers them."""
    starts = np.append(0, np.cumsum([len(row) for row in ids])).astype(np.int64)
    nothing = np.full(int(starts[-1]), -1, np.int32)
    flat_ids, flat_types = (np.concatenate([nothing[:0], *rows]) for rows in (ids, types))
    spans = np.stack([nothing, nothing], 1)
    numbers = np.arange(len(ids), dtype=np.int32)
    passage = np.zeros((len(ids), 2), np.int32)
    return Windows(flat_ids, flat_types, spans, np.concatenate(words) if words else nothing, starts, numbers, passage)

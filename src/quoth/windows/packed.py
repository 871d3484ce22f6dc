"""`Packed`: windows laid end to end, so that no position of a batch is padding.

`Masked` has tokens to be guessed, `Taught` the logits of a teacher.

A CUDA graph computes batches of one size alone. So a batch may be brought to a `Size`: after its real windows come
inert ones, of a few tokens, which count in no loss. How many windows are real is then known on the device alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

Array = TypeVar("Array")
Other = TypeVar("Other")

NOTHING = -100  # the target of a place that does not count, as torch's cross-entropy has it


@dataclass(frozen=True)
class Size:
    """What a batch is brought to: all its tokens and windows, inert ones too, and the most tokens of a window."""

    tokens: int
    windows: int
    longest: int

    def inert(self, lengths: np.ndarray) -> np.ndarray:
        """The lengths of the inert windows after real ones of these lengths: nearly equal, each at least 1."""
        count, rest = self.windows - len(lengths), self.tokens - int(lengths.sum())
        return (rest + np.arange(count)) // count


@dataclass(frozen=True)
class Packed(Generic[Array]):
    """A batch of windows, concatenated. `Array` is numpy's on the host and torch's on a device.

    Shapes, for n windows of T tokens together:
    - ids, positions, types: (T,) integers; positions count from 0 in each window
    - starts: (n + 1,) int32, cumulative lengths: window i is [starts[i], starts[i + 1])
    - lengths: n plain integers on the host, so that reading them does not wait for the device; none with a `size`
    - size: what the batch was brought to, if it was; count: then how many of its windows are real, () on the device
    """

    ids: Array
    positions: Array
    types: Array
    starts: Array
    lengths: tuple[int, ...]
    size: Size | None = field(default=None, kw_only=True)
    count: Array | None = field(default=None, kw_only=True)

    @property
    def windows(self) -> int:
        """How many windows the batch has."""
        return self.size.windows if self.size else len(self.lengths)

    @property
    def longest(self) -> int:
        """The length of the longest window, or of the longest that the size allows."""
        return self.size.longest if self.size else max(self.lengths, default=0)

    @property
    def tokens(self) -> int:
        """How many tokens the batch has in all."""
        return self.size.tokens if self.size else sum(self.lengths)

    @property
    def divisor(self) -> Any:
        """How many windows are real: a plain integer, or of a batch that was brought to a size a tensor."""
        return len(self.lengths) if self.count is None else self.count

    def map(self, to: Callable[[Array], Other]) -> Packed[Other]:
        """The same batch with every array passed through `to`, such as numpy → torch → device."""
        count = None if self.count is None else to(self.count)
        arrays = to(self.ids), to(self.positions), to(self.types), to(self.starts)
        return Packed(*arrays, self.lengths, size=self.size, count=count)

    def real(self, x: Any) -> Any:
        """x, (n, …), one row a window, with 0 in the rows of inert windows."""
        if self.count is None:
            return x
        import torch  # optional: a plain install has none

        count: Any = self.count
        real = torch.arange(self.windows, device=x.device) < count
        return torch.where(real.view(-1, *(1,) * (x.ndim - 1)), x, 0)

    def real_tokens(self) -> Any:
        """Which tokens are those of real windows, (T,) booleans; None where all are."""
        if self.count is None:
            return None
        import torch  # optional: a plain install has none

        starts, count = self.starts, self.count  # starts[count] would wait for the device
        end = starts.index_select(0, count.view(1))  # type: ignore[attr-defined]
        return torch.arange(self.tokens, device=end.device) < end

    def to(self, device: Any) -> Packed[Any]:
        """The same batch as torch tensors on a device."""
        import torch  # optional: a plain install has none

        def move(array: Any) -> Any:
            tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
            return tensor.to(device, non_blocking=True)

        return self.map(move)

    def window_of_token(self) -> Any:
        """The number of each token's window, (T,) int64, of a batch of tensors; this does not wait for the device."""
        import torch  # optional: a plain install has none

        starts: Any = self.starts
        windows = torch.arange(self.windows, device=starts.device)
        return windows.repeat_interleave(starts.diff(), output_size=self.tokens)


@dataclass(frozen=True)
class Masked(Packed[Array]):
    """A batch whose `ids` have masks and wrong words in them.

    places: (m,) which tokens of the batch are to be guessed; targets: (m,) what stood there, or `NOTHING`. A batch
    may have more places than masked tokens, so that their number need not be read from the device.
    weight: what each masked token counts in a loss that is summed over windows (`quoth.tasks.pretrain`)
    """

    places: Array
    targets: Array
    weight: float

    def map(self, to: Callable[[Array], Other]) -> Masked[Other]:
        """The same batch with every array passed through `to`."""
        packed = super().map(to)
        return Masked(**vars(packed), places=to(self.places), targets=to(self.targets), weight=self.weight)


@dataclass(frozen=True)
class Taught(Packed[Array]):
    """A batch with what a teacher says of it.

    teacher: (2, T), log-probabilities of start and end, kept by `quoth.train.teacher_logits`; −inf where nothing is
    compared
    """

    teacher: Array

    def map(self, to: Callable[[Array], Other]) -> Taught[Other]:
        """The same batch with every array passed through `to`."""
        return Taught(**vars(super().map(to)), teacher=to(self.teacher))


def pack(ids: Sequence[Any], types: Sequence[Any] | None = None) -> Packed[np.ndarray]:
    """Concatenate windows of token ids (and of token types, 0 if left out) into one `Packed` batch."""
    lengths = tuple(len(window) for window in ids)
    starts = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=starts[1:])
    flat = np.concatenate([np.asarray(w, dtype=np.int32) for w in ids]) if ids else np.zeros(0, np.int32)
    positions = np.arange(len(flat), dtype=np.int32) - np.repeat(starts[:-1], lengths)
    if types is None:
        kinds = np.zeros(len(flat), dtype=np.int32)
    else:
        kinds = np.concatenate([np.asarray(t, dtype=np.int32) for t in types]) if types else flat
    return Packed(flat, positions.astype(np.int32), kinds, starts, lengths)

"""Windows of similar length as rectangles: what the decoding rules compute on, a bounded piece at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quoth.errors import QuothError, QuothWarning
from quoth.runtime.logits import LARGEST, Flags, Floats, Integers, SpanLogits
from quoth.windows import Windows

CELLS = 400_000  # scores looked at together: small enough for the caches, large enough to hide Python
NAMED = 20  # how many skipped windows a warning names


@dataclass(frozen=True, eq=False)
class Chunk:
    """The logits of W windows, the longest with a passage of L tokens.

    - window: (W,) their numbers; first: (W,) where their passages begin in the flat arrays
    - start, end: (W, L) float32, of passage tokens alone, -inf past the end of a passage
    - null_start, null_end: (W,) float32, of [CLS]
    """

    window: Integers
    first: Integers
    start: NDArray[np.float32]
    end: NDArray[np.float32]
    null_start: NDArray[np.float32]
    null_end: NDArray[np.float32]


def chunks(windows: Windows, logits: SpanLogits, cells_per_window: int) -> Iterator[tuple[Chunk, Integers]]:
    """All windows, longest passages first, with at most about CELLS cells at once.

    Yields each chunk without its windows that have a non-finite logit at [CLS] or in the passage, and the
    numbers of those windows.
    """
    lengths = windows.passage[:, 1] - windows.passage[:, 0]
    order = np.argsort(-lengths, kind="stable")
    at = 0
    while at < len(order):
        longest = int(lengths[order[at]])
        size = max(1, CELLS // (longest + cells_per_window))
        chunk = _gather(windows, logits, order[at : at + size])
        finite = _finite(chunk, lengths[chunk.window])
        kept = chunk if finite.all() else Chunk(*(values[finite] for values in vars(chunk).values()))
        yield kept, chunk.window[~finite]
        at += size


def log_probabilities(chunk: Chunk) -> Chunk:
    """The same with log softmax over passage tokens and [CLS], start and end each, instead of logits."""
    start, null_start = _log_softmax(chunk.start, chunk.null_start)
    end, null_end = _log_softmax(chunk.end, chunk.null_end)
    return replace(chunk, start=start, end=end, null_start=null_start, null_end=null_end)


def check(windows: Windows, logits: SpanLogits, contexts: Sequence[str]) -> None:
    """Raise if the values do not belong together."""
    tokens, question = int(windows.starts[-1]), windows.question
    for name, values in (("start", logits.start), ("end", logits.end)):
        if values.shape != (tokens,):
            raise QuothError(
                f"{name} logits have shape {values.shape} but the windows have {tokens} tokens: "
                "give one logit for each token"
            )
    if len(question) and (question[0] < 0 or question[-1] >= len(contexts) or (np.diff(question) < 0).any()):
        raise QuothError(
            f"windows must come question by question, numbered 0 to {len(contexts) - 1} like the contexts; "
            f"they are of questions {question.min()} to {question.max()}"
        )


def warn_skipped(windows: Windows, skipped: Integers, ids: Sequence[str] | None, stacklevel: int = 3) -> None:
    """One warning that names the windows (up to 20 of them) that were skipped for their non-finite logits."""
    if not len(skipped):
        return
    names = []
    for window in np.sort(skipped)[:NAMED]:
        question = int(windows.question[window])
        first, past = np.searchsorted(windows.question, [question, question + 1])
        name = question if ids is None else ids[question]
        names.append(f"window {window - first + 1} of {past - first} of question {name}")
    more = f" and {len(skipped) - NAMED} more" if len(skipped) > NAMED else ""
    text = f"skipped for NaN or infinite logits: {', '.join(names)}{more}"
    warnings.warn(text, QuothWarning, stacklevel=stacklevel)


def _gather(windows: Windows, logits: SpanLogits, window: Integers) -> Chunk:
    cls = windows.starts[window]
    first = cls + windows.passage[window, 0]
    lengths = windows.passage[window, 1] - windows.passage[window, 0]
    column = np.arange(max(1, int(lengths.max())))
    inside = column < lengths[:, None]
    place = first[:, None] + column
    start, end = (
        np.where(inside, _float32(values.take(place, mode="clip")), np.float32(-np.inf))
        for values in (logits.start, logits.end)
    )
    return Chunk(window, first, start, end, _float32(logits.start[cls]), _float32(logits.end[cls]))


def _float32(values: Floats) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what becomes infinite is reported as such
        return values.astype(np.float32, copy=False)


def _finite(chunk: Chunk, lengths: Integers) -> Flags:
    """(W,): whether every logit that matters is a number."""
    good = (abs(chunk.null_start) <= LARGEST) & (abs(chunk.null_end) <= LARGEST)
    for values in (chunk.start, chunk.end):
        good &= np.count_nonzero(abs(values) <= LARGEST, axis=1) == lengths
    return good


def _log_softmax(
    passage: NDArray[np.float32], null: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    top = np.maximum(passage.max(axis=1), null).astype(np.float64)
    passage, null = passage - top[:, None], null - top
    total = np.log(np.exp(passage).sum(axis=1) + np.exp(null))
    # A logarithm below -1e38 is kept there, so that the sum of two stays a float32; -inf marks what is no token.
    passage = np.where(np.isneginf(passage), -np.inf, np.maximum(passage - total[:, None], -LARGEST))
    return passage.astype(np.float32), np.maximum(null - total, -LARGEST).astype(np.float32)

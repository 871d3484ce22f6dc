"""Ensembles: the span logits of several models made one, before decoding.

For the logits s_m of member m of M, and p_m = softmax of s_m over all tokens of one window, start and end each:

    max    c(t) = log maxₘ pₘ(t)        element-wise maximum of the probabilities (BERTVision's ensemble)
    mean   c(t) = log (Σₘ pₘ(t) / M)
    sum    c(t) = Σₘ sₘ(t)              sum of the logits

c is given to decoding as a model's logits are. Under `max` and `mean` a span therefore scores
log P_start(i) + log P_end(j), and "no answer" log P_start(0) + log P_end(0) at [CLS]. See docs/ensemble.md for what
this means for the null score and for questions of several windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from quoth.errors import QuothError
from quoth.runtime.logits import LARGEST, Integers, SpanLogits

How = Literal["max", "mean", "sum"]


def check_how(how: object) -> How:
    """The way of combining of this name."""
    if how not in get_args(How):
        raise QuothError(f"an ensemble cannot be combined by {how!r}; choose {', '.join(get_args(How))}")
    return cast(How, how)


def combine(members: Sequence[SpanLogits], starts: Integers, how: How = "max") -> SpanLogits:
    """Combine the logits that M members gave the same windows. Computed in float64; (T,) float32 each.

    - members: (T,) start and end logits each; starts: (n + 1,), window i has the tokens [starts[i], starts[i + 1])
    - a logit of −inf is a probability of 0; where all members have it, −inf comes back
    - a window in which a member has NaN, +inf or no finite logit at all becomes NaN, so that decoding skips it and
      says so (under `sum`: the tokens concerned)
    """
    check_how(how)
    if not members:
        raise QuothError("there are no members to combine; give at least one")
    lengths = np.diff(starts)
    tokens = int(starts[-1])
    for number, member in enumerate(members):
        if member.start.shape != (tokens,) or member.end.shape != (tokens,):
            shapes = f"{member.start.shape} and {member.end.shape}"
            raise QuothError(f"member {number} has logits of shapes {shapes} for windows of {tokens} tokens together")
    if (lengths < 1).any():
        raise QuothError(f"window {int(lengths.argmin())} is empty; a window has at least one token")
    start, end = (
        _combine(np.stack([np.asarray(value, np.float64) for value in side]), starts[:-1], lengths, how)
        for side in ([member.start for member in members], [member.end for member in members])
    )
    return SpanLogits(start, end)


def _combine(values: NDArray[np.float64], begins: Integers, lengths: Integers, how: How) -> NDArray[np.float32]:
    """(M, T) logits of one side → (T,)."""
    with np.errstate(invalid="ignore", over="ignore"):  # what is NaN or infinite is for decoding to report
        if how == "sum":
            return np.asarray(values.sum(axis=0), np.float32)
        logs = _log_softmax(values, begins, lengths)
        both = logs.max(axis=0) if how == "max" else np.logaddexp.reduce(logs, axis=0) - np.log(len(logs))
        # Decoding takes what is beyond ±1e38 for infinite: a logarithm below is kept there, and −inf stays −inf.
        return np.asarray(np.where(np.isneginf(both), both, np.maximum(both, -LARGEST)), np.float32)


def _log_softmax(values: NDArray[np.float64], begins: Integers, lengths: Integers) -> NDArray[np.float64]:
    """Log softmax of each row over each window. (M, T) → (M, T)."""
    if not len(begins):  # reduceat wants one window at least
        return values
    values = values - np.maximum.reduceat(values, begins, axis=1).repeat(lengths, axis=1)
    with np.errstate(divide="ignore"):
        total = np.log(np.add.reduceat(np.exp(values), begins, axis=1))
    return np.asarray(values - total.repeat(lengths, axis=1))

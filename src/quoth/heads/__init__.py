"""Heads: from layer states to logits, one file per idea.

A head is made by `build_head` from a line such as `pool(learned) > compress(386) > skip > linear`, or from a table such
as `{"kind": "span"}`; they stand in recipes and, always as tables, in model folders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from quoth.errors import QuothError
from quoth.heads.cacnn import ContextCNN
from quoth.heads.chain import Chain
from quoth.heads.head import Head
from quoth.heads.linear import ClassHead, SpanHead
from quoth.heads.mlm import MlmHead

__all__ = ["KINDS", "Chain", "ClassHead", "ContextCNN", "Head", "MlmHead", "SpanHead", "build_head"]

KINDS: dict[str, Callable[..., Head]] = {
    "span": SpanHead,
    "class": ClassHead,
    "mlm": MlmHead,
    "cacnn": ContextCNN,
    "chain": Chain,
}


def build_head(value: str | Mapping[str, Any], hidden: int, layers: int) -> Head:
    """The head that a line or a table describes, with fresh weights, for states 0 … `layers` of size `hidden`.

    A table has `kind` and the settings of that kind; a line, alone for spans, stands in a table for classes:
    `{"kind": "chain", "line": "pool(learned) > linear", "labels": 2, "pooled": True}`.
    """
    settings = {"kind": "chain", "line": value} if isinstance(value, str) else dict(value)
    kind = settings.pop("kind", None)
    if kind not in KINDS:
        raise QuothError(f"head: kind {kind!r} is unknown; one of {', '.join(KINDS)} is wanted")
    sizes = (hidden, layers) if kind == "chain" else (hidden,)
    try:
        return KINDS[kind](*sizes, **settings)
    except TypeError as error:  # a setting that this kind does not have, or lacks
        reason = str(error).partition("() ")[2] or error
        raise QuothError(f"head: {kind} cannot be made of {settings} ({reason})") from None

"""Heads: from layer states to logits, one file per idea.

A head is made by `build_head` from a table such as `{"kind": "span"}`, which stands in recipes and model folders alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from laconic.errors import LaconicError
from laconic.heads.cacnn import ContextCNN
from laconic.heads.head import Head
from laconic.heads.linear import ClassHead, SpanHead

__all__ = ["KINDS", "ClassHead", "ContextCNN", "Head", "SpanHead", "build_head"]

KINDS: dict[str, Callable[..., Head]] = {"span": SpanHead, "class": ClassHead, "cacnn": ContextCNN}


def build_head(value: dict[str, Any], hidden: int) -> Head:
    """The head that a table describes, with fresh weights: `kind`, and the settings of that kind."""
    settings = dict(value)
    kind = settings.pop("kind", None)
    if kind not in KINDS:
        raise LaconicError(f"head: kind {kind!r} is unknown; one of {', '.join(KINDS)} is wanted")
    try:
        return KINDS[kind](hidden, **settings)
    except TypeError as error:  # a setting that this kind does not have, or lacks
        reason = str(error).partition("() ")[2] or error
        raise LaconicError(f"head: {kind} cannot be made of {settings} ({reason})") from None

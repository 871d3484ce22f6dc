"""Heads: from layer states to logits, one file per idea.

A head is made by `build_head` from a line such as `pool(learned) > compress(386) > skip > linear`, or from a table such
as `{"kind": "span"}`; they stand in recipes and, always as tables, in model folders. `register_head` makes a kind of
head known, `register_step` a word of the line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, make_dataclass
from inspect import Parameter, signature
from typing import Any, get_type_hints

from quoth.config import fill
from quoth.errors import QuothError
from quoth.heads.cacnn import ContextCNN
from quoth.heads.chain import Chain
from quoth.heads.head import KINDS, Head, SpanOutput, register_head
from quoth.heads.line import Argument
from quoth.heads.linear import ClassHead, SpanHead
from quoth.heads.mlm import MlmHead
from quoth.heads.step import register_step

__all__ = [
    "KINDS",
    "Argument",
    "Chain",
    "ClassHead",
    "ContextCNN",
    "Head",
    "MlmHead",
    "SpanHead",
    "SpanOutput",
    "build_head",
    "register_head",
    "register_step",
]


def build_head(value: str | Mapping[str, Any], hidden: int, layers: int) -> Head:
    """The head that a line or a table describes, with fresh weights, for states 0 … `layers` of size `hidden`.

    A table has `kind` and the settings of that kind; a line, alone for spans, stands in a table for classes:
    `{"kind": "chain", "line": "pool(learned) > linear", "labels": 2, "pooled": True}`.
    """
    settings = {"kind": "chain", "line": value} if isinstance(value, str) else dict(value)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise QuothError(f"head: kind {kind!r} is unknown; one of {', '.join(KINDS)} is wanted")
    return KINDS[kind](**_arguments(KINDS[kind], kind, settings, {"hidden": hidden, "layers": layers}))


def _arguments(
    make: Callable[..., Head], kind: str, settings: Mapping[str, Any], sizes: dict[str, int]
) -> dict[str, Any]:
    """What a head is made of: the sizes that it asks for, and its settings, checked against the types it declares."""
    parameters = signature(make).parameters
    types = get_type_hints(make.__init__)
    known = [
        (name, types[name]) if p.default is Parameter.empty else (name, types[name], field(default=p.default))
        for name, p in parameters.items()
        if name not in sizes
    ]
    given = {key: value for key, value in settings.items() if value is not None}  # null: as if left out
    if given and not known:
        raise QuothError(f"head: {kind} has no settings; leave out {', '.join(given)}")
    filled: Any = fill(make_dataclass("Settings", known, kw_only=True), given, f"head: {kind}")
    return {**{name: size for name, size in sizes.items() if name in parameters}, **vars(filled)}

"""Tuning methods: which weights of an encoder are trained, and which modules are inserted.

A tuning is made by `build_tuning` from a table such as `{"kind": "freeze", "layers": 3}`, which stands in recipes and
model folders alike, and is put to work by `quoth.model.apply`. `register_tuning` makes a method known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from quoth.config import fill, nearest
from quoth.errors import QuothError
from quoth.tune.adapters import Adapters
from quoth.tune.freeze import BitFit, Freeze, Full
from quoth.tune.lora import LoRA
from quoth.tune.tuning import TUNINGS, Tuning, can_merge, inserted, merge, register_tuning

__all__ = [
    "TUNINGS",
    "Adapters",
    "BitFit",
    "Freeze",
    "Full",
    "LoRA",
    "Tuning",
    "build_tuning",
    "can_merge",
    "inserted",
    "merge",
    "register_tuning",
]


def build_tuning(table: Mapping[str, Any]) -> Tuning:
    """The tuning that a table describes: `kind`, and the settings of that kind."""
    settings = dict(table)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in TUNINGS:
        near = f"; did you mean {nearest(kind, TUNINGS)}?" if isinstance(kind, str) else ""
        raise QuothError(f"tuning: kind {kind!r} is unknown{near} (known: {', '.join(TUNINGS)})")
    if settings and not fields(TUNINGS[kind]):
        raise QuothError(f"tuning: {kind} has no settings; leave out {', '.join(settings)}")
    tuning: Tuning = fill(TUNINGS[kind], settings, f"tuning: {kind}")
    return tuning

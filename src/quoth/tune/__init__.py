"""Tuning methods: which weights of an encoder are trained, and which modules are inserted. One file per method.

A tuning is made by `build_tuning` from a table such as `{"kind": "freeze", "layers": 3}`, which stands in recipes and
model folders alike, and is put to work by `quoth.model.apply`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any

from quoth.encoder.encoder import Encoder
from quoth.errors import QuothError
from quoth.tune.adapters import Adapter, Adapters
from quoth.tune.bitfit import BitFit
from quoth.tune.freeze import Freeze
from quoth.tune.full import Full
from quoth.tune.lora import LoRA, LoRALinear
from quoth.tune.tuning import Tuning

__all__ = [
    "TUNINGS",
    "Adapter",
    "Adapters",
    "BitFit",
    "Freeze",
    "Full",
    "LoRA",
    "LoRALinear",
    "Tuning",
    "build_tuning",
    "inserted",
]

TUNINGS: dict[str, type] = {kind.kind: kind for kind in (Full, Freeze, Adapters, LoRA, BitFit)}


def build_tuning(table: Mapping[str, Any]) -> Tuning:
    """The tuning that a table describes: `kind`, and the settings of that kind."""
    settings = dict(table)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in TUNINGS:
        raise QuothError(f"tuning: kind {kind!r} is unknown{_nearest(kind, TUNINGS)}; known: {', '.join(TUNINGS)}")
    known = {field.name: field.default is MISSING for field in fields(TUNINGS[kind])}
    for key in settings:
        if key not in known:
            listed = f"known: {', '.join(known)}" if known else "it has none"
            raise QuothError(f"tuning: {kind} has no setting {key!r}{_nearest(key, known)}; {listed}")
    for key, needed in known.items():
        if needed and key not in settings:
            raise QuothError(f"tuning: {kind} needs {key}, which is missing")
    tuning: Tuning = TUNINGS[kind](**settings)
    return tuning


def inserted(encoder: Encoder) -> str | None:
    """What a tuning method inserted into an encoder, "adapters" or "LoRA", as its modules declare; None for nothing."""
    names: list[str] = [str(module.inserted) for module in encoder.modules() if hasattr(module, "inserted")]
    return names[0] if names else None


def _nearest(word: object, known: Mapping[str, Any]) -> str:
    found = get_close_matches(str(word), known, n=1)
    return f" (did you mean {found[0]}?)" if found else ""

"""The encoder: `Shape` (the sizes), `Encoder` (the computation), one file per family.

`Shape`, `Style` and the families do without torch; `Encoder` and `Device` are imported when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quoth.encoder.families import FAMILIES, Family, register_family
from quoth.encoder.shape import LayerShape, Shape, read_shape
from quoth.encoder.style import Style

if TYPE_CHECKING:
    from quoth.encoder.device import Device
    from quoth.encoder.encoder import Encoder

__all__ = [
    "FAMILIES",
    "Device",
    "Encoder",
    "Family",
    "LayerShape",
    "Shape",
    "Style",
    "read_shape",
    "register_family",
]


def __getattr__(name: str) -> Any:
    if name not in ("Device", "Encoder"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"quoth.encoder.{name.lower()}"), name)  # needs torch, which is optional

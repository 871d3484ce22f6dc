"""The encoder: `Shape` (the sizes), `Encoder` (the computation), `load` and `save`, one file per family.

`Shape`, `Style`, the families and `open_checkpoint` do without torch; the rest is imported when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quoth.encoder.checkpoint import Checkpoint, open_checkpoint
from quoth.encoder.families import FAMILIES, Family
from quoth.encoder.shape import LayerShape, Shape, ShapeFile, read_shape
from quoth.encoder.style import Style

if TYPE_CHECKING:
    from quoth.encoder.encoder import Encoder
    from quoth.encoder.model import Model, load, save, save_hugging_face

_WITH_TORCH = {
    "Encoder": "quoth.encoder.encoder",
    "Model": "quoth.encoder.model",
    "load": "quoth.encoder.model",
    "save": "quoth.encoder.model",
    "save_hugging_face": "quoth.encoder.model",
}

__all__ = [
    "FAMILIES",
    "Checkpoint",
    "Encoder",
    "Family",
    "LayerShape",
    "Model",
    "Shape",
    "ShapeFile",
    "Style",
    "load",
    "open_checkpoint",
    "read_shape",
    "save",
    "save_hugging_face",
]


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WITH_TORCH[name]), name)

"""`Model`: an encoder with pooler and head; loading and saving it, whole, as a delta, for transformers or peft.

model = load("bert-base-uncased")          # a hub id, a Hugging Face folder or a Quoth folder
save(model, "folder")                      # a Quoth folder, any shape; of a tuned model only what was trained
save_hugging_face(model, "folder")         # where transformers has a class for the shape

`Checkpoint` describes a model on disk without torch; the rest needs torch and is imported when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quoth.model.checkpoint import Checkpoint, open_checkpoint

if TYPE_CHECKING:
    from quoth.model.loading import load
    from quoth.model.model import Model
    from quoth.model.peft import save_peft
    from quoth.model.saving import save, save_hugging_face
    from quoth.model.shared_base import SharedBase
    from quoth.model.tuned import apply, merge, trained
    from quoth.model.weights import weights_hash

_WITH_TORCH = {
    "Model": "model",
    "SharedBase": "shared_base",
    "apply": "tuned",
    "load": "loading",
    "merge": "tuned",
    "save": "saving",
    "save_hugging_face": "saving",
    "save_peft": "peft",
    "trained": "tuned",
    "weights_hash": "weights",
}

__all__ = [
    "Checkpoint",
    "Model",
    "SharedBase",
    "apply",
    "load",
    "merge",
    "open_checkpoint",
    "save",
    "save_hugging_face",
    "save_peft",
    "trained",
    "weights_hash",
]


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"quoth.model.{_WITH_TORCH[name]}"), name)

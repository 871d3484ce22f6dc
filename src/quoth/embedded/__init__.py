"""The embedded reader: a model folder inside the package, for whoever names no other. MODEL_CARD.md says what it is.

model.onnx, model.onnx.data   int8, as `quoth export --int8` writes them
quoth.json, tokenizer.json    as in any model folder

Wherever a model is named (`quoth.hub.find_model`), the word `embedded` is this one, unless a folder has that name.
"""

from __future__ import annotations

from pathlib import Path

from quoth.errors import QuothError

NAME = "embedded"  # the word for it, where a model is named
FILES = ("model.onnx", "model.onnx.data", "quoth.json", "tokenizer.json")
ONLY_ANSWERS = (
    "the embedded reader is an ONNX file, which answers and cannot be trained, pruned, exported or put into an "
    "ensemble; name a model that has weights"
)


def embedded_folder() -> Path:
    """Where it lies; an error if the installation lacks a part of it."""
    folder = Path(__file__).parent
    for name in FILES:
        if not (folder / name).is_file():
            raise QuothError(
                f"the embedded reader is incomplete, {folder / name} is missing: install quoth again, or name a model"
            )
    return folder


def is_embedded(source: str | Path | None) -> bool:
    """Whether a model that was named, or was not, is the embedded one: by its word, or by its folder."""
    if source is None:
        return True
    try:
        if Path(source).is_dir():
            return Path(source).resolve() == Path(__file__).resolve().parent
    except OSError:  # a name that no folder can have
        return False
    return str(source) == NAME

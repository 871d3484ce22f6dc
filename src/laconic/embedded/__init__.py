"""The embedded reader: a model folder inside the package, for whoever names no other. MODEL_CARD.md says what it is.

model.onnx, model.onnx.data   int8, as `laconic export --int8` writes them
laconic.json, tokenizer.json  as in any model folder
"""

from __future__ import annotations

from pathlib import Path

from laconic.errors import LaconicError
from laconic.hub import ONNX, ONNX_DATA

NAME = "embedded"  # the word for it, where a model is named
FILES = (ONNX, ONNX_DATA, "laconic.json", "tokenizer.json")


def embedded_folder() -> Path:
    """Where it lies; an error if the installation lacks a part of it."""
    folder = Path(__file__).parent
    for name in FILES:
        if not (folder / name).is_file():
            raise LaconicError(
                f"the embedded reader is incomplete, {folder / name} is missing: install laconic again, or name a model"
            )
    return folder


def is_embedded(source: str | Path | None) -> bool:
    """Whether a model that was named, or was not, is the embedded one. A folder of that name is ./embedded."""
    return source is None or source == NAME or Path(source).resolve() == Path(__file__).resolve().parent

"""The settings of the windows that a model was trained with, as its folder states them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from quoth.config import fill
from quoth.errors import QuothError
from quoth.files import read_object
from quoth.hub import ModelFiles


@dataclass(frozen=True)
class WindowSettings:
    """The `windows` of a quoth.json; what each key means, `quoth.windows.make_windows` says."""

    max_length: int = 384
    step: int = 128
    max_query_length: int = 64


def window_settings(files: ModelFiles) -> dict[str, int]:
    """The settings of the windows that a model was trained with; an ensemble has one for all of its members.

    A folder that does not state them has 384 tokens a window, or what its tokenizer allows, as in transformers'
    question-answering pipeline.
    """
    files = files.members[0] if files.members else files
    kept = read_object(files.description).get("windows") if files.description.name == "quoth.json" else None
    if kept is None:
        kept = {"max_length": _max_length(files)}
    found: dict[str, int] = asdict(fill(WindowSettings, kept, str(files.description), "windows."))
    for key, value in found.items():
        if value < 1:
            raise QuothError(f"{files.description}: windows.{key} is {value}; it must be at least 1")
    return found


def _max_length(files: ModelFiles) -> int:
    settings = next((path for path in files.tokenizer if path.name == "tokenizer_config.json"), None)
    limit = read_object(settings).get("model_max_length") if settings else None
    return int(min(limit, 384)) if isinstance(limit, int | float) and limit >= 1 else 384

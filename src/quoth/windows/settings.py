"""The settings of the windows that a model was trained with, as its folder states them."""

from __future__ import annotations

from quoth.files import read_json
from quoth.hub import ModelFiles


def window_settings(files: ModelFiles) -> dict[str, int]:
    """The settings of the windows that a model was trained with, if its folder says so; an ensemble has one for all."""
    files = files.members[0] if files.members else files
    kept = read_json(files.description).get("windows") if files.description.name == "quoth.json" else None
    return dict(kept) if isinstance(kept, dict) else {"max_length": _max_length(files)}


def _max_length(files: ModelFiles) -> int:
    """384 tokens a window, or what the tokenizer's own settings allow, as in the old pipeline."""
    settings = next((path for path in files.tokenizer if path.name == "tokenizer_config.json"), None)
    limit = read_json(settings).get("model_max_length") if settings else None
    return int(min(limit, 384)) if isinstance(limit, int | float) and limit > 0 else 384

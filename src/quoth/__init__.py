"""Quoth: short answers from small models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quoth._version import __version__
from quoth.errors import QuothError

if TYPE_CHECKING:
    from quoth.answer.reader import Reader

__all__ = ["QuothError", "Reader", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Reader":  # imported when first asked for, so that `import quoth` stays fast
        from quoth.answer.reader import Reader

        return Reader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

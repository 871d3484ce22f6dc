"""Laconic: short answers from small models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laconic._version import __version__
from laconic.errors import LaconicError

if TYPE_CHECKING:
    from laconic.answer import Reader

__all__ = ["LaconicError", "Reader", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Reader":  # imported when first asked for, so that `import laconic` stays fast
        from laconic.answer import Reader

        return Reader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

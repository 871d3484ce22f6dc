"""Laconic: short answers from small models."""

from laconic._version import __version__
from laconic.errors import LaconicError

__all__ = ["LaconicError", "__version__"]

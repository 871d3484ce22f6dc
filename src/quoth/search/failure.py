"""Why a file gave no text."""

from __future__ import annotations

from quoth.errors import QuothError


class NoTextError(QuothError):
    """What a file holds is no text that can be read. The message is a line that names the file."""

"""SentencePiece's compiled table of characters (`precompiled_charsmap`), checked to lead nowhere outside itself."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np

from quoth.errors import QuothError


def longest_entry(coded: Any) -> int:
    """The most bytes that SentencePiece's compiled table of characters puts in the place of a character.

    The table is the size of a double-array trie, the trie, and all replacements, each ended by a zero. The library
    follows the trie without looking whether it stays inside.
    """
    damaged = QuothError("its precompiled_charsmap is damaged")
    try:
        data = base64.b64decode(coded, validate=True) if isinstance(coded, str) else b""
    except (binascii.Error, ValueError):
        raise damaged from None
    size = int.from_bytes(data[:4], "little")
    if len(data) < 8 or size % 4 or not 4 <= size <= len(data) - 4:
        raise damaged
    units = np.frombuffer(data, "<u4", size // 4, 4).astype(np.int64)
    texts = data[4 + size :]
    try:
        texts.decode("utf-8")
    except UnicodeDecodeError:
        raise damaged from None
    label = units & 0x800000FF  # of a value it has a bit that no byte has
    inner = (label > 0) & (label < 256)
    inner[0] = True
    offset = (units >> 10) << ((units & 0x200) >> 6)
    child = (np.arange(len(units)) ^ offset)[inner]
    if (child | 0xFF).max() >= len(units):  # from there the trie goes on by any byte
        raise damaged
    places = units[child[(units[inner] >> 8) & 1 == 1]] & 0x7FFFFFFF
    starts = np.frombuffer(texts + b"\0", np.uint8)
    if places.max(initial=0) > len(texts) or (starts[places] & 0xC0 == 0x80).any():  # amid a character
        raise damaged
    return max((len(text) for text in texts.split(b"\0")), default=0)

"""Character spans [start, end) of tokens, without the white space at their edges."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

# Python's str.isspace as a table over code points; U+3000, the ideographic space, is the last that is one.
SPACES = np.array([chr(code).isspace() for code in range(0x3002)])


def spans_of(encodings: Sequence[Any], texts: Sequence[str]) -> np.ndarray:
    """The trimmed spans of all tokens of several `tokenizers.Encoding`s, each in its own text: (n, 2) int32.

    The texts are trimmed as if they were one: no span leaves its own, and a thousand passages cost one array operation.
    """
    pairs = [encoding.offsets for encoding in encodings]
    counts = [len(offsets) for offsets in pairs]
    flat = np.fromiter(chain.from_iterable(chain.from_iterable(pairs)), dtype=np.int32, count=2 * sum(counts))
    begins = np.cumsum([0, *(len(text) for text in texts[:-1])], dtype=np.int32)
    shift = np.repeat(begins, counts)[:, None]
    return trim(flat.reshape(-1, 2) + shift, "".join(texts)) - shift


def trim(spans: np.ndarray, text: str) -> np.ndarray:
    """Spans (n, 2) without the white space at their edges; one of nothing else becomes empty, at its end.

    Byte-level BPE and SentencePiece count the space before a word to the word's first token; an answer should not.
    """
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    space = SPACES[np.minimum(codes, len(SPACES) - 1)]
    place = np.arange(len(codes), dtype=np.int32)
    # solid_from[i]: the first character at or after i that is not white space.
    solid_from = np.append(np.where(space, np.int32(len(codes)), place), np.int32(len(codes)))
    solid_from = np.minimum.accumulate(solid_from[::-1])[::-1]
    # solid_to[i]: one past the last character before i that is not white space.
    solid_to = np.append(np.int32(0), np.maximum.accumulate(np.where(space, np.int32(0), place + np.int32(1))))
    starts = np.minimum(solid_from[spans[:, 0]], spans[:, 1])
    return np.stack([starts, np.maximum(solid_to[spans[:, 1]], starts)], axis=1)

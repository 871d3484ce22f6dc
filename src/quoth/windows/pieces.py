"""Where a long text can be cut so that tokenising the pieces gives exactly the tokens of the whole.

A tokenizer normalises, splits into words (its pre-tokenizer) and runs its model on each word alone. All but
the model look only a few characters around. So a cut between two words changes nothing, if the neighbourhood
of the cut tokenises alike in one go and in two. That is tested, not assumed: WordPiece, byte-level BPE (whose
words begin with their space) and SentencePiece (whose words begin with ▁) differ in where they allow a cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np

from quoth.windows.offsets import spans_of

NEAR = (64, 1024, 16384)  # characters on each side of a cut that are tokenised to test it
TRIES = 200  # cuts of each sort that are tested before the piece is allowed to grow


def pieces(tokenizer: Any, text: str, size: int) -> Iterator[tuple[int, int]]:
    """Pieces [start, past) of at most `size` characters that cover the text, cut where it does no harm.

    A text without any harmless cut (a "word" of a million letters) stays in one piece, however long.
    """
    start = 0
    while len(text) - start > size:
        past = start + size
        cut = None
        while cut is None and past < len(text):
            cut = _find(tokenizer, text, past - size // 2, past)
            past += size
        if cut is None:
            break
        yield start, cut
        start = cut
    yield start, len(text)


def _find(tokenizer: Any, text: str, low: int, high: int) -> int | None:
    """The last harmless cut in (low, high] among some candidates: before white space first, then anywhere."""
    anywhere = range(high, low, -1)
    spaces = (i for i in anywhere if text[i].isspace() and not text[i - 1].isspace())
    candidates = chain(islice(spaces, TRIES), islice(anywhere, TRIES))
    return next((i for i in candidates if harmless(tokenizer, text, i)), None)


def harmless(tokenizer: Any, text: str, cut: int) -> bool:
    """Whether the text around `cut` has the same tokens in one go and in two, and the cut parts two words."""
    for near in NEAR:
        left, right = text[max(0, cut - near) : cut], text[cut : cut + near]
        whole, a, b = tokenizer.encode_batch([left + right, left, right], add_special_tokens=False)
        middle = len(a.ids)
        if whole.ids != a.ids + b.ids:
            return False
        if a.ids and b.ids:
            apart = spans_of([a, b], [left, right])
            apart[middle:] += len(left)
            parted = whole.word_ids[middle - 1] != whole.word_ids[middle]
            return parted and np.array_equal(spans_of([whole], [left + right]), apart)
        # A side of nothing but spaces or characters that the tokenizer removes tells nothing: look further.
    return False

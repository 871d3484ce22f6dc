"""Sentences and pairs of sentences as windows, one each: [CLS] a [SEP] or [CLS] a [SEP] b [SEP]."""

from __future__ import annotations

import numpy as np

from quoth.data import Sentences
from quoth.errors import QuothError
from quoth.windows.columns import Windows, without_passages
from quoth.windows.tokenizer import Tokenizer


def make_pairs(sentences: Sentences, tokenizer: Tokenizer, *, max_length: int = 128) -> Windows:
    """A window of each sentence or pair. What is too long is cut at the end, of a pair the longer one, token by token.

    `question` numbers the rows; there are no passages, so `spans` and `words` are -1.
    """
    template = tokenizer.template
    first = [np.array(ids, np.int32) for ids in tokenizer.ids(sentences.first)]
    second = None if sentences.second is None else [np.array(ids, np.int32) for ids in tokenizer.ids(sentences.second)]
    frame = template.special if second is not None else len(template.prefix) + len(template.suffix)
    if max_length <= frame:
        raise QuothError(f"max_length is {max_length}; {frame} special tokens leave no space for a sentence")
    ids, types = [], []
    for row, a in enumerate(first):
        b = second[row] if second is not None else None
        left, right = _kept(len(a), 0 if b is None else len(b), max_length - frame)
        window = template.framed(a[:left], None if b is None else b[:right])
        ids.append(window[0])
        types.append(window[1])
    return without_passages(ids, types)


def _kept(a: int, b: int, space: int) -> tuple[int, int]:
    """How many tokens of each are kept: the longer one is cut until both fit.

    Where both are cut, an odd token more is left to the longer one, of equals to the second, as in tokenizers.
    """
    if a + b <= space:
        return a, b
    short = min(a, b, space // 2)
    return (short, space - short) if a <= b else (space - short, short)

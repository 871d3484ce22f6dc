"""Paragraphs as pairs of pieces that follow one another or not: [CLS] A [SEP] B [SEP] (Devlin et al. 2019, §3.1).

A paragraph is cut into chunks, each chunk is divided into A and B, and half of the windows exchange their B with one of
another paragraph. Both kinds of B are made in the same way, so that only their content tells them apart. A and B always
come from within a paragraph: a file need not have its paragraphs in the order of a book.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from quoth.errors import QuothError
from quoth.windows.columns import Windows, without_passages
from quoth.windows.tokenizer import Template, Tokenizer

LEAST = 8  # tokens of a chunk: both of its pieces must say something
BLOCK = 4096  # paragraphs tokenised at a time

NEXT, OTHER = 0, 1  # Hugging Face's labels: B follows A, or comes from elsewhere

Piece = tuple[np.ndarray, np.ndarray]
"""Tokens in a row: their ids, and the number of each one's word, both (t,)."""


def make_neighbours(
    paragraphs: Sequence[str], tokenizer: Tokenizer, *, max_length: int = 384, seed: int = 0
) -> tuple[Windows, np.ndarray]:
    """All paragraphs as windows of at most `max_length` tokens, and the label of each: `NEXT` or `OTHER`.

    A paragraph that is longer than a window becomes several; a window begins and ends between two words, unless it has
    the B of another paragraph, which may be cut. What is left over at the end of a paragraph, or the whole of it, is
    left out if it has fewer than 8 tokens or a single word. `words` numbers the words of A and B within each window.

    The result is a function of its arguments. Every B is used once, with its own A or with another.
    """
    space = max_length - tokenizer.template.special
    if space < LEAST:
        raise QuothError(f"max_length is {max_length}; it must be at least {tokenizer.template.special + LEAST} here")
    draws = np.random.PCG64(np.random.SeedSequence([seed, 0x4E5350]))
    pieces: list[tuple[Piece, Piece]] = []
    paragraph: list[int] = []
    for number, piece in enumerate(_encode(paragraphs, tokenizer)):
        for chunk in _chunks(piece, space):
            pieces.append(_divide(chunk, int(draws.random_raw())))
            paragraph.append(number)
    if len(set(paragraph)) < 2:
        raise QuothError(
            f"the text has {len(set(paragraph))} usable paragraph(s); at least 2 are wanted, "
            "since what does not follow is taken from another"
        )
    partner = _partners(np.array(paragraph), draws)
    made = [_window(pieces[w][0], pieces[p][1], tokenizer.template, space) for w, p in enumerate(partner.tolist())]
    ids, types, words = zip(*made, strict=True)
    return without_passages(ids, types, words), np.where(partner == np.arange(len(partner)), NEXT, OTHER)


def _encode(paragraphs: Sequence[str], tokenizer: Tokenizer) -> Iterator[Piece]:
    for low in range(0, len(paragraphs), BLOCK):
        for encoded in tokenizer.encode(paragraphs[low : low + BLOCK]):
            yield encoded.ids, encoded.words


def _begins(words: np.ndarray) -> np.ndarray:
    """Where words begin; a token that belongs to no word stands for itself."""
    begins = words < 0
    begins[:1] = True
    begins[1:] |= words[1:] != words[:-1]
    return np.flatnonzero(begins)


def _chunks(piece: Piece, space: int) -> Iterator[Piece]:
    """A paragraph in chunks of at most `space` tokens, cut between words (inside one that is longer)."""
    ids, words = piece
    begins, low = _begins(words), 0
    while len(ids) - low >= LEAST:
        high = min(low + space, len(ids))
        if high < len(ids):
            before = int(begins[np.searchsorted(begins, high, side="right") - 1])
            high = before if before > low else high
        if high - low >= LEAST and len(_begins(words[low:high])) > 1:
            yield ids[low:high], words[low:high]
        low = high


def _divide(chunk: Piece, draw: int) -> tuple[Piece, Piece]:
    """A chunk divided before one of its words: one that begins in its middle half, if there is one."""
    ids, words = chunk
    begins, count = _begins(words)[1:], len(ids)
    middle = begins[(4 * begins >= count) & (4 * begins <= 3 * count)]
    if not len(middle):
        middle = begins[[np.abs(2 * begins - count).argmin()]]
    at = int(middle[draw % len(middle)])
    return (ids[:at], words[:at]), (ids[at:], words[at:])


def _partners(paragraph: np.ndarray, draws: np.random.PCG64) -> np.ndarray:
    """Whose B each window has: half of them have another's, of another paragraph.

    The half is laid out paragraph by paragraph, in random order, and each takes the B of the one half a round further:
    that is another paragraph's, unless one paragraph has more than half of them. Then it keeps its own.
    """
    count = len(paragraph)
    some = np.argsort(draws.random_raw(count), kind="stable")[: max(2, count // 2)]
    place = draws.random_raw(int(paragraph[-1]) + 1)
    row = some[np.argsort(place[paragraph[some]], kind="stable")]
    partner = np.arange(count)
    partner[row] = np.roll(row, len(row) // 2)
    own = paragraph[partner] == paragraph
    return np.where(own, np.arange(count), partner)


def _window(first: Piece, second: Piece, template: Template, space: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, types and words of a window; B is cut at its end, between words, if both are longer than `space`."""
    (a, a_words), (b, b_words) = first, second
    past = space - len(a)
    if past < len(b):
        before = _begins(b_words[: past + 1])[-1]
        past = int(before) if before else past
    b, b_words = b[:past], b_words[:past]
    shifted = np.where(b_words < 0, b_words, b_words + a_words.max(initial=-1) + 1)
    frame = [np.full(len(part), -1, np.int32) for part in (template.prefix, template.middle, template.suffix)]
    words = np.concatenate([frame[0], a_words, frame[1], shifted, frame[2]]).astype(np.int32)
    return *template.framed(a, b), words

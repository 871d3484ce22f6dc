"""The sentence of the documents that is nearest to a quote which does not stand in them, and the words that differ.

Sentences come from the passages that go best with the quote (BM25). As many sentences as the quote has, or one more,
are compared with it word by word: the longest common subsequence of their words, m words. What the sentences have
before the first and after the last word of the quote does not count: a quote need not be a whole sentence. The
similarity is 2m / (words of the quote + words that are compared with it).

The time is bounded, whatever the texts: `TRIES` comparisons of at most `WORDS` words with `WORDS` words.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from quoth.search import Collection
from quoth.search.retrieve import WIDE
from quoth.search.sentences import split_sentences

READ = 30  # passages whose sentences are compared
TRIES = 40  # of these sentences, those with most words of the quote first
LEAST = 0.5  # similarity from which on a sentence is called near: half of the words are the same
SENTENCES = 20  # of a quote that are counted
WORDS = 2000  # of a quote, and of sentences beside it, that are compared: a table may be one sentence

# One East Asian character; a word or number, with its sign and the marks inside it; or one other mark.
SIGN = r"(?:(?<![^\s(])[-+\u2013\u2212](?=\d))?"
INSIDE = r"[-'’.,\u2010\u2011\u00ad\u200b\u200c\u200d\u2060\ufeff]"
WORD = re.compile(rf"[{WIDE}]|{SIGN}[^\W{WIDE}]+(?:{INSIDE}[^\W{WIDE}]+)*|[^\w\s]")

Pairs = list[tuple[int, int]]  # a word of the quote and one of the text that are the same


@dataclass(frozen=True)
class Difference:
    """Words of the quote, and what the document has instead; one of the two may be empty."""

    quote: str
    document: str


@dataclass(frozen=True)
class Nearest:
    """The characters [start, end) of a document that are most like the quote. similarity: from 0 to 1."""

    document: int
    start: int
    end: int
    similarity: float
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class _Words:
    """Words of a text, as they are compared, and where they stand in it."""

    text: str
    keys: Sequence[str]
    spans: Sequence[tuple[int, int]]

    def take(self, start: int, end: int) -> _Words:
        """Those that begin in [start, end) of the text."""
        first, past = (bisect_left(self.spans, (place, 0)) for place in (start, end))
        past = min(past, first + WORDS)
        return _Words(self.text, self.keys[first:past], self.spans[first:past])

    def cut(self, first: int, past: int) -> str:
        """The text from one word to another."""
        return self.text[self.spans[first][0] : self.spans[past - 1][1]] if past > first else ""


def nearest(quote: str, collection: Collection, normalised: Callable[[str], str]) -> Nearest | None:
    """What is most like a quote, the earlier one in the order of the search at a tie; None if nothing is near it."""
    key = cache(normalised)
    wanted = _words(quote, 0, len(quote), key).take(0, len(quote))
    counts = Counter(wanted.keys)
    windows: list[tuple[float, int, int, _Words]] = []
    for document, words in _windows(quote, collection, key):
        common = (counts & Counter(words.keys)).total()
        bound = 2 * common / (len(wanted.keys) + common)  # no alignment of the two is better
        if bound >= LEAST:
            windows.append((bound, len(windows), document, words))
    best: Nearest | None = None
    for bound, _, document, words in sorted(windows, key=lambda window: (-window[0], window[1]))[:TRIES]:
        if best is not None and bound <= best.similarity:
            break
        found = _compared(wanted, words, document)
        if found.similarity >= LEAST and (best is None or found.similarity > best.similarity):
            best = found
    return best


def _windows(quote: str, collection: Collection, key: Callable[[str], str]) -> Iterator[tuple[int, _Words]]:
    """Document, and words of as many sentences as the quote has, and of one more; each place once."""
    count = min(SENTENCES, len(split_sentences(quote)))
    texts: dict[int, str] = {}
    seen = set()
    for passage in collection.best(quote, READ):
        if passage.document not in texts:
            texts[passage.document] = collection.document(passage.document).text
        text = texts[passage.document]
        words = _words(text, passage.begin, passage.past, key)
        for start, end in _runs(split_sentences(text[passage.begin : passage.past]), count):
            place = (passage.document, passage.begin + start, passage.begin + end)
            if place not in seen:
                seen.add(place)
                yield passage.document, words.take(*place[1:])


def _runs(sentences: Sequence[tuple[int, int]], count: int) -> Iterator[tuple[int, int]]:
    for size in (count, count + 1):
        for first in range(max(1, len(sentences) - size + 1) if sentences else 0):
            yield sentences[first][0], sentences[min(first + size, len(sentences)) - 1][1]


def _words(text: str, start: int, end: int, key: Callable[[str], str]) -> _Words:
    found = [match.span() for match in WORD.finditer(text, start, end)]
    return _Words(text, [key(text[first:past]) for first, past in found], found)


def _compared(wanted: _Words, words: _Words, document: int) -> Nearest:
    """The words of the quote beside those of the text."""
    pairs = _trimmed(_common(wanted.keys, words.keys), len(wanted.keys), len(words.keys))
    if not pairs:
        return Nearest(document, 0, 0, 0.0, ())
    first, past = _range(pairs, len(wanted.keys), len(words.keys))
    differences = []
    before = (0, first)
    for here in (*pairs, (len(wanted.keys), past)):
        if here != before:
            differences.append(Difference(wanted.cut(before[0], here[0]), words.cut(before[1], here[1])))
        before = (here[0] + 1, here[1] + 1)
    similarity = 2 * len(pairs) / (len(wanted.keys) + past - first)
    return Nearest(document, words.spans[first][0], words.spans[past - 1][1], similarity, tuple(differences))


def _common(one: Sequence[str], other: Sequence[str]) -> Pairs:
    """A longest common subsequence, which ends as early and begins as late in `other` as one can."""
    numbers = {word: number for number, word in enumerate(dict.fromkeys((*one, *other)))}
    row, column = (np.array([numbers[word] for word in words], np.int32) for words in (one, other))
    lengths: NDArray[np.int16] = np.zeros((len(one) + 1, len(other) + 1), np.int16)  # [i, j]: of the first i and j
    for i, number in enumerate(row):
        more = np.maximum(lengths[i, 1:], lengths[i, :-1] + (column == number))
        np.maximum.accumulate(more, out=lengths[i + 1, 1:])
    i, j = len(one), int(np.argmax(lengths[-1]))
    pairs: Pairs = []
    while i and j:
        if row[i - 1] == column[j - 1] and lengths[i, j] == lengths[i - 1, j - 1] + 1:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif lengths[i - 1, j] == lengths[i, j]:
            i -= 1
        else:
            j -= 1
    return pairs[::-1]


def _range(pairs: Pairs, quote: int, text: int) -> tuple[int, int]:
    """The words of the text that stand beside the quote: at its ends as many as it has there."""
    first, last = pairs[0], pairs[-1]
    return max(0, first[1] - first[0]), min(text, last[1] + quote - last[0])


def _trimmed(pairs: Pairs, quote: int, text: int) -> Pairs:
    """Without pairs at the beginning and the end that are so far from the others that the rest is more similar."""

    def similarity(some: Pairs) -> float:
        first, past = _range(some, quote, text)
        return 2 * len(some) / (quote + past - first)

    if not pairs:
        return pairs
    begin = max(range(len(pairs)), key=lambda i: (similarity(pairs[i:]), -i))
    pairs = pairs[begin:]
    end = max(range(1, len(pairs) + 1), key=lambda i: (similarity(pairs[:i]), i))
    return pairs[:end]

"""Which passages of long texts to read: those with the highest BM25 score for the question.

Texts are split into passages, where a paragraph ends if possible, and ranked by the sum of BM25 over the words of the
question. Words are runs of letters and digits in lower case, cut to their first six letters so that "invented" finds
"invention". Numpy alone: nothing is kept between questions, and 20 MB of text take some two seconds.

A character of Chinese, Japanese or Korean is about a token of its own, where other scripts have four characters in one.
It counts as a word, and as four characters of a passage: else a passage would be eight windows and not one, and reading
a hundred of them take eight times as long.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quoth.data.bm25 import weigh

SIZE = 1200  # characters of a passage at most: with MARGIN about what a window of 384 tokens holds
MARGIN = 150  # characters that are read on both sides of a passage, for a sentence that a cut went through
LETTERS = 6
WIDE = "\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"  # East Asian scripts
WIDTH = 4  # characters of other scripts that have as many tokens as one of these
ONE_WIDE = re.compile(f"[{WIDE}]")
WORD = re.compile(rf"(?=\w)[{WIDE}]|[^\W{WIDE}]+")
BREAKS = (("\n\n", "\n\r\n"), ("\n", "\r"), (". ", "! ", "? "), (" ",))  # where to cut, the best places first


@dataclass(frozen=True)
class Passage:
    """The characters [begin, past) of one of several texts."""

    document: int
    begin: int
    past: int

    def __len__(self) -> int:
        return self.past - self.begin


@dataclass(frozen=True)
class FoundPassage(Passage):
    """A passage that goes with a question. score: the higher the better; heading: those above it, outermost first."""

    score: float = 0.0
    heading: str = ""


def split_passages(texts: Sequence[str], size: int = SIZE, width: int = WIDTH) -> list[Passage]:
    """All texts in passages of at most `size` characters, in order, without gap and overlap.

    width: how many a wide character counts as
    """
    found = []
    for number, text in enumerate(texts):
        begin = 0
        while len(text) - begin > (room := _room(text, begin, size, width)):
            past = _cut(text, begin, room)
            found.append(Passage(number, begin, past))
            begin = past
        found.append(Passage(number, begin, len(text)))
    return found


def rank_passages(
    question: str, texts: Sequence[str], passages: Sequence[Passage], count: int
) -> list[tuple[Passage, float]]:
    """The `count` passages with the highest scores, best first, the earlier one at a tie."""
    scores = bm25(question, texts, passages)
    best = np.argsort(-scores, kind="stable")[:count].tolist()
    return [(passages[i], float(scores[i])) for i in best]


def bm25(question: str, texts: Sequence[str], passages: Sequence[Passage]) -> NDArray[np.float64]:
    """How well each of N passages goes with the question, (N,): 0 where it shares no word with it."""
    column = {word: number for number, word in enumerate(dict.fromkeys(_words(question)))}
    counts = np.zeros((len(passages), len(column)))
    lengths = np.zeros((len(passages), 1))
    for row, passage in enumerate(passages):
        words = _words(texts[passage.document][passage.begin : passage.past])
        lengths[row] = len(words)
        here = Counter(words)
        for word in column.keys() & here.keys():
            counts[row, column[word]] = here[word]
    having = np.count_nonzero(counts, axis=0)
    return np.asarray(weigh(counts, having, lengths, len(passages), lengths.mean()).sum(axis=1))


def widened(passage: Passage, text: str, margin: int = MARGIN) -> Passage:
    """The passage with up to `margin` characters more on both sides, beginning and ending between words."""
    begin, past = passage.begin, passage.past
    low = max(0, begin - margin)
    if low:
        found = re.search(r"\s", text[low:begin])
        low = low + found.end() if found else begin
    high = min(len(text), past + margin)
    if high < len(text):
        found = re.search(r"\s\S*\Z", text[past:high])
        high = past + found.start() if found else past
    return Passage(passage.document, low, high)


def _room(text: str, begin: int, size: int, width: int) -> int:
    """How many characters from `begin` on count as at most `size`; at least one."""
    wide = [match.start() for match in ONE_WIDE.finditer(text, begin, begin + size)] if width > 1 else []
    if not wide:
        return size
    counts = np.ones(size, np.int64)
    counts[np.array(wide) - begin] = width
    return max(1, int(np.searchsorted(np.cumsum(counts), size, side="right")))


def _cut(text: str, begin: int, size: int) -> int:
    """Where a passage from `begin` ends: after the last break of the best kind in its last two thirds."""
    for marks in BREAKS:
        places = [(text.rfind(mark, begin + size // 3, begin + size), len(mark)) for mark in marks]
        place, length = max(places)
        if place >= 0:
            return place + length
    return begin + size


def _words(text: str) -> list[str]:
    return [word[:LETTERS] for word in WORD.findall(text.lower())]

"""Reading passages of documents for one question: what the reader is given of each, and the best spans in it.

A short passage is read with what stands around it, as much as a window holds. In front of it stand the title of its
document and the headings above it: many passages do not name what they are about. An answer is never a part of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from quoth.answer.chunks import warn_skipped
from quoth.answer.features import find_candidates
from quoth.answer.ranking import Seen
from quoth.data import Question
from quoth.search.collection import Collection
from quoth.search.retrieve import MARGIN, ONE_WIDE, SIZE, FoundPassage, Passage, widened
from quoth.windows import Windows, iter_windows
from quoth.windows.tokenizer import Encoded

if TYPE_CHECKING:
    from quoth.answer.reader import Progress, Reader

WINDOW = SIZE + 2 * MARGIN  # characters that a window holds about
FRONT = 200  # characters of title and headings at most, the last ones
HELD = 20_000_000  # characters of documents that are kept in memory at once
BLOCK = 400_000  # characters that are tokenised at a time
WINDOWS = 64  # run together, between two looks at the progress


class Documents:
    """The documents of a collection: texts and titles. Those last used are kept, up to `HELD` characters of them."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._held: dict[int, tuple[str, str]] = {}
        self._size = 0

    def text(self, number: int) -> str:
        """The text of one of them."""
        return self._look(number)[0]

    def title(self, number: int) -> str:
        """Its title, or nothing."""
        return self._look(number)[1]

    def _look(self, number: int) -> tuple[str, str]:
        if number not in self._held:
            document = self._collection.document(number)
            self._held[number] = document.text, document.title
            self._size += len(document.text)
            while self._size > HELD and len(self._held) > 1:
                self._size -= len(self._held.pop(next(iter(self._held)))[0])
        return self._held[number]


class Told:
    """Says how many characters of all are read. done: those of earlier passages."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = max(1, total)
        self.done = 0

    def __call__(self, more: int) -> None:
        """Of these passages `more` characters are read."""
        if self._progress:
            self._progress(self.done + more, self._total)


@dataclass(frozen=True)
class _Piece:
    """What is read of a document for a passage of it: the characters [begin, past), and what is put in front."""

    document: int
    begin: int
    past: int
    front: str

    def __len__(self) -> int:
        return self.past - self.begin


def read_passages(
    reader: Reader,
    question: str,
    documents: Documents,
    passages: Sequence[Passage],
    names: Sequence[str],
    step: int | None,
    n: int,
    longest: int,
    told: Told,
) -> Iterator[Seen]:
    """The n best spans of each window, some windows at a time. names: the features that are wanted."""
    for group in _groups(passages):
        pieces = _pieces(reader, question, documents, group)
        asked = [_asked(question, documents, one) for one in pieces]
        texts = [one.context for one in asked]
        for windows in _windows(reader, asked, pieces, step):
            logits = reader.logits(windows)
            found = find_candidates(windows, logits, [question] * len(texts), texts, names, n=n, longest=longest)
            warn_skipped(windows, found.skipped, [one.id for one in asked], stacklevel=4)
            here = [pieces[i] for i in windows.question.tolist()]
            yield Seen([Passage(one.document, one.begin - len(one.front), one.past) for one in here], found)
            reached = int(windows[-1].spans.max(initial=0)) - len(here[-1].front)
            told(sum(map(len, group[: int(windows.question[-1])])) + min(max(0, reached), len(here[-1])))
        told.done += sum(map(len, group))


def _groups(passages: Sequence[Passage]) -> Iterator[Sequence[Passage]]:
    """Passages to be read together, some `BLOCK` characters of them."""
    first = size = 0
    for number, passage in enumerate(passages, 1):
        size += len(passage)
        if size >= BLOCK or number == len(passages):
            yield passages[first:number]
            first, size = number, 0


def _pieces(reader: Reader, question: str, documents: Documents, passages: Sequence[Passage]) -> list[_Piece]:
    """What is read for each passage: with context as far as a window has space for it.

    Of 51 questions over real documents the first answer was right for 24 without context, and for 29 with some.
    """
    wide = [_widened(one, documents.text(one.document)) for one in passages]
    fronts = [_front(one, documents.title(one.document)) for one in passages]
    asked, *taken = map(len, reader.tokenizer.ids([question, *fronts]))
    space = reader.max_length - reader.tokenizer.template.special - min(asked, reader.max_query_length)
    longer = [i for i, (one, around) in enumerate(zip(passages, wide)) if len(around) > len(one)]
    texts = [documents.text(wide[i].document)[wide[i].begin : wide[i].past] for i in longer]
    for i, tokens in zip(longer, reader.tokenizer.encode(texts)):
        at, inside = wide[i].begin, passages[i]
        begin, past = _fitting(tokens, inside.begin - at, inside.past - at, space - taken[i])
        wide[i] = Passage(inside.document, at + begin, at + past)
    return [_Piece(one.document, one.begin, one.past, front) for one, front in zip(wide, fronts)]


def _widened(passage: Passage, text: str) -> Passage:
    """A short passage with what stands around it, to about what a window holds."""
    room = (WINDOW - len(passage)) // 2
    if room <= 0 or ONE_WIDE.search(text, passage.begin, passage.past):  # whose characters are tokens of their own
        return passage
    return widened(passage, text, room)


def _front(passage: Passage, title: str) -> str:
    """The title of a document and the headings above a passage that a search found, as one sentence."""
    if not isinstance(passage, FoundPassage):
        return ""
    headings = passage.heading.split(" > ") if passage.heading else []
    parts = headings if not title or title in headings[:1] else [title, *headings]
    return f"{', '.join(parts)[-FRONT:]}. " if parts else ""


def _fitting(tokens: Encoded, begin: int, past: int, space: int) -> tuple[int, int]:
    """The characters of a text to read: [begin, past) and as much around it as makes `space` tokens, whole words.

    tokens: of the text
    """
    spans, count = tokens.spans, len(tokens)
    first, end = int(np.searchsorted(spans[:, 1], begin, "right")), int(np.searchsorted(spans[:, 0], past))
    spare = space - (end - first)
    if spare <= 0 or first >= end:
        return begin, past
    low = max(0, min(first - spare // 2, count - space))
    high = min(count, low + space)
    while 0 < low < first and tokens.words[low] == tokens.words[low - 1]:
        low += 1
    while end < high < count and tokens.words[high] == tokens.words[high - 1]:
        high -= 1
    return min(begin, int(spans[low, 0])), max(past, int(spans[high - 1, 1]))


def _asked(question: str, documents: Documents, piece: _Piece) -> Question:
    where = f"text {piece.document + 1}, characters {piece.begin}–{piece.past}"
    return Question(where, question, piece.front + documents.text(piece.document)[piece.begin : piece.past], ())


def _windows(
    reader: Reader, asked: Sequence[Question], pieces: Sequence[_Piece], step: int | None
) -> Iterator[Windows]:
    """The windows of all pieces. What is put in front is read, and is no part of the passage: no answer is in it."""
    for windows in iter_windows(
        asked,
        reader.tokenizer,
        max_length=reader.max_length,
        max_query_length=reader.max_query_length,
        step=reader.step if step is None else step,
        at_most=WINDOWS,
    ):
        passage = windows.passage.copy()
        for w, i in enumerate(windows.question.tolist()):
            first, past = windows.starts[w] + passage[w]
            passage[w, 0] += np.searchsorted(windows.spans[first:past, 0], len(pieces[i].front))
        yield replace(windows, passage=passage)

"""How the index cuts a document into passages, and which words of them and of a question it looks at.

A passage is as many whole sentences as about one window of 384 tokens holds. It begins with the last sentence or two of
the passage before it, so that an answer has its context; at a heading it begins anew, unless the section before it is
short. A sentence that is longer than a passage (a table, code) is cut where `retrieve.split_passages` cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from quoth.search.document import Document
from quoth.search.retrieve import ONE_WIDE, SIZE, WIDTH, WORD, split_passages
from quoth.search.sentences import split_sentences
from quoth.search.word_sets import word_set

OVERLAP = 200  # characters of the passage before it that a passage repeats at most, whole sentences
SHORT = 400  # characters of a section that is not worth a passage of its own
WORDS = 64  # different words of a question that are looked for: no more fit into the question of a window either

# What says nothing of a passage. Leaving these out makes a search ten times as fast: they are in every passage.
STOP_WORDS = word_set(
    "a an the this that these those it its i you he she we they me him her us them my your his our their",
    "am is are was were be been being do does did done doing have has had having can could may might must shall should",
    "will would what which who whom whose when where why how there here if then than as at by for from in into of off",
    "on onto or and but nor not no to with without up down out over under about any some all both each so such too",
    "very own same just also only s t d ll re ve m don isn aren wasn doesn didn won",
)


def cut_passages(document: Document) -> list[tuple[int, int]]:
    """The characters [begin, past) of each passage, in order. Together they have all of the text."""
    text = document.text
    headings = {heading.at for heading in document.headings}
    bounds = _bounds(text, headings)
    sizes = [_size(text, begin, past) for begin, past in pairwise(bounds)]
    found = []
    first, count = 0, len(sizes)
    while first < count:
        size, past = sizes[first], first + 1
        while past < count and size + sizes[past] <= SIZE and not (size >= SHORT and bounds[past] in headings):
            size += sizes[past]
            past += 1
        found.append((bounds[first], bounds[past]))
        first = _overlap(bounds, sizes, headings, first, past) if past < count else past
    return found


def heading_words(document: Document, path: str, heading: str) -> str:
    """What is searched beside the text of a passage: the name of its file, its title, the headings above it."""
    return searchable(f"{path} {document.title} {heading}")


def searchable(text: str) -> str:
    """A text as the index looks at it: each East Asian character is a word of its own."""
    if text.isascii():
        return text
    return ONE_WIDE.sub(r" \g<0> ", text).encode("utf-8", "replace").decode()


def match_expression(question: str) -> str:
    """What FTS5 is asked for: any of the words, without those that say nothing unless all are such; "" for no word."""
    words = list(dict.fromkeys(WORD.findall(question.lower().encode("utf-8", "ignore").decode())))
    telling = [word for word in words if word not in STOP_WORDS] or words
    return " OR ".join(f'"{word}"' for word in telling[:WORDS])


def _bounds(text: str, headings: set[int]) -> list[int]:
    """Where a passage may begin or end: 0, where sentences and headings begin, the end of the text."""
    starts = {begin for begin, _ in split_sentences(text)} | headings
    starts = {start for start in starts if 0 < start < len(text)}
    bounds = [0, *sorted(starts), len(text)]
    found = []
    for begin, past in pairwise(bounds):
        found.append(begin)
        if past - begin > SIZE // WIDTH and _size(text, begin, past) > SIZE:
            found += [begin + piece.begin for piece in split_passages([text[begin:past]])[1:]]
    return [*found, len(text)]


def _size(text: str, begin: int, past: int) -> int:
    """Characters, a wide one counted as `WIDTH`."""
    piece = text[begin:past]
    return len(piece) if piece.isascii() else len(piece) + (WIDTH - 1) * len(ONE_WIDE.findall(piece))


def _overlap(bounds: Sequence[int], sizes: Sequence[int], headings: set[int], first: int, past: int) -> int:
    """Where the passage after [first, past) begins: some sentences before `past`, or there if the next has no room."""
    begin, size = past, 0
    while bounds[begin] not in headings and begin - 1 > first and size + sizes[begin - 1] <= OVERLAP:
        begin -= 1
        size += sizes[begin]
    return begin if size + sizes[past] <= SIZE else past

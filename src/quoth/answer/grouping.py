"""Distinct answers of a search, and the distinct sentences that hold them, each with all its places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from quoth.answer.find import Hit
from quoth.data.normalise import normalise
from quoth.search import Document


@dataclass(frozen=True)
class Sentence:
    """The characters [start, end) of a document, and the answers in them, best first."""

    document: int
    start: int
    end: int
    hits: tuple[Hit, ...]


def group_answers(hits: Sequence[Hit]) -> list[list[Hit]]:
    """The hits, which come best first, in groups of equal answers; the best group first, the best place first in each.

    Answers are equal if they are after the normalisation of the official metric: lower case, no punctuation, no
    articles. A hit inside a better one of the same text, or around it, is the same place and adds nothing. A hit of
    which the normalisation leaves nothing, such as a comma, is no answer, unless it is the best.
    """
    places: dict[int, list[tuple[int, int]]] = {}
    groups: dict[str, list[Hit]] = {}
    for number, hit in enumerate(hits):
        key = normalise(hit.answer.text)
        here = places.setdefault(hit.document, [])
        start, end = hit.answer.start, hit.answer.end
        if (number and not key) or any(_nested(start, end, *other) for other in here):
            continue
        here.append((start, end))
        groups.setdefault(key, []).append(hit)
    return list(groups.values())


def group_sentences(hits: Sequence[Hit], document: Callable[[int], Document]) -> list[list[Sentence]]:
    """The sentences of the hits, which come best first, in groups of equal ones; the best group and place first.

    Sentences are equal if they are but for white space. Sentences of one document that overlap, since an answer goes
    over two of them, are one.
    """
    found: list[Sentence] = []
    for hit in hits:
        start, end = document(hit.document).sentence(hit.answer.start, hit.answer.end)
        found.append(Sentence(hit.document, start, end, (hit,)))
    groups: dict[str, list[Sentence]] = {}
    for one in _merged(found, hits):
        text = document(one.document).text[one.start : one.end]
        groups.setdefault(" ".join(text.split()), []).append(one)
    return list(groups.values())


def _nested(start: int, end: int, other_start: int, other_end: int) -> bool:
    """Whether one of two spans lies in the other."""
    return (other_start <= start and end <= other_end) or (start <= other_start and other_end <= end)


def _merged(sentences: Sequence[Sentence], hits: Sequence[Hit]) -> list[Sentence]:
    """Those that overlap made one, in the order of their best hits."""
    merged: list[Sentence] = []
    for one in sorted(sentences, key=lambda one: (one.document, one.start, one.end)):
        last = merged[-1] if merged else None
        if last is not None and last.document == one.document and one.start < last.end:
            merged[-1] = Sentence(one.document, last.start, max(last.end, one.end), (*last.hits, *one.hits))
        else:
            merged.append(one)
    rank = {hit: number for number, hit in reversed(list(enumerate(hits)))}
    ordered = [replace(one, hits=tuple(sorted(one.hits, key=rank.__getitem__))) for one in merged]
    return sorted(ordered, key=lambda one: rank[one.hits[0]])

"""The result of a question as one JSON object: docs/ask.md and ask.schema.json describe it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from quoth.answer.find import Hit, SearchResult
from quoth.answer.grouping import Sentence, group_answers, group_sentences
from quoth.answer.reader import Progress, Reader
from quoth.search import Collection, Document

SCHEMA = 1  # of what `result` gives; a key that changes its meaning or goes away makes it 2
PLACES = 200  # answers at most that are grouped by --all and --sentences

Kind = Literal["top", "all", "sentences"]
More = Callable[[int, int, int], dict[str, Any]]  # more keys for the characters [start, end) of document `number`


@dataclass(frozen=True)
class Form:
    """What is wanted of a question.

    - kind: "top", the best answers; "all", every distinct answer; "sentences", every distinct sentence with an answer
    - top: at most so many; None: one for "top", no limit for the others
    - min_score: the least probability of an answer; None: the rule of the reader
    - read: passages that are read at most; 0: all
    """

    kind: Kind = "top"
    top: int | None = None
    min_score: float | None = None
    read: int = 0


def result(
    reader: Reader,
    collection: Collection,
    question: str,
    form: Form,
    progress: Progress | None = None,
    more: More | None = None,
) -> dict[str, Any]:
    """Ask, and give the object: the best answer or null, its score, then all that was wanted, or the one rejected.

    more: what is said of each place beside where it stands in its file
    """
    many = form.kind != "top"
    found = reader.find(
        question,
        collection,
        top=PLACES if many else form.top or 1,
        every=many,
        min_score=form.min_score,
        read=form.read,
        progress=progress,
    )
    shown = _Shown(collection, more)
    best = found.hits[0] if found.hits else None
    return {
        "schema": SCHEMA,
        "question": question,
        "form": form.kind,
        "answer": best.answer.text if best else None,
        "score": best.probability if best else found.no_answer,
        "no_answer": best is None,
        "null_minus_best": found.null_minus_best if math.isfinite(found.null_minus_best) else None,
        "min_score": found.min_score,
        "read": found.read,
        "passages": found.passages,
        **_found(found, form, shown),
        "rejected": shown.answer(found.rejected) if found.rejected else None,
    }


def _found(found: SearchResult, form: Form, shown: _Shown) -> dict[str, Any]:
    """What the form wants: answers, groups of them, or sentences beside the answers in them."""
    if form.kind == "top":
        return {"answers": [shown.answer(hit) for hit in found.hits]}
    if form.kind == "all":
        groups = group_answers(found.hits)
        return {"distinct": len(groups), "answers": [shown.group(group) for group in groups[: form.top]]}
    sentences = group_sentences(found.hits, shown.document)
    some = sentences[: form.top]
    return {
        "distinct": len(sentences),
        "answers": [shown.answer(group[0].hits[0]) for group in some],
        "sentences": [shown.sentence(group) for group in some],
    }


class _Shown:
    """Answers and sentences as objects, of the documents of a collection."""

    def __init__(self, collection: Collection, more: More | None) -> None:
        self.document = cache(collection.document)
        self._more = more

    def group(self, hits: Sequence[Hit]) -> dict[str, Any]:
        """An answer and all its places, best first."""
        places = [self.answer(hit) for hit in hits]
        return {**places[0], "count": len(places), "places": places}

    def sentence(self, places: Sequence[Sentence]) -> dict[str, Any]:
        """A sentence, the answers in it, and all its places, best first."""
        best = places[0]
        return {
            "sentence": self.document(best.document).text[best.start : best.end],
            "score": best.hits[0].probability,
            "answers": [_in_sentence(hit, best.start) for hit in best.hits],
            "count": len(places),
            "places": [
                {"score": one.hits[0].probability, **self._place(one.document, one.start, one.end)} for one in places
            ],
        }

    def answer(self, hit: Hit) -> dict[str, Any]:
        """An answer, where it stands in the file, and its sentence with the place of the answer in it."""
        source = self.document(hit.document)
        start, end = hit.answer.start, hit.answer.end
        first, past = source.sentence(start, end)
        return {
            **_in_sentence(hit, first),
            **self._place(hit.document, start, end),
            "sentence": source.text[first:past],
            "sentence_start": source.place(first, past).start,
        }

    def _place(self, number: int, start: int, end: int) -> dict[str, Any]:
        """Where the characters [start, end) of a document stand in its file."""
        facts = place_facts(self.document(number), start, end)
        return {**facts, **self._more(number, start, end)} if self._more else facts


def place_facts(document: Document, start: int, end: int) -> dict[str, Any]:
    """Where the characters [start, end) of a document stand in its file, as an object for JSON."""
    place = document.place(start, end)
    return {
        "file": document.name,
        "start": place.start,
        "end": place.end,
        "line": place.line,
        "part": place.part,
        "page": place.page,
        "label": place.label,
        "boxes": [[box.x0, box.y0, box.x1, box.y1] for box in place.boxes],
        "headings": list(place.headings),
    }


def _in_sentence(hit: Hit, start: int) -> dict[str, Any]:
    places = [hit.answer.start - start, hit.answer.end - start]
    return {"answer": hit.answer.text, "score": hit.probability, "in_sentence": places}

"""`open_collection`: the documents of a user, and the passages of them that go best with a question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from quoth.search.document import Document
from quoth.search.documents import read_documents
from quoth.search.retrieve import FoundPassage, rank_passages, split_passages, widened

Progress = Callable[[int, int], None]


@runtime_checkable
class Collection(Protocol):
    """Documents, numbered from 0, and their passages."""

    @property
    def notes(self) -> Sequence[str]:
        """What was left out, and what is to be told of the index: a line each."""

    @property
    def passages(self) -> int:
        """How many there are."""

    def __len__(self) -> int:
        """How many documents there are."""

    def document(self, number: int) -> Document:
        """One of them."""

    def best(self, question: str, count: int) -> list[FoundPassage]:
        """At most `count` passages, those that go best with the question first."""


class TextCollection:
    """Documents in memory. Nothing is kept between questions."""

    def __init__(self, documents: Sequence[Document], notes: Sequence[str] = ()) -> None:
        self.notes = notes
        self._documents = documents
        self._texts = [document.text for document in documents]
        self._passages = split_passages(self._texts)
        self.passages = len(self._passages)

    def __len__(self) -> int:
        return len(self._documents)

    def document(self, number: int) -> Document:
        """One of them."""
        return self._documents[number]

    def best(self, question: str, count: int) -> list[FoundPassage]:
        """By BM25, the earlier one at a tie."""
        found = []
        for passage, score in rank_passages(question, self._texts, self._passages, count):
            wide = widened(passage, self._texts[passage.document])
            heading = " > ".join(self._documents[passage.document].path(passage.begin))
            found.append(FoundPassage(wide.document, wide.begin, wide.past, score, heading))
        return found


def text_collection(texts: Sequence[str]) -> TextCollection:
    """The same of texts alone."""
    return TextCollection([Document(f"text {number}", text) for number, text in enumerate(texts, 1)])


def open_collection(
    paths: Sequence[str], *, use_index: bool = True, index: str | Path | None = None, progress: Progress | None = None
) -> Collection:
    """Open files, folders and standard input (`-`) for questions."""
    documents, notes = read_documents(paths)
    return TextCollection(documents, notes)

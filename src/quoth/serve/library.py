"""`Library`: the documents that a request may name, of the folder and those sent, and what is told of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from quoth.answer.result import More
from quoth.errors import QuothError
from quoth.search import Collection, Document, from_bytes
from quoth.search.retrieve import Passage, widened
from quoth.serve.child import Caller, ChildEndedError
from quoth.serve.folder import Folder, State, document_id, facts_of, page_starts
from quoth.serve.problem import Problem
from quoth.serve.shared import SharedCollection, one_document
from quoth.serve.uploads import Upload, Uploads, file_name

READING = 45.0  # seconds to read a file that was sent
DRAWING = 20.0  # seconds to draw a page
RECENT = 16  # documents of the folder that were asked alone, images of pages, sizes of pages: so many are kept
AROUND = 400  # characters on both sides of an answer that its passage has
PASSAGE = 20_000  # characters of a passage at most


@dataclass(frozen=True, eq=False)
class Source:
    """What a question is asked of. more: of a place; changed: whether the documents are others by now."""

    collection: Collection
    more: More
    changed: Callable[[], bool]


@dataclass(frozen=True, eq=False)
class Found:
    """A document by its id. key: of its content; path: of its file, or None; data: if it was sent."""

    id: str
    document: Document
    key: Any
    path: str | None = None
    data: bytes = b""


class Library:
    """The documents of a server. files: the process that reads files and draws pages."""

    def __init__(self, folder: Folder | None, uploads: Uploads, files: Caller) -> None:
        self.folder, self.uploads, self._files = folder, uploads, files
        self._alone = Recent(RECENT)
        self._sizes = Recent(8 * RECENT)
        self._images = Recent(RECENT)

    def source(self, id: str | None) -> Source:
        """The document of this id, or the whole folder, for a question."""
        if id is not None and (upload := self.uploads.get(id)):
            return Source(upload.collection, lambda _, start, end: self._more(self._sent(upload), start, end), _never)
        if self.folder is None:
            if id is None:
                raise Problem(404, "no_folder", "this server has no folder; give a context or a document")
            raise _unknown(id)
        state = self._state()
        changed = lambda: self._state() is not state  # noqa: E731
        if id is None:
            return Source(state.collection, lambda *place: self._more_of_folder(state, *place), changed)
        number = self._number(state, id)
        collection = self._single(state, number)
        return Source(collection, lambda _, start, end: self._more_of_folder(state, number, start, end), changed)

    def find(self, id: str) -> Found:
        """The document of this id, or a `Problem`."""
        if upload := self.uploads.get(id):
            return self._sent(upload)
        if self.folder is None:
            raise _unknown(id)
        state = self._state()
        return self._of_folder(state, self._number(state, id))

    def listed(self, search: str, limit: int, after: str | None) -> dict[str, Any]:
        """Some documents of the folder by name, those whose names have `search`, after a name."""
        if self.folder is None:
            return {"documents": [], "next": None, "total": 0}
        state = self._state()
        wanted = search.casefold()
        all_ = [i for i, entry in enumerate(state.entries) if wanted in entry.path.casefold()]
        all_.sort(key=lambda i: state.entries[i].path)
        left = [i for i in all_ if after is None or state.entries[i].path > after]
        shown = left[:limit]
        found = []
        for number in shown:
            facts = self.folder.facts(state, number)
            path = state.entries[number].path
            found.append(_told(document_id(path), path, facts.title, facts.pages, facts.characters))
        more = shown and len(left) > len(shown)
        return {
            "documents": found,
            "next": _shown(state.entries[shown[-1]].path) if more else None,
            "total": len(all_),
        }

    def text(self, id: str) -> dict[str, Any]:
        """All of a document."""
        found = self.find(id)
        document = found.document
        return {
            **self.told(found),
            "text": document.text,
            "headings": [{"at": one.at, "level": one.level, "title": one.title} for one in document.headings],
            "page_starts": page_starts(document),
            "notes": list(document.notes),
        }

    def told(self, found: Found) -> dict[str, Any]:
        """What a list tells of a document."""
        facts = facts_of(found.document)
        return _told(found.id, found.document.name, facts.title, facts.pages, facts.characters)

    def passage(self, id: str) -> dict[str, Any]:
        """A passage by its id, `DOCUMENT:START-END`."""
        name, _, place = id.rpartition(":")
        start, _, end = place.partition("-")
        if not all(one.isascii() and one.isdigit() and len(one) < 12 for one in (start, end)):
            raise Problem(404, "not_found", "there is no such passage; an id is DOCUMENT:START-END")
        found = self.find(name)
        document, begin, past = found.document, int(start), int(end)
        if not begin < past <= min(len(document.text), begin + PASSAGE):
            size = len(document.text)
            raise Problem(404, "not_found", f"there is no such passage; its document has {size:,} characters")
        where = document.place(begin, past)
        return {
            "id": id,
            "document": found.id,
            "name": _shown(document.name),
            "text": document.text[begin:past],
            "text_start": begin,
            "text_end": past,
            "line": where.line,
            "page": where.page,
            "headings": list(where.headings),
        }

    def page(self, id: str, number: int, width: int) -> bytes:
        """A page of a PDF as a PNG."""
        found = self.find(id)
        if found.document.boxes is None:
            raise Problem(404, "not_found", "this document has no pages")
        image: bytes = self._images.get((found.key, number, width), lambda: self._draw(found, number, width))
        return image

    def send(self, name: str, data: bytes) -> dict[str, Any]:
        """Read a file that was sent, and keep it."""
        name = file_name(name)
        try:
            call = {"do": "read", "name": name, "seconds": READING - 5}
            document = from_bytes(self._files.call(call, data, READING)[1])
        except ChildEndedError:
            raise Problem(422, "no_text", f"{name}: takes too much time or memory to read") from None
        except QuothError as error:
            raise Problem(422, "no_text", str(error)) from None
        upload = self.uploads.put(document, data)
        return {**self.told(self._sent(upload)), "document": upload.id}

    def close(self) -> None:
        """Close the index."""
        if self.folder is not None:
            self.folder.close()

    def _draw(self, found: Found, number: int, width: int) -> bytes:
        try:
            return self._call(found, {"do": "draw", "page": number, "width": width})[1]
        except QuothError as error:
            raise Problem(404, "not_found", str(error)) from None

    def _call(self, found: Found, header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        path = None
        if found.path is not None and self.folder is not None:
            path = str(self.folder.file(found.path))
        return self._files.call({**header, "path": path}, found.data, DRAWING)

    def _state(self) -> State:
        assert self.folder is not None
        return self.folder.state()

    def _number(self, state: State, id: str) -> int:
        if id not in state.numbers:
            raise _unknown(id)
        return state.numbers[id]

    def _of_folder(self, state: State, number: int) -> Found:
        entry = state.entries[number]
        document = state.collection.document(number)
        return Found(document_id(entry.path), document, entry.id, path=entry.path)

    def _sent(self, upload: Upload) -> Found:
        return Found(upload.id, upload.document, upload.id, data=upload.data)

    def _single(self, state: State, number: int) -> SharedCollection:
        """A document of the folder as a collection of its own."""
        made = lambda: one_document(state.collection.document(number))  # noqa: E731
        collection: SharedCollection = self._alone.get(state.entries[number].id, made)
        return collection

    def _more_of_folder(self, state: State, number: int, start: int, end: int) -> dict[str, Any]:
        return self._more(self._of_folder(state, number), start, end)

    def _more(self, found: Found, start: int, end: int) -> dict[str, Any]:
        """The keys that docs/serve.md adds to a place."""
        around = widened(Passage(0, start, end), found.document.text, AROUND)
        return {
            "document": found.id,
            "context": None,
            "text_start": start,
            "text_end": end,
            "passage": f"{found.id}:{around.begin}-{min(around.past, around.begin + PASSAGE)}",
            "page_boxes": self._page_boxes(found, start, end),
        }

    def _page_boxes(self, found: Found, start: int, end: int) -> list[list[float]]:
        """Boxes as fractions of the page, from its upper left corner."""
        place = found.document.place(start, end)
        if place.page is None:
            return []
        try:
            sizes = self._sizes.get(found.key, lambda: self._call(found, {"do": "sizes"})[0]["sizes"])
            wide, high = sizes[place.page - 1]
        except (QuothError, IndexError):  # the file is gone or another: the answer stands all the same
            return []
        edges = ((box.x0 / wide, 1 - box.y1 / high, box.x1 / wide, 1 - box.y0 / high) for box in place.boxes)
        return [[min(1.0, max(0.0, round(edge, 5))) for edge in box] for box in edges]


class Recent:
    """The values last made, by key: at most `count`."""

    def __init__(self, count: int) -> None:
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._count = count
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """The value of a key; made if it is not there."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        value = make()
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > self._count:
                self._kept.popitem(last=False)
        return value


def _told(id: str, name: str, title: str, pages: int | None, characters: int) -> dict[str, Any]:
    kind = PurePath(name).suffix.lower()[1:] or "txt"
    return {
        "id": id,
        "name": _shown(name),
        "title": title,
        "kind": kind,
        "pages": pages,
        "characters": characters,
    }


def _shown(name: str) -> str:
    """A file name as text: bytes that are no UTF-8 are shown as �."""
    return name.encode("utf-8", "replace").decode()


def _unknown(id: str) -> Problem:
    return Problem(404, "not_found", "there is no document of this id; it may have been removed")


def _never() -> bool:
    return False

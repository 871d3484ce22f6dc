"""`Uploads`: files that were sent, in memory alone, for a while. Their ids cannot be guessed."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from quoth.search import Document
from quoth.serve.settings import Settings
from quoth.serve.shared import SharedCollection, one_document

LONGEST = 200  # characters of a name
UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff/\\]")


@dataclass(frozen=True, eq=False)
class Upload:
    """A file that was sent. data: of a PDF, to draw its pages; else empty. came: seconds of the clock."""

    id: str
    document: Document
    collection: SharedCollection
    data: bytes
    came: float

    @property
    def size(self) -> int:
        """Bytes in memory, about: the text is kept three times, as itself, in the index and packed."""
        return len(self.data) + 4 * len(self.document.text)


class Uploads:
    """The files that are kept: the oldest go when there are too many, too large together, or too old."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._kept: OrderedDict[str, Upload] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, document: Document, data: bytes) -> Upload:
        """Keep a file."""
        kept = data if document.boxes is not None else b""
        one = Upload("f" + secrets.token_hex(16), document, one_document(document), kept, self._clock())
        with self._lock:
            self._kept[one.id] = one
            self._tidy()
        return one

    def get(self, id: str) -> Upload | None:
        """A file, if it is still kept."""
        with self._lock:
            self._tidy()
            return self._kept.get(id)

    def tidy(self) -> None:
        """Let go of those that are too old."""
        with self._lock:
            self._tidy()

    def _tidy(self) -> None:
        limits = self._settings
        size = sum(one.size for one in self._kept.values())
        oldest = self._clock() - limits.file_age
        while self._kept:
            first = next(iter(self._kept.values()))
            many = len(self._kept) > 1 and (len(self._kept) > limits.files or size > limits.file_bytes)
            if not many and first.came > oldest:
                return
            size -= first.size
            del self._kept[first.id]


def file_name(name: str) -> str:
    """A name that was sent, as one that is shown: its last part, without control characters."""
    last = re.split(r"[/\\]", name)[-1]
    return UNSEEN.sub("", last).strip()[-LONGEST:] or "file"

"""What is behind the server of `quoth mcp`: a reader and a folder, used by one call at a time."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from quoth.answer import Reader
from quoth.errors import QuothError, one_line
from quoth.search import Collection
from quoth.serve.mcp_folder import Folder
from quoth.serve.quotes import Texts

Given = TypeVar("Given")

WAITING = 32  # calls that may wait for the one that is done
NOTES = 10  # on files that could not be read, at most

log = logging.getLogger(__name__)


class Backend:
    """A reader and a folder. load: gives the reader, which is loaded when it is first wanted."""

    def __init__(self, folder: Folder, load: Callable[[], Reader]) -> None:
        self.folder = folder
        self._load = load
        self._alone = CapacityLimiter(1)
        self._calls = 0
        self._texts: Texts | None = None

    @cached_property
    def reader(self) -> Reader:
        """For the calls that need it."""
        return self._load()

    def collection(self) -> Collection:
        """The documents of the folder as they are now."""
        return self.folder.collection()

    def texts(self) -> Texts:
        """Their texts, kept in memory for as long as no document changes."""
        collection = self.collection()
        if self._texts is None or self._texts.collection is not collection:
            self._texts = Texts(collection)
        return self._texts

    def warm_up(self) -> None:
        """Bring the index up to date and load the reader. What is wrong with them is said here, and by each call."""
        try:
            notes = self.collection().notes
            _ = self.reader
        except QuothError as error:
            notes = [str(error)]
        except Exception:
            log.exception("the reader or the index could not be loaded")
            return
        for note in notes[:NOTES]:
            print(f"quoth: {one_line(note)}", file=sys.stderr, flush=True)

    async def do(self, work: Callable[[], Given]) -> Given:
        """What `work` gives, in a thread, once the calls before it are done."""
        if self._calls > WAITING:
            raise QuothError(f"{WAITING} calls wait already; call again in some seconds")
        self._calls += 1
        try:
            return await to_thread.run_sync(work, limiter=self._alone)
        finally:
            self._calls -= 1

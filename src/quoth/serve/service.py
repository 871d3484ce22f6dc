"""`Service`: questions in, results out, whoever asks. It has the reader, the documents, and the processes for them.

Each question is worked on by one of `threads` threads: it finds the passages, makes windows, waits for the model
(`quoth.serve.batching`) and decodes. At most `queue` questions are accepted at a time.
"""

from __future__ import annotations

import copy
import logging
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from quoth.answer import Reader
from quoth.answer.result import Form, result
from quoth.errors import QuothError
from quoth.search import Collection
from quoth.search.collection import TextCollection
from quoth.serve.batching import Batcher, RequestRunner, UnavailableError
from quoth.serve.child import Caller, Child
from quoth.serve.files_process import run_files, run_index
from quoth.serve.folder import Folder
from quoth.serve.library import Library, Source
from quoth.serve.metrics import Metrics
from quoth.serve.model_process import run_model
from quoth.serve.problem import Problem
from quoth.serve.settings import Settings
from quoth.serve.uploads import Uploads

LOG = logging.getLogger("quoth.serve")
AGAIN = 5  # times that a question is asked again since the documents changed meanwhile


class GivenUpError(Exception):
    """Nobody waits for the answer any more, or it is too late."""


@dataclass(frozen=True)
class Model:
    """Which model, and where it runs."""

    source: str | None = None
    device: str | None = None
    precision: str | None = None


@dataclass(eq=False)
class Texts:
    """The contexts of a request."""

    texts: Sequence[str]

    @cached_property
    def collection(self) -> Collection:
        """Them as a collection, made once for all questions."""
        return TextCollection(self.texts)


@dataclass(frozen=True, eq=False)
class Question:
    """A question; context: the texts of the request, or the id of a document, or None for the folder."""

    question: str
    form: Form
    context: Texts | str | None = None


@dataclass(eq=False)
class Ticket:
    """Until when the answers are wanted, and whether they still are."""

    end: float
    left: threading.Event = field(default_factory=threading.Event)

    def check(self, *_: Any) -> None:
        """Give up, if nobody waits."""
        if self.left.is_set() or time.monotonic() > self.end:
            raise GivenUpError


class Service:
    """A reader and documents for many. `start` takes a while, `stop` finishes what was accepted."""

    def __init__(self, settings: Settings, model: Model, folder: Path | None = None, index: Path | None = None) -> None:
        self.settings, self.model = settings, model
        self.metrics = Metrics()
        self._files = Caller(run_files, replaced=lambda: self.metrics.restarts.labels("files").inc())
        self._refresher = Caller(run_index, replaced=lambda: self.metrics.restarts.labels("index").inc())
        opened = Folder(folder, index, self._refresher) if folder is not None else None
        self.library = Library(opened, Uploads(settings), self._files)
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="quoth-question")
        self.pool = ThreadPoolExecutor(4, thread_name_prefix="quoth-document")  # for all but questions
        self._waiting = 0
        self._rate = 0.0  # seconds of one question at a time, about
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._batcher: Batcher | None = None
        self.reader: Reader | None = None
        self.ready = False
        self.leaving = False  # a signal came: others should send their requests elsewhere
        self.stopping = False

    @property
    def batcher(self) -> Batcher:
        """The batches for the model; it was started."""
        assert self._batcher is not None
        return self._batcher

    def start(self) -> None:
        """Load the model and open the folder; a `QuothError` if that cannot be done."""
        model = self.model
        self._batcher = Batcher(
            lambda: Child(run_model, model.source, model.device, model.precision),
            self.settings.batch_tokens,
            self.settings.batch_delay,
            self.metrics.batch,
            lambda: self.metrics.restarts.labels("model").inc(),
        )
        self.reader = Reader.load(model.source, runner=RequestRunner(self._batcher, math.inf))
        self._files.start()
        if self.library.folder is not None:
            self._refresh(self.library.folder)
        self._thread = threading.Thread(target=self._keep, name="quoth-refresh", daemon=True)
        self._thread.start()
        self.ready = True

    def give_up(self) -> None:
        """End what `start` waits for, which may take minutes."""
        self._stop.set()
        self._refresher.kill()

    def stop(self) -> None:
        """End the threads and processes, after the questions that were accepted."""
        self.stopping = True
        self._stop.set()
        self._pool.shutdown()
        self.pool.shutdown()
        self._refresher.kill()
        if self._thread is not None:
            self._thread.join()
        if self._batcher is not None:
            self._batcher.close()
        for caller in (self._files, self._refresher):
            caller.close()
        self.library.close()

    def ask(self, questions: Sequence[Question], ticket: Ticket) -> list[Future[dict[str, Any]]]:
        """Accept all questions, or raise the problem with them. Results come in any order."""
        if not self.ready or self.stopping:
            code = "stopping" if self.stopping else "starting"
            raise Problem(503, code, f"the server is {code}; ask again in a moment", retry=2)
        with self._lock:
            if self._waiting + len(questions) > self.settings.queue:
                seconds = min(30, max(1, math.ceil(self._waiting * self._rate)))
                raise Problem(429, "busy", "too many questions wait for an answer; ask again later", retry=seconds)
            self._waiting += len(questions)
            self.metrics.waiting.set(self._waiting)
        asked = [self._pool.submit(self._work, one, ticket) for one in questions]
        for one in asked:
            one.add_done_callback(self._done)
        return asked

    def _done(self, one: Future[dict[str, Any]]) -> None:
        """A question was answered, or failed, or was given up before it began."""
        with self._lock:
            self._waiting -= 1
            self.metrics.waiting.set(self._waiting)
        failed = one.cancelled() or one.exception() is not None
        self.metrics.questions.labels(
            "error" if failed else "no_answer" if one.result()["no_answer"] else "answer"
        ).inc()

    def _work(self, question: Question, ticket: Ticket) -> dict[str, Any]:
        begun = time.monotonic()
        self.batcher.prepare(1)
        try:
            return self._answer(question, ticket)
        finally:
            self.batcher.prepare(-1)
            with self._lock:
                self._rate += 0.1 * ((time.monotonic() - begun) / self.settings.threads - self._rate)

    def _answer(self, question: Question, ticket: Ticket) -> dict[str, Any]:
        """The result; of a folder that changed in the middle, from the beginning again."""
        reader = copy.copy(self.reader)
        assert reader is not None
        reader.runner = RequestRunner(self.batcher, ticket.end)
        for left in range(AGAIN, -1, -1):
            source = self._source(question)
            try:
                ticket.check()
                return result(reader, source.collection, question.question, question.form, ticket.check, source.more)
            except (TimeoutError, GivenUpError):
                raise Problem(503, "timeout", f"no answer in {self.settings.timeout:g} seconds", retry=5) from None
            except UnavailableError as error:
                raise Problem(503, "unavailable", str(error), retry=2) from None
            except QuothError:
                if not left or not source.changed():
                    raise
        raise AssertionError

    def _source(self, question: Question) -> Source:
        if not isinstance(question.context, Texts):
            try:
                return self.library.source(question.context)
            except QuothError as error:  # the index is damaged, or not there: the next refresh builds it again
                raise Problem(503, "unavailable", str(error), retry=10) from None
        collection = question.context.collection
        if collection.passages > self.settings.max_passages:
            most = self.settings.max_passages
            what = f"the context has {collection.passages:,} passages; at most {most:,} are taken"
            raise Problem(413, "too_large", f"{what}. Send it as a file, or serve its folder")
        return Source(collection, _more_of_context, lambda: False)

    def _keep(self) -> None:
        """Look at the folder now and then, and let old files go."""
        while not self._stop.wait(self.settings.refresh):
            self.library.uploads.tidy()
            self.metrics.files.set(len(self.library.uploads))
            if self.library.folder is not None:
                try:
                    self._refresh(self.library.folder)
                except Exception as error:  # the next one may do better; what there is goes on
                    if not self._stop.is_set():
                        self.metrics.refreshes.labels("error").inc()
                        LOG.error("the index could not be refreshed: %s", error)

    def _refresh(self, folder: Folder) -> None:
        done = folder.refresh()
        changed = any(done.get(key) for key in ("added", "changed", "removed"))
        self.metrics.refreshes.labels("changed" if changed else "unchanged").inc()
        state = folder.state()
        self.metrics.documents.set(len(state.entries))
        self.metrics.passages.set(state.collection.passages)


def _more_of_context(number: int, start: int, end: int) -> dict[str, Any]:
    return {
        "document": None,
        "context": number,
        "text_start": start,
        "text_end": end,
        "passage": None,
        "page_boxes": [],
    }

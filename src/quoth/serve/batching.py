"""`Batcher`: the windows of all requests that wait, run together by the model process.

A batch is sent as soon as the process has room (it computes one and holds `AHEAD - 1` more), so a request that is alone
never waits. While other requests are being prepared, a batch waits for them: until it has `tokens`, or `delay` seconds
after its first windows came. Windows come out in the order they went in: an answer cannot be that of another request.

A process that ends, or does not answer for `STALL` seconds, is replaced, and what it was given is sent again: nobody
notices but by the time it takes. Windows that `TRIES` processes ended with are given up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from quoth.errors import QuothError
from quoth.serve.child import Child, ChildEndedError
from quoth.serve.model_process import read_logits, write_batch
from quoth.windows import Packed

AHEAD = 2  # batches that the process has at a time: it need not wait for the next one
STALL = 120.0  # seconds after which a process that does not answer is ended
TRIES = 3
PAUSE = 2.0  # seconds before another try to start a process
LOG = logging.getLogger("quoth.serve")


class UnavailableError(QuothError):
    """The model cannot run these windows now."""


@dataclass(eq=False)
class Waiting:
    """Windows of a request, and what the model gives for them: logits (2, T)."""

    batch: Packed[np.ndarray]
    came: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)
    logits: np.ndarray | None = None
    error: QuothError | None = None
    tries: int = 0
    left: bool = False  # nobody waits any more

    def finish(self, logits: np.ndarray | None, error: QuothError | None = None) -> None:
        """Tell the one who waits."""
        self.logits, self.error = logits, error
        self.done.set()


class Batcher:
    """Batches for a model process. `start` gives one; tell(requests, tokens) hears of each batch."""

    def __init__(
        self,
        start: Callable[[], Child],
        tokens: int | None,
        delay: float,
        tell: Callable[[int, int], None] = lambda requests, tokens: None,
        replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self._start = start
        self._delay, self._tell, self._replaced = delay, tell, replaced
        self._queue: deque[Waiting] = deque()
        self._sent: deque[list[Waiting]] = deque()
        self._sent_at = 0.0
        self._change = threading.Condition()
        self._closed = False
        self.preparing = 0  # requests that may still bring windows, or wait for some
        self.child = start()
        self.longest = int(self.child.facts["longest"])
        self.parameters = int(self.child.facts["parameters"])
        self.tokens = max(tokens or int(self.child.facts["tokens"]), self.longest)
        self._threads = [
            threading.Thread(target=work, name=f"quoth-{work.__name__.strip('_')}", daemon=True)
            for work in (self._send, self._receive)
        ]
        for thread in self._threads:
            thread.start()

    def logits(self, batch: Packed[np.ndarray], seconds: float) -> np.ndarray:
        """(2, T) start and end logits of some windows; `TimeoutError` if they do not come in time."""
        one = Waiting(batch)
        with self._change:
            if self._closed:
                raise UnavailableError("the server is stopping")
            self._queue.append(one)
            self._change.notify_all()
        if not one.done.wait(max(0.0, seconds)):
            one.left = True
            raise TimeoutError
        if one.error is not None:
            raise one.error
        assert one.logits is not None
        return one.logits

    def prepare(self, more: int) -> None:
        """One more request is being prepared, or one less."""
        with self._change:
            self.preparing += more
            self._change.notify_all()

    def close(self) -> None:
        """End the process; those who wait are told."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        self.child.kill()
        for thread in self._threads:
            thread.join()
        self.child.close()
        for one in [*self._queue, *(one for batch in self._sent for one in batch)]:
            one.finish(None, UnavailableError("the server is stopping"))

    def _send(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._closed or (self._queue and len(self._sent) < AHEAD))
                if not self._closed:
                    self._linger()
                if self._closed:
                    return
                batch = self._take()
                if not batch:
                    continue
                if not self._sent:
                    self._sent_at = time.monotonic()
                self._sent.append(batch)
                child = self.child
            joined = join_batches([one.batch for one in batch])
            self._tell(len(batch), joined.tokens)
            child.send(write_batch(joined))

    def _linger(self) -> None:
        """Wait for requests that are being prepared: see the top of this file."""
        while not self._closed and self._queue:
            waiting = len(self._queue) + sum(map(len, self._sent))
            left = self._queue[0].came + self._delay - time.monotonic()
            full = sum(one.batch.tokens for one in self._queue) >= self.tokens
            if full or left <= 0 or waiting >= self.preparing:
                return
            self._change.wait(left)

    def _take(self) -> list[Waiting]:
        """The first that wait, up to `tokens` of them, at least one; those whose windows ended a process go alone."""
        found: list[Waiting] = []
        size = 0
        while self._queue:
            one = self._queue[0]
            if one.left:
                self._queue.popleft()
                continue
            if found and (size + one.batch.tokens > self.tokens or one.tries or found[0].tries):
                break
            found.append(self._queue.popleft())
            size += one.batch.tokens
        return found

    def _receive(self) -> None:
        while not self._closed:
            try:
                message = self.child.receive(1.0)
            except TimeoutError:
                with self._change:
                    if self._sent and time.monotonic() - self._sent_at > STALL:
                        LOG.error("the model process does not answer; it is replaced")
                        self.child.kill()
                continue
            except ChildEndedError:
                self._replace()
                continue
            with self._change:
                batch = self._sent.popleft()
                self._sent_at = time.monotonic()
                self._change.notify_all()
            self._give(batch, message)

    def _give(self, batch: Sequence[Waiting], message: bytes) -> None:
        try:
            logits = read_logits(message)
        except QuothError as error:
            if len(batch) == 1:
                batch[0].finish(None, error)
                return
            with self._change:  # one of them is to blame: each is tried alone
                for one in batch:
                    one.tries += 1
                self._queue.extendleft(reversed(batch))
                self._change.notify_all()
            return
        place = 0
        for one in batch:
            one.finish(logits[:, place : place + one.batch.tokens])
            place += one.batch.tokens

    def _replace(self) -> None:
        """Start another process, and give it what the old one had."""
        if self._closed:
            return
        LOG.error("the model process %d ended; it is replaced", self.child.pid)
        self._replaced()
        old = self.child
        new = self._started()
        if new is None:
            return
        with self._change:
            lost = [one for batch in self._sent for one in batch]
            for one in self._sent[0] if self._sent else ():  # the batch that it computed; the others it had not begun
                one.tries += 1
            self._sent.clear()
            self._queue.extendleft(reversed([one for one in lost if one.tries < TRIES]))
            self.child = new
            self._change.notify_all()
        for one in lost:
            if one.tries >= TRIES:
                one.finish(None, UnavailableError("the model process ended while it read this text"))
        with suppress(OSError):
            old.close()

    def _started(self) -> Child | None:
        """A new process, as soon as there can be one; None if the server stops."""
        while not self._is_closed():
            try:
                return self._start()
            except QuothError as error:
                LOG.error("the model cannot be started: %s", error)
                time.sleep(PAUSE)
        return None

    def _is_closed(self) -> bool:
        with self._change:
            return self._closed


def join_batches(batches: Sequence[Packed[np.ndarray]]) -> Packed[np.ndarray]:
    """Several batches as one, one after the other."""
    if len(batches) == 1:
        return batches[0]
    ids, positions, types = (
        np.concatenate([getattr(one, name) for one in batches]) for name in ("ids", "positions", "types")
    )
    lengths = tuple(length for one in batches for length in one.lengths)
    starts = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=starts[1:])
    return Packed(ids, positions, types, starts, lengths)


class RequestRunner:
    """The `Runner` of one question: its windows go to the batcher, until `end` (of `time.monotonic`)."""

    def __init__(self, batcher: Batcher, end: float) -> None:
        self._batcher, self._end = batcher, end
        self.longest, self.budget, self.parameters = batcher.longest, batcher.tokens, batcher.parameters

    def flops(self, length: int) -> None:
        """Not known here."""

    def __call__(self, packed: Packed[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Start and end logits of a packed batch."""
        start, end = self._batcher.logits(packed, self._end - time.monotonic())
        return start, end

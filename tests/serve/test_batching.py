"""`Batcher` with a model process that this test plays: what is sent when, who gets what, and what a kill does."""

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth.errors import QuothError
from quoth.serve import batching
from quoth.serve.batching import Batcher, RequestRunner, UnavailableError, join_batches
from quoth.serve.child import ChildEndedError, join_message
from quoth.serve.model_process import read_batch, read_logits, write_batch, write_logits
from quoth.windows import pack

END = object()


class Played:
    """A child whose answers are its token ids and their negatives. gate: set while it may answer."""

    def __init__(self, gate=None, mood=lambda batch: None):
        self.facts = {"longest": 64, "tokens": 8192, "parameters": 1}
        self.pid = 1
        self.batches, self._out = [], queue.Queue()
        self._gate, self._mood = gate or threading.Event(), mood
        if gate is None:
            self._gate.set()
        self._in = queue.Queue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self):
        while (message := self._in.get()) is not END:
            self._gate.wait()
            batch = read_batch(message)
            self.batches.append(batch)
            found = self._mood(batch)
            if found is END:
                self._out.put(END)
                return
            self._out.put(found or write_logits(batch.ids.astype(np.float32), -batch.ids.astype(np.float32)))

    def send(self, message):
        self._in.put(message)

    def receive(self, seconds):
        try:
            message = self._out.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError from None
        if message is END:
            raise ChildEndedError("ended")
        return message

    def kill(self):
        self._out.put(END)

    def close(self):
        self._in.put(END)


def windows(*lengths, start=0):
    return pack([np.arange(start, start + length) for length in lengths])


@pytest.fixture
def make():
    made = []

    def batcher(*children, tokens=100, delay=0.0):
        given = iter(children)
        made.append(Batcher(lambda: next(given), tokens, delay))
        return made[-1]

    yield batcher
    for one in made:
        one.close()


@given(st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=4), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_batches_go_through_bytes_and_back(lengths):
    batches = [windows(*some, start=100 * n) for n, some in enumerate(lengths)]
    joined = join_batches(batches)
    found = read_batch(write_batch(joined))
    whole = pack([ids for batch in batches for ids in np.split(batch.ids, batch.starts[1:-1])])
    for name in ("ids", "positions", "types", "starts"):
        assert np.array_equal(getattr(found, name), getattr(whole, name))
    assert found.lengths == whole.lengths


def test_logits_and_errors_go_through_bytes():
    start, end = np.random.default_rng(0).normal(size=(2, 9)).astype(np.float32)
    assert np.array_equal(read_logits(write_logits(start, end)), [start, end])
    with pytest.raises(QuothError, match="no such token"):
        read_logits(join_message({"error": "no such token"}))


def test_each_gets_its_own(make):
    batcher = make(Played(), tokens=64)
    batches = [windows(1 + n % 7, 3, start=1000 * n) for n in range(200)]
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda batch: batcher.logits(batch, 10), batches))
    for batch, (start, end) in zip(batches, results):
        assert np.array_equal(start, batch.ids)
        assert np.array_equal(end, -batch.ids)


def test_what_waits_goes_together_up_to_the_budget(make):
    gate = threading.Event()
    child = Played(gate)
    batcher = make(child, tokens=100)
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(batcher.logits, windows(30, start=100 * n), 10) for n in range(10)]
        while len(batcher._queue) + sum(map(len, batcher._sent)) < 10:
            time.sleep(0.01)
        gate.set()
        for one in asked:
            one.result()
    sizes = [batch.tokens for batch in child.batches]
    assert sum(sizes) == 300
    assert max(sizes) <= 100
    assert len(sizes) <= 6  # two that went early, then three windows at a time
    assert sorted(sizes)[-1] == 90


def test_one_alone_does_not_wait_and_others_that_prepare_are_waited_for(make):
    child = Played()
    batcher = make(child, tokens=100, delay=30.0)
    batcher.prepare(1)
    batcher.logits(windows(5), 5)  # nobody else prepares: at once, whatever the delay
    batcher.prepare(1)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(batcher.logits, windows(5), 20)
        time.sleep(0.3)
        assert not first.done()
        second = pool.submit(batcher.logits, windows(7), 20)
        first.result(), second.result()
    assert [batch.lengths for batch in child.batches[1:]] == [(5, 7)]


def test_the_delay_ends(make):
    batcher = make(Played(), delay=0.05)
    batcher.prepare(5)
    assert batcher.logits(windows(5), 5).shape == (2, 5)


def test_a_process_that_ends_is_replaced_and_nothing_is_lost(make):
    gate = threading.Event()
    first, second = Played(gate), Played()
    batcher = make(first, second)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(batcher.logits, windows(30, start=100 * n), 20) for n in range(8)]
        time.sleep(0.2)
        first.kill()
        for n, one in enumerate(asked):
            assert np.array_equal(one.result()[0], np.arange(100 * n, 100 * n + 30))
    assert batcher.child is second


def test_windows_that_end_every_process_are_given_up_and_others_are_not(make):
    def mood(batch):
        return END if 7 in batch.ids else None

    batcher = make(*[Played(mood=mood) for _ in range(4)])
    with ThreadPoolExecutor(4) as pool:
        bad = pool.submit(batcher.logits, windows(10), 20)
        good = [pool.submit(batcher.logits, windows(10, start=100 * n), 20) for n in (1, 2, 3)]
        for n, one in enumerate(good, 1):
            assert np.array_equal(one.result()[0], np.arange(100 * n, 100 * n + 10))
        with pytest.raises(UnavailableError):
            bad.result()


def test_an_error_is_that_of_the_one_to_blame(make):
    gate = threading.Event()
    child = Played(gate, lambda batch: join_message({"error": "token 7 is bad"}) if 7 in batch.ids else None)
    batcher = make(child, tokens=1000)
    with ThreadPoolExecutor(4) as pool:
        ahead = [pool.submit(batcher.logits, windows(3, start=500), 20) for _ in range(2)]
        bad = pool.submit(batcher.logits, windows(10), 20)
        good = pool.submit(batcher.logits, windows(10, start=100), 20)
        time.sleep(0.1)
        gate.set()
        assert good.result().shape == (2, 10)
        with pytest.raises(QuothError, match="token 7"):
            bad.result()
        for one in ahead:
            one.result()


def test_a_process_that_hangs_is_ended(make, monkeypatch):
    monkeypatch.setattr(batching, "STALL", 0.5)
    batcher = make(Played(threading.Event()), Played())
    assert batcher.logits(windows(5), 20).shape == (2, 5)


def test_time_is_bounded(make):
    gate = threading.Event()
    batcher = make(Played(gate))
    with pytest.raises(TimeoutError):
        RequestRunner(batcher, time.monotonic() + 0.1)(windows(5))
    gate.set()


def test_those_who_wait_at_the_end_are_told():
    batcher = Batcher(lambda: Played(threading.Event()), 100, 0.0)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(batcher.logits, windows(5), 20) for _ in range(4)]
        time.sleep(0.2)
        batcher.close()
        for one in asked:
            with pytest.raises(UnavailableError):
                one.result()
    with pytest.raises(UnavailableError):
        batcher.logits(windows(5), 1)

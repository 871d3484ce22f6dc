"""Processes that are killed while they index, that index at once, that run out of disk: the index stays valid."""

import multiprocessing
import os
import random
import resource
import signal
import sqlite3
import time

import pytest

from quoth.search import IndexCollection, index_refresh, open_collection, open_index
from quoth.search.index import Index, UnwritableError
from search.test_index import fill, found, fresh, search

SEED = 20261116
KILLS = 20
FORK = multiprocessing.get_context("fork")  # no start of Python: a kill then hits the indexing itself

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "documents"
    inside.mkdir()
    return fill(inside, files=120)


def is_sound(path):
    """By SQLite's own check of the file, and FTS5's of the inverted index."""
    base = sqlite3.connect(path)
    (told,) = base.execute("PRAGMA integrity_check").fetchone()
    (tables,) = base.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables:  # else it was killed before they were there
        base.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        base.rollback()
    base.close()
    return told == "ok"


def start(work):
    process = FORK.Process(target=work)
    process.start()
    return process


def at_once(count, work):
    """What so many processes give that start together."""
    given = FORK.Queue()
    processes = [start(lambda: given.put(work())) for _ in range(count)]
    results = [given.get(timeout=100) for _ in processes]
    for process in processes:
        process.join()
    return results


def test_kills_at_random_moments(folder, tmp_path, monkeypatch):
    """Half of them of a first build, half of a refresh of a folder that changed; small batches, so that many begin."""
    monkeypatch.setattr(index_refresh, "FILES", 4)
    place, drawn = tmp_path / "killed.index", random.Random(SEED)
    begun = time.monotonic()
    open_index(folder, tmp_path / "whole.index")
    seconds = time.monotonic() - begun
    kills = sound = partly = 0
    for number in range(200):
        if number % 2 == 0 and place.exists():
            place.unlink()
        elif number % 2:
            fill(folder, seed=number, files=120)
            (folder / f"{number}.new.txt").write_text(f"A new heron {number}.")
            (folder / f"{number - 2}.new.txt").unlink(missing_ok=True)
        process = start(lambda: open_index(folder, place))
        time.sleep(drawn.uniform(0, 1.2) * seconds)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        if process.exitcode != -signal.SIGKILL:
            continue
        kills += 1
        if place.exists() and place.stat().st_size:
            sound += is_sound(place)
            with sqlite3.connect(place) as base:
                partly += base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
        else:
            sound += 1
        if number % 4 >= 2 or kills == KILLS:
            assert found(folder, index=place) == fresh(folder)
        if kills == KILLS:
            break
    print(f"{kills} kills, {partly} of them after the first table was there")
    assert kills == sound == KILLS
    assert partly > KILLS // 3


def test_refreshes_at_once(folder, tmp_path):
    """Eight processes build one index, then eight bring it up to date, then eight find it damaged."""
    place = tmp_path / "shared.index"
    for seed in range(3):
        fill(folder, seed=seed, files=120)
        if seed == 2:
            place.write_bytes(place.read_bytes()[:5000])
        results = at_once(8, lambda: found(folder, index=place))
        assert all(result == fresh(folder) for result in results)
        assert is_sound(place)


def test_questions_while_the_index_changes(folder, tmp_path):
    """Whoever asks while another process refreshes gets passages of the old or of the new state, and no error."""
    place = tmp_path / "busy.index"
    before = found(folder, index=place)
    collection = open_collection([str(folder)], index=place)
    extra = folder / "zz.txt"

    def work():
        for number in range(20):
            extra.write_text(f"A heron {number} stood in the river near the mill. " * (number + 1))
            open_index(folder, place)

    process = start(work)
    while process.is_alive():
        assert collection.best("the river mill", 25)
    process.join()
    assert process.exitcode == 0
    extra.unlink()
    assert found(folder, index=place) == before


@pytest.mark.parametrize("more", [0, 4096, 100_000])
def test_a_full_disk(folder, tmp_path, more):
    """A file that may not grow stands for a full disk: one line, and what was there before stays."""
    place = tmp_path / "small.index"
    open_index(folder, place)
    before = found(folder, index=place)
    for number in range(300):
        (folder / f"{number}.more.txt").write_text(f"Another heron {number} at the river. " * 100)
    told = FORK.Queue()

    def work():
        limit = place.stat().st_size + more
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            open_index(folder, place)
        except UnwritableError as error:
            told.put(str(error))
        collection = open_collection([str(folder)], index=place)
        told.put((collection.notes, search(collection) == fresh(folder)))

    process = start(work)
    line = told.get(timeout=60)
    assert line.startswith(f"{place}: cannot be written (")
    notes, equal = told.get(timeout=60)
    assert equal, "it is read without an index"
    assert len(notes) == 1
    assert notes[0].startswith(line)
    process.join()
    assert is_sound(place)
    assert search(IndexCollection(Index(place, str(folder)), str(folder))) == before
    assert found(folder, index=place) == fresh(folder), "with space again it is brought up to date"

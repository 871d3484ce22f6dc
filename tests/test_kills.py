"""30 SIGKILLs at random moments of five commands: what was there stays whole, or the next command goes on.

Half of the moments are drawn from all the time that a command takes, half while it writes (a temporary file or folder
of ours is seen), where a kill could do harm.
"""

import os
import random
import shutil
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from quoth.folders import TEMPORARY
from train.material import (
    assert_same_weights,
    losses,
    make_model,
    make_questions,
    make_recipe_file,
    quoth,
    start,
    table,
)

SEED = 20261116
KILLS = 6  # of each of five commands

pytestmark = pytest.mark.slow


def contents(path):
    """All files of a folder, or the file itself, byte for byte."""
    if path.is_file():
        return path.read_bytes()
    files = (file for file in path.rglob("*") if file.is_file() and file.name != ".lock")
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def writing(folder):
    """What of ours is being written there at this moment."""
    found = set()
    with suppress(FileNotFoundError):
        for place, folders, files in os.walk(folder):
            found |= {Path(place, name) for name in (*folders, *files) if TEMPORARY.fullmatch(name)}
    return found


def kill(folder, drawn, command, seconds, while_writing):
    """Start a command, kill its group at a random moment of its life. Whether it was alive, and writing."""
    before = writing(folder)
    process = start(*command)
    end = time.monotonic() + drawn.uniform(0.2, 1.0) * seconds
    try:
        if while_writing:
            while process.poll() is None and not writing(folder) - before:
                time.sleep(0.0005)
            time.sleep(drawn.uniform(0, 0.02))
        else:
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.002)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return process.returncode == -signal.SIGKILL, bool(writing(folder) - before)


def torment(name, folder, command, seconds, check, ended=lambda: None):
    """Kill a command six times; check what is there after each. ended: called if it came to its end before."""
    drawn, died = random.Random(f"{SEED} {name}"), Counter()
    for number in range(3 * KILLS):
        killed, amid = kill(folder, drawn, command, seconds, number % 2 == 1)
        check()
        died[amid] += killed
        if not killed:
            ended()
        if died.total() == KILLS:
            break
    print(f"{name}: {died.total()} kills, {died[True]} of them while it wrote")
    assert died.total() == KILLS
    return died


def undisturbed(*command):
    begin = time.monotonic()
    done = quoth(*command)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - begin


@pytest.fixture(scope="module")
def place(minilm, tmp_path_factory):
    """Two models that learned a little, and questions."""
    folder = tmp_path_factory.mktemp("kills")
    make_questions(folder / "train.json", seed=1)
    make_questions(folder / "many.json", seed=2, passages=200)
    base = make_model(folder / "base", minilm)
    for seed in (1, 2):
        made = table(base, folder / "train.json", optimisation={"epochs": 0.2}, seed=seed)
        undisturbed("train", make_recipe_file(folder / f"{seed}.toml", made), "--out", folder / f"run-{seed}")
        (folder / f"run-{seed}/model").rename(folder / f"model-{seed}")
    return folder


def test_kills_of_train(place, tmp_path):
    made = table(place / "base", place / "train.json", optimisation={"epochs": 3.0}, checkpoints={"seconds": 0})
    recipe = make_recipe_file(tmp_path / "r.toml", made)
    seconds = undisturbed("train", recipe, "--out", tmp_path / "whole")
    command = ("train", recipe, "--out", tmp_path / "run")

    def ended():
        assert_same_weights(tmp_path / "run/model", tmp_path / "whole/model")
        assert losses(tmp_path / "run") == losses(tmp_path / "whole")
        assert not writing(tmp_path / "run")
        shutil.rmtree(tmp_path / "run")  # and once more from the beginning

    torment("train", tmp_path / "run", command, seconds, lambda: None, ended)
    undisturbed(*command)
    ended()


def test_kills_of_prune(place, tmp_path):
    settings = (
        "gates.steps=20",
        "gates.batch_size=8",
        "recovery.epochs=1",
        "recovery.batch_size=8",
        "checkpoints.seconds=0",
    )
    whole = ("prune", place / "model-1", *settings, "--keep", 0.8, "--data", place / "train.json", "--out")
    seconds = undisturbed(*whole, tmp_path / "whole")

    def ended():
        assert_same_weights(tmp_path / "run/keep-0.8/model", tmp_path / "whole/keep-0.8/model")
        assert not writing(tmp_path / "run")
        shutil.rmtree(tmp_path / "run")

    torment("prune", tmp_path / "run", (*whole, tmp_path / "run"), seconds, lambda: None, ended)
    undisturbed(*whole, tmp_path / "run")
    ended()


@pytest.mark.parametrize("verb", ["export", "ensemble", "negatives"])
def test_kills_of_what_writes_at_once(place, tmp_path, verb):
    """The place holds what was there before, or the new, to the last byte; then the command replaces it."""
    one, two = place / "model-1", place / "model-2"
    end = ".json.gz" if verb == "negatives" else ""
    out, other = tmp_path / f"out{end}", tmp_path / f"reference{end}"
    old, new = {
        "export": (("export", one, "--to"), ("export", two, "--to")),
        "ensemble": (("ensemble", one, one, "--out"), ("ensemble", one, two, "--out")),
        "negatives": (
            ("negatives", place / "train.json", "--moved", 0.5, "--out"),
            ("negatives", place / "many.json", "--moved", 1.0, "--entity", 1.0, "--out"),
        ),
    }[verb]
    seconds = undisturbed(*new, other)
    reference = contents(other)
    undisturbed(*old, out)
    before = contents(out)
    assert before != reference

    def is_whole():
        assert contents(out) in (before, reference)

    torment(verb, tmp_path, (*new, out), seconds, is_whole)
    undisturbed(*new, out)
    assert contents(out) == reference

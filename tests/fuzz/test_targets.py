"""The bounded part of the fuzzing: some cases of every target, the same ones every time."""

import subprocess
import sys

import pytest

from fuzz.case import Case
from fuzz.engine import run_batch
from fuzz.outcome import Scratch
from fuzz.targets import TARGETS
from fuzz.verb_cases import SQUAD
from quoth.cli import VERBS

COUNTS = {"format": 40, "verb": 6}


@pytest.mark.parametrize("name", TARGETS)
def test_target(name, tmp_path):
    target = TARGETS[name]
    batch = run_batch(target, COUNTS[target.kind], Scratch(tmp_path), set(), None, shrink=5.0)
    found = batch.finding
    assert found is None, f"{found.signature}\n{found.case}\n{found.detail}"
    assert batch.cases >= COUNTS[target.kind] // 2


def test_every_verb_is_a_target():
    assert {target.name for target in TARGETS.values() if target.kind == "verb"} == set(VERBS)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_of_a_process(verb, tmp_path):
    """What the targets run inside a process is the same in a process of its own."""
    Case({"d.json": SQUAD[:-3], "r.toml": b"[" * 3000}).write(tmp_path)
    arguments = {
        "ask": ("Who?", "no-such"), "score": ("d.json", "d.json"), "train": ("r.toml",), "prune": ("r.toml",),
        "build": ("r.toml",), "ensemble": ("d.json", "x", "--out", "o"), "export": ("d.json", "--to", "o"),
        "answer": ("d.json", "--out", "o"), "analyse": (".",), "negatives": ("d.json", "--entity", "1"),
    }.get(verb, ("d.json",))  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "quoth", verb, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2, done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert done.stderr.startswith("quoth: ")

"""The harness itself: whatever is planted is found, made small, saved and replayed; what is allowed is no finding."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import strategies as st

from fuzz.case import Case, Finding, Target
from fuzz.engine import run_batch
from fuzz.hostile import changed, json_file
from fuzz.outcome import GROWTH, Scratch, _peak
from fuzz.schedule import Schedule
from fuzz.verbs import run_verb
from quoth.cli import app
from quoth.errors import QuothError

BASE = {"name": "a", "sizes": [1, 2, 3], "more": {"key": True}}


def fuzz(tmp_path, run, *, allowed=(), known=(), count=100, seconds=5.0, cases=None):
    """The finding of a target that runs this."""
    cases = json_file(BASE).map(lambda data: Case({"f.json": data})) if cases is None else cases
    target = Target("planted", "format", cases, run, allowed, seconds=seconds)
    return run_batch(target, count, Scratch(tmp_path), set(known), 1, shrink=2.0).finding


def load(folder):
    """A reader without a mistake."""
    try:
        return json.loads((folder / "f.json").read_bytes())
    except (ValueError, RecursionError) as error:
        raise QuothError(f"{folder / 'f.json'}: not valid JSON ({error})") from None


class TestPlanted:
    def test_a_reader_without_a_mistake(self, tmp_path):
        assert fuzz(tmp_path, lambda folder, _: load(folder)) is None

    def test_a_wrong_type(self, tmp_path):
        found = fuzz(tmp_path, lambda folder, _: load(folder).get("name"))
        assert found.signature.startswith("AttributeError in ")
        assert found.case.size < 40  # the whole file is one value, and no longer that of `BASE`

    def test_a_key_that_is_missing(self, tmp_path):
        def run(folder, _):
            value = load(folder)
            return value["more"] if isinstance(value, dict) else None

        found = fuzz(tmp_path, run)
        assert found.signature.startswith("KeyError in ")
        assert b"more" not in found.case.files["f.json"] or b"morex" in found.case.files["f.json"]

    @pytest.mark.parametrize("planted", [RecursionError, MemoryError, UnicodeDecodeError, ValueError])
    def test_bytes_that_are_not_caught(self, tmp_path, planted):
        def run(folder, _):
            try:
                json.loads((folder / "f.json").read_bytes())
            except planted:
                raise
            except (ValueError, RecursionError) as error:
                raise QuothError(f"f.json: {error}") from None

        assert (fuzz(tmp_path, run, count=250) is None) == (planted is MemoryError)

    def test_a_known_one_is_let_be(self, tmp_path):
        def run(folder, _):
            value = load(folder)
            return None if isinstance(value, dict) else value.get("name")

        first = fuzz(tmp_path, run)
        assert fuzz(tmp_path, run, known={first.signature}) is None


class TestJudged:
    def test_a_message_of_two_lines(self, tmp_path):
        class TwoLines(QuothError):
            def __str__(self):
                return "f.json: one\ntwo"

        def run(folder, _):
            raise TwoLines("x")

        assert fuzz(tmp_path, run).signature == "message of several lines"

    def test_a_message_without_a_culprit(self, tmp_path):
        def run(folder, _):
            raise QuothError("something is wrong")

        assert fuzz(tmp_path, run).signature == "message that names no culprit"

    def test_a_hang(self, tmp_path):
        def run(folder, _):
            if not isinstance(load(folder), dict):
                time.sleep(60)

        assert fuzz(tmp_path, run, seconds=0.2).signature.startswith("HangError")

    def test_a_peak_of_memory(self, tmp_path, monkeypatch):
        monkeypatch.setattr("fuzz.outcome._peak", iter([0, GROWTH, 0, GROWTH + 1] * 9).__next__)
        assert fuzz(tmp_path, lambda folder, _: None, count=1) is None
        assert fuzz(tmp_path, lambda folder, _: None, count=1).signature == "memory"

    @pytest.mark.slow
    def test_memory(self, tmp_path):
        """What other tests of this process freed does not raise its peak, so it is taken first."""
        freed = max(0, _peak() - psutil.Process().memory_info().rss)
        kept = []
        found = fuzz(tmp_path, lambda folder, _: kept.append(bytearray(b"x") * (freed + 2 * GROWTH)), count=1)
        assert found.signature == "memory"

    def test_the_network(self, tmp_path):
        found = fuzz(tmp_path, lambda folder, _: socket.create_connection(("127.0.0.1", 9)))
        assert found.signature.startswith("NetworkError")

    @pytest.mark.parametrize("name", ["new.txt", "f.json", "sub/new.txt"])
    def test_a_change(self, tmp_path, name):
        def run(folder, _):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("changed")

        assert fuzz(tmp_path, run).signature == "changed a file"
        if name != "f.json":
            assert fuzz(tmp_path, run, allowed=(name,)) is None

    def test_a_file_that_is_removed(self, tmp_path):
        found = fuzz(tmp_path, lambda folder, _: (folder / "f.json").unlink())
        assert found.signature == "changed a file"


class TestVerbs:
    """What a verb does wrong is found through the entry of the command line."""

    def run(self, tmp_path, monkeypatch, verb, arguments=("planted",)):
        monkeypatch.setattr(app, "registered_commands", list(app.registered_commands))
        app.command("planted")(verb)
        cases = st.just(Case({"f.txt": b"x"}, arguments))
        return fuzz(tmp_path, run_verb, cases=cases, count=2)

    def test_planted(self, tmp_path, monkeypatch):
        def traceback() -> None:
            {}["key"]

        def escape() -> None:
            print("\x1b[31m")

        def code() -> None:
            raise SystemExit(1)

        def half() -> None:
            print("a result")
            raise QuothError("and then a mistake")

        def outside() -> None:
            Path("elsewhere").write_text("x")

        def good() -> None:
            raise QuothError("f.txt: wrong")

        for verb, wanted in (
            (traceback, "KeyError"),
            (escape, "a control character"),
            (code, "exit code 1"),
            (half, "a result and an error"),
            (outside, "changed a file"),
        ):
            assert self.run(tmp_path, monkeypatch, verb).signature.startswith(wanted)
        assert self.run(tmp_path, monkeypatch, good) is None


def test_the_same_cases_without_a_seed(tmp_path):
    def cases():
        seen = []
        target = Target(
            "planted",
            "format",
            changed(BASE).map(lambda value: Case({"f": repr(value).encode()})),
            lambda _, case: seen.append(case),
        )
        run_batch(target, 50, Scratch(tmp_path), set(), None)
        return seen

    assert cases() == cases()


def test_a_finding_is_saved(tmp_path):
    case = Case({"a/b.json": b"\xff\0", "c": b""}, ("x", "\udc80", "\ud800"), b"\x80")
    folder = Finding("squad", "KeyError", "a traceback \ud800", case).save(tmp_path)
    assert Case.from_json((folder / "case.json").read_text()) == ("squad", case)
    assert (folder / "files/a/b.json").read_bytes() == b"\xff\0"
    assert Finding("squad", "KeyError", "", case).save(tmp_path) != folder


def test_targets_take_turns():
    schedule = Schedule([("slow", 300), ("fast", 5000)], 900)
    slow, fast = schedule.tallies.values()
    for _ in range(3000):
        tally = schedule.next()
        cases = tally.next_cases()
        tally.cases += cases
        tally.seconds += cases * (0.5 if tally is slow else 0.005)
        if slow.cases >= slow.least and fast.cases >= fast.least:
            break
    assert slow.seconds + fast.seconds < 190  # neither got much more than its least
    for _ in range(20):
        tally = schedule.next()
        tally.cases += tally.next_cases()
    assert fast.cases > 20_000 > 400 > slow.cases
    assert "fast" in schedule.table()


PLANTED = """
import os, sys, types
from hypothesis import strategies as st
from fuzz.case import Case, Target

def abort(folder, case):
    if len(case.files['f']) > 400:
        os.abort()

runs = {'good': lambda folder, case: None, 'bad': lambda folder, case: [1][len(case.files['f']) // 300], 'abort': abort}
cases = st.integers(0, 500).map(lambda n: Case({'f': b'x' * n}))
targets = {name: Target(name, 'format', cases, run) for name, run in runs.items()}
sys.modules['fuzz.targets'] = types.SimpleNamespace(TARGETS=targets)  # in place of the real ones
"""


@pytest.mark.slow
def test_the_command(tmp_path):
    """A target with a planted mistake, one that kills its process, and one without: counts, a saved case, exit 1."""
    (tmp_path / "fuzz_planted.py").write_text(PLANTED)
    tests = Path(__file__).parents[1]
    code = "import fuzz_planted, sys; from fuzz import worker; from pathlib import Path; worker.work(Path(sys.argv[1]))"
    script = f"import fuzz_planted, sys, fuzz.__main__ as m; m.WORKER = ['-c', {code!r}]; sys.exit(m.main())"
    path = os.pathsep.join([str(tmp_path), str(tests), str(tests.parent / "src")])
    done = subprocess.run(
        [sys.executable, "-c", script, "--seconds", "10", "-j", "1", "--findings", str(tmp_path / "found")],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "good: " not in done.stdout
    assert "abort: the process ended with -6" in done.stdout
    name, case = Case.from_json((tmp_path / "found/bad-1/case.json").read_text())
    assert (name, len(case.files["f"])) == ("bad", 300)

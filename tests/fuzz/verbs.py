"""Targets: every verb of the command line, run in this process by the entry that sets exit codes."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

from fuzz.case import Case, Target
from fuzz.outcome import WrongError
from fuzz.verb_cases import CASES, OUT
from quoth.cli import VERBS
from quoth.cli import main as entry

CONTROL = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - set("\n\t\r")


# Seconds after which a verb is asked to stop: a recipe may ask for thousands of epochs, and a server has no end.
LONG = {"advise": 2.0, "train": 3.0, "prune": 3.0, "build": 3.0, "serve": 2.0}


@contextmanager
def interrupted(seconds: float | None) -> Iterator[list[int]]:
    """Send SIGINT, as Ctrl-C does, after so many seconds. Yields the exit codes that are right, 130 if it was sent."""
    codes = [0, 2]

    def stop() -> None:
        codes.append(130)
        os.kill(os.getpid(), signal.SIGINT)

    timer = Timer(seconds or 0, stop)
    if seconds is not None:
        timer.start()
    try:
        yield codes
    finally:
        timer.cancel()


def run_verb(folder: Path, case: Case) -> None:
    """Run it; a `WrongError` if it ends otherwise than with a result or one line."""
    with interrupted(LONG.get(case.arguments[0])) as codes:
        code, shown, told = call(case)
    if "Traceback (most recent call last)" in told:
        raise WrongError("a traceback on stderr", told[-800:])
    if code not in codes:
        raise WrongError(f"exit code {code}", told[-500:])
    messages = case.arguments[0] == "mcp" and code == 0 and "--help" not in case.arguments  # for a program, not shown
    for line in shown.splitlines() if messages else ():
        json.loads(line)
    if set(told if messages else shown + told) & CONTROL:
        raise WrongError("a control character in what is shown", repr(shown + told)[:800])
    lines = told.splitlines()
    if code == 2 and not (lines and lines[-1].startswith("quoth: ") and len(lines[-1]) < 4500):
        raise WrongError("the error is not one line that begins with 'quoth: '", told[-500:])
    if code == 2 and shown.strip():
        raise WrongError("a result and an error", f"{shown[:200]!r}, {told[-300:]!r}")
    asked = case.arguments[0] in VERBS and "--help" not in case.arguments
    if code == 0 and asked and "--json" in case.arguments and shown.strip():
        many = case.arguments[0] == "ask" and {"-q", "-i"} & set(case.arguments)  # one object a line
        for one in shown.splitlines() if many else [shown]:
            json.loads(one)


def call(case: Case) -> tuple[int, str, str]:
    """The exit code, standard output and standard error of the command line with these arguments."""
    kept = sys.argv, sys.stdin, sys.stdout, sys.stderr
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    sys.argv = ["quoth", *case.arguments]
    sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO(case.stdin), "utf-8"), out, err
    code: Any = 0
    try:
        entry()
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv, sys.stdin, sys.stdout, sys.stderr = kept
    found = []
    for stream in (out, err):
        stream.flush()
        found.append(stream.buffer.getvalue().decode("utf-8"))  # type: ignore[attr-defined]
    return code, found[0], found[1]


STORED = dict.fromkeys(("evaluate", "calibrate"), ("m/quoth.json", "m/.quoth.json"))  # kept in the model
STORED |= dict.fromkeys(
    ("ask", "index", "mcp", "serve"), tuple(f"{OUT}{end}" for end in (".lock", "-wal", "-shm", "-journal"))
)
TARGETS = tuple(Target(verb, "verb", CASES[verb], run_verb, (OUT, *STORED.get(verb, ())), seconds=60) for verb in VERBS)

"""The prompt of `quoth ask -i`: questions and commands, typed or from standard input, until Ctrl-D.

At a terminal Ctrl-C ends a question, or drops the line, and not the prompt; lines can be edited and come back with the
arrow keys, those of earlier sessions too. Their file is in the user's cache folder; without one that can be written,
the prompt works, and forgets.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from quoth.answer.find import check_min_score
from quoth.answer.result import Form
from quoth.cli.screen import say
from quoth.errors import QuothError
from quoth.search import Collection

PROMPT = "quoth> "
KEPT = 1000  # lines of history
HELP = """\
Type a question, or
  :top N         the N best answers; :top 1 is how the prompt begins
  :all           every distinct answer above the least score, with all its places
  :sentences     every distinct sentence that has one
  :min-score S   the least score, from 0 to 1; :min-score alone is the rule of the reader
  :help          this
  :quit          end; so does Ctrl-D. Ctrl-C ends a question that takes too long"""


def prompt(form: Form, collection: Collection, answer: Callable[..., None]) -> None:
    """Answer one line after the other. `answer(question, form, asked=…, option=…)` shows the result of a question."""
    typed = sys.stdin is not None and sys.stdin.isatty()
    if typed:
        say(f"{len(collection):,} documents, {collection.passages:,} passages. Type a question; :help tells more.")
    for line in _typed() if typed else _piped():
        if line == ":quit":
            break
        try:
            if line.startswith(":"):
                form = command(line, form)
            elif line:
                answer(line, form, asked=not typed, option=":min-score")
        except QuothError as error:
            say(f"quoth: {error}")
        except KeyboardInterrupt:
            if not typed:  # it is meant for all questions
                raise
            say("quoth: stopped")


def command(line: str, form: Form) -> Form:
    """What is wanted after a command, which is told; an error that says what is wrong with it."""
    name, _, value = line.partition(" ")
    value = value.strip()
    if name == ":help" and not value:
        for told in HELP.splitlines():
            say(told)
        return form
    if name == ":top":
        if not (value.isascii() and value.isdigit() and 1 <= int(value[:9]) <= 1000):
            raise QuothError(f"{line}: give a whole number from 1 to 1000, such as :top 5")
        form, now = replace(form, kind="top", top=int(value)), f"at most {int(value)} answers"
    elif name == ":all" and not value:
        form, now = replace(form, kind="all", top=None), "every distinct answer"
    elif name == ":sentences" and not value:
        form, now = replace(form, kind="sentences", top=None), "every distinct sentence with an answer"
    elif name == ":min-score":
        form = replace(form, min_score=_score(line, value))
        now = "answers by the rule of the reader" if form.min_score is None else f"answers from {form.min_score} on"
    else:
        raise QuothError(f"{line}: is no command; :help lists them")
    say(f"shown from now on: {now}")
    return form


def _score(line: str, value: str) -> float | None:
    if not value:
        return None
    try:
        score = float(value)
    except ValueError:
        raise QuothError(f"{line}: give a number from 0 to 1, such as :min-score 0.5") from None
    check_min_score(score)
    return score


def _piped() -> Iterator[str]:
    """The lines of standard input, as they come; what is not UTF-8 is left out, as are comments."""
    if sys.stdin is None:
        raise QuothError("standard input: is closed")
    for number, data in enumerate(iter(sys.stdin.buffer.readline, b""), 1):
        try:
            line = data.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            say(f"quoth: standard input, line {number}: not UTF-8; left out")
            continue
        if not line.startswith("#"):
            yield line


def _typed() -> Iterator[str]:
    """The lines that are typed."""
    history = _history()
    while True:
        try:
            if sys.stdout.isatty():
                line = input(PROMPT).strip()
            else:  # `input` would write to the file that takes the answers
                print(PROMPT, end="", file=sys.stderr, flush=True)
                line = input().strip()
        except EOFError:
            print(file=sys.stderr)
            return
        except KeyboardInterrupt:
            print(file=sys.stderr)
            continue
        except UnicodeDecodeError:
            say("quoth: not UTF-8; left out")
            continue
        if line and history is not None:
            with suppress(OSError, UnicodeEncodeError), open(history, "a", encoding="utf-8", opener=_private) as file:
                file.write(f"{line}\n")
        yield line


def _history() -> Path | None:
    """The file of what was typed, whose lines are brought back; None if there can be none."""
    try:
        readline = import_module("readline")  # `input` uses it from now on; Windows has none
    except ImportError:
        return None
    with suppress(OSError, RuntimeError):  # RuntimeError: nobody knows where the user's home is
        import platformdirs

        folder = Path(platformdirs.user_cache_dir("quoth", appauthor=False))
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "history"
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
        for line in lines[-KEPT:]:
            readline.add_history(line)
        if len(lines) > 2 * KEPT:
            with open(file, "w", encoding="utf-8", opener=_private) as short:
                short.writelines(f"{line}\n" for line in lines[-KEPT:])
        return file
    return None


def _private(path: str, flags: int) -> int:
    """Open a file that others may not read, if it is made now."""
    return os.open(path, flags, 0o600)

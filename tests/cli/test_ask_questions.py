"""`quoth ask -q` and `-i`: many questions of a file, of standard input, and at a terminal; and wrong arguments."""

import io
import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest

from answer.planted import planted_reader
from cli.test_ask_forms import check
from quoth.answer import Reader
from quoth.answer.result import Form
from quoth.cli.ask_prompt import KEPT, command
from quoth.errors import QuothError

TEXT = "In spring they kept a heron there.\n"


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "texts"
    place.mkdir()
    (place / "a.txt").write_text(TEXT)
    return place


@pytest.fixture
def ask(cli, minilm, monkeypatch):
    """`quoth ask`, with a reader that answers "heron" where the texts have one; how often one was loaded is counted."""

    def run(*arguments, stdin=b"", null=0.0):
        loaded = []

        def load(*_, **__):
            loaded.append(planted_reader(minilm, "heron", null))
            return loaded[-1]

        monkeypatch.setattr(Reader, "load", load)
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False))
        result = cli("ask", *arguments)
        result.loaded = len(loaded)
        return result

    return run


def asked(shown):
    return [line[2:] for line in shown.splitlines() if line.startswith("> ")]


class TestFile:
    CONTENT = b"\xef\xbb\xbfWhich bird?\r\n\r\n# not this\r\n  Where was it kept?  \rWhat?\n"
    QUESTIONS = ("Which bird?", "Where was it kept?", "What?")

    def test_one_a_line(self, ask, folder, tmp_path):
        file = tmp_path / "questions.txt"
        file.write_bytes(self.CONTENT)
        for result in (
            ask("-q", file, folder),
            ask("-q", "-", folder, stdin=self.CONTENT),
            ask("-q", file, stdin=TEXT.encode()),
        ):
            assert (result.returncode, result.stderr, result.loaded) == (0, "", 1)
            assert asked(result.stdout) == list(self.QUESTIONS)
            blocks = result.stdout.split("\n\n")
            assert [block.splitlines()[1] for block in blocks] == ["heron"] * 3

    def test_json_is_one_object_a_line(self, ask, folder, tmp_path):
        file = tmp_path / "questions.txt"
        file.write_bytes(self.CONTENT)
        for form in ("--all", "--sentences", "--top=2"):
            lines = ask("-q", file, folder, "--json", form).stdout.splitlines()
            found = [json.loads(line) for line in lines]
            assert [one["question"] for one in found] == list(self.QUESTIONS)
            for one in found:
                check(one)

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"", ": has no questions; one a line is wanted"),
            (b" \r\n# only this\n", ": has no questions; one a line is wanted"),
            (b"What?\nCaf\xe9?\n", ", line 2: not UTF-8 (invalid continuation byte); save it as UTF-8"),
            (b"\x1f\x8b\x08oops", ": broken gzip file"),
        ],
    )
    def test_what_is_no_file_of_questions(self, ask, folder, tmp_path, content, why):
        file = tmp_path / "questions.txt"
        file.write_bytes(content)
        result = ask("-q", file, folder)
        assert (result.returncode, result.stdout, result.loaded) == (2, "", 0)
        assert result.stderr.startswith(f"quoth: {file}{why}")
        assert result.stderr.count("\n") == 1

    def test_none_at_all(self, ask, folder, tmp_path):
        for name, why in ((tmp_path / "none.txt", "no such file"), (folder, "cannot be read (Is a directory)")):
            result = ask("-q", name, folder)
            assert (result.returncode, result.stderr) == (2, f"quoth: {name}: {why}\n")
        assert ask("-q", "-", folder).stderr == "quoth: standard input: has no questions; one a line is wanted\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "give a question, -q FILE with questions, or -i to type them; see quoth ask --help"),
        (("-i",), "name the texts to answer from: the questions come from standard input"),
        (("-i", "-"), "name the texts to answer from: the questions come from standard input"),
        (("-q", "-"), "name the texts to answer from: the questions come from standard input"),
        (("-q", "-", "FOLDER", "-"), "name the texts to answer from: the questions come from standard input"),
        (("-i", "Who?", "FOLDER"), "Who?: no such file or folder; with -i every argument is a text to search"),
        (("-q", "-", "Who?"), "Who?: no such file or folder; with -q every argument is a text to search"),
        (
            ("-i", "FOLDER", "-q", "x"),
            "-i and -q: choose one; -i takes the questions of a file too: quoth ask -i FOLDER < FILE",
        ),
        (
            ("Who?", "FOLDER", "--all", "--sentences"),
            "--all and --sentences: choose one; --all has the sentence of each answer, too",
        ),
        (("Who?", "FOLDER", "--index", "x", "--no-index"), "--index and --no-index: choose one"),
        ((" ", "FOLDER"), "the question is empty"),
    ],
)
def test_wrong_arguments(ask, folder, arguments, why):
    result = ask(*(folder if one == "FOLDER" else one for one in arguments))
    assert (result.returncode, result.stdout, result.stderr, result.loaded) == (2, "", f"quoth: {why}\n", 0)


class TestPiped:
    def test_lines_of_standard_input(self, ask, folder):
        lines = b"Which bird?\n\n# no\n:all\nWhat?\n:sentences\nWhat?\n:top 2\nWhat?\n:quit\nnot this\n"
        result = ask("-i", folder, stdin=lines)
        assert (result.returncode, result.loaded) == (0, 1)
        assert asked(result.stdout) == ["Which bird?", "What?", "What?", "What?"]
        blocks = re.split(r"^> .*\n", result.stdout, flags=re.MULTILINE)[1:]
        assert [block.splitlines()[0] for block in blocks] == [
            "heron",
            "heron",
            "In spring they kept a **heron** there.",
            "heron",
        ]
        assert blocks[1].endswith("1 answer in 1 place.\n")
        assert result.stderr.splitlines() == [
            "shown from now on: every distinct answer",
            "shown from now on: every distinct sentence with an answer",
            "shown from now on: at most 2 answers",
        ]

    def test_a_mistake_is_told_and_the_next_line_is_taken(self, ask, folder):
        lines = b":top\n:top 0\n:nothing\n:all 3\n:min-score 2\n:min-score x\n\xff\xfe\nWhich bird?"
        result = ask("-i", folder, "--json", stdin=lines)
        assert result.returncode == 0
        assert json.loads(result.stdout)["answer"] == "heron"
        told = result.stderr.splitlines()
        assert len(told) == 7
        assert all(line.startswith("quoth: ") for line in told)
        assert told[-1] == "quoth: standard input, line 7: not UTF-8; left out"

    def test_the_least_score(self, ask, folder):
        result = ask("-i", folder, stdin=b"What?\n:min-score 0.04\nWhat?\n:min-score\nWhat?\n", null=11.0)
        blocks = re.split(r"^> .*\n", result.stdout, flags=re.MULTILINE)[1:]
        assert [block.splitlines()[0] for block in blocks] == [
            "No answer in these texts (score 0.95).",
            "heron",
            "No answer in these texts (score 0.95).",
        ]
        assert "  :min-score 0.04 gives this one, :min-score 0 always gives one\n" in blocks[0]


def test_commands():
    form = Form(top=3, read=7)
    assert command(":all", form) == Form("all", None, read=7)
    assert command(":sentences", form) == Form("sentences", None, read=7)
    assert command(":top  5", Form("all")) == Form("top", 5)
    assert command(":min-score 0.25", form) == Form("top", 3, 0.25, 7)
    assert command(":help", form) is form
    with pytest.raises(QuothError, match=re.escape(":tops 5: is no command; :help lists them")):
        command(":tops 5", form)


class Terminal:
    """A command at a pseudo-terminal."""

    def __init__(self, *arguments, cache):
        self.ours, theirs = pty.openpty()
        self.shown, self.read = "", 0
        env = {**os.environ, "XDG_CACHE_HOME": str(cache), "TERM": "xterm", "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "quoth", *map(str, arguments)]

        def own_terminal():
            os.setsid()
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a job in the background, such as CI, may ignore it
            os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first that is opened is where Ctrl-C comes from

        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, preexec_fn=own_terminal
        )
        os.close(theirs)

    def send(self, text):
        os.write(self.ours, text.encode())

    def wait_for(self, text, seconds=120):
        """Read until this is shown after what was waited for last."""
        end = time.monotonic() + seconds
        while text not in self.shown[self.read :]:
            assert time.monotonic() < end, self.shown
            if select.select([self.ours], [], [], 1)[0]:
                try:
                    self.shown += os.read(self.ours, 4096).decode(errors="replace")
                except OSError:  # the other end is closed
                    raise AssertionError(self.shown) from None
        self.read = self.shown.index(text, self.read) + len(text)

    def interrupt(self, text):
        """Press Ctrl-C until this is shown.

        Python's `input` notices a signal only while it waits for a key: one that comes just before, between the prompt
        and the wait, is seen at the next key. A person presses it again.
        """
        for _ in range(60):
            self.send("\x03")
            with suppress(AssertionError):
                self.wait_for(text, seconds=2)
                return
        raise AssertionError(self.shown)

    def end(self):
        """The exit code."""
        end = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.ours], [], [], 0.2)[0]:
                try:
                    self.shown += os.read(self.ours, 4096).decode(errors="replace")
                except OSError:
                    break
        self.process.kill()  # does nothing if it has ended
        os.close(self.ours)
        return self.process.wait(60)


class TestTerminal:
    def test_questions_commands_history_and_ctrl_c(self, folder, tmp_path):
        cache = tmp_path / "cache"
        at = Terminal("ask", "-i", folder, cache=cache)
        at.wait_for("1 documents, 1 passages")
        at.wait_for("quoth> ")
        at.send("half a questi")
        at.wait_for("half a questi")
        at.interrupt("quoth> ")
        at.send("Which bird did they keep?\n")
        at.wait_for("heron")
        at.wait_for("a.txt:1, characters 22–27")
        at.wait_for("quoth> ")
        at.send(":sentences\n")
        at.wait_for("every distinct sentence")
        at.wait_for("quoth> ")
        at.send("\x1b[A\x1b[A\n")  # twice the arrow up: the question
        at.wait_for("1 sentence in 1 place.")
        at.wait_for("quoth> ")
        at.send("\x04")
        assert at.end() == 0, at.shown
        history = cache / "quoth" / "history"
        assert history.read_text() == "Which bird did they keep?\n:sentences\nWhich bird did they keep?\n"
        assert stat.S_IMODE(history.stat().st_mode) == 0o600
        history.write_text("".join(f"number {i}\n" for i in range(3 * KEPT)))
        again = Terminal("ask", "-i", folder, cache=cache)
        again.wait_for("quoth> ")
        again.send("\x1b[A")
        again.wait_for(f"number {3 * KEPT - 1}")
        again.interrupt("quoth> ")
        again.send(":quit\n")
        assert again.end() == 0, again.shown
        assert len(history.read_text().splitlines()) == KEPT + 1

    def test_ctrl_c_ends_the_question_and_not_the_prompt(self, tmp_path):
        (tmp_path / "long.txt").write_text("They kept a heron there. " * 60_000)
        at = Terminal("ask", "-i", tmp_path / "long.txt", "--read", 0, cache=tmp_path / "cache")
        at.wait_for("quoth> ")
        at.send("Which bird did they keep?\n")
        at.wait_for("reading")
        at.send("\x03")
        at.wait_for("quoth: stopped")
        at.wait_for("quoth> ")
        at.send(":quit\n")
        assert at.end() == 0, at.shown

    def test_without_a_place_for_the_history(self, folder, tmp_path):
        (tmp_path / "cache").write_text("a file, and not a folder")
        at = Terminal("ask", "-i", folder, "--no-index", cache=tmp_path / "cache")
        at.wait_for("quoth> ")
        at.send("Which bird did they keep?\n")
        at.wait_for("heron")
        at.wait_for("quoth> ")
        at.send("\x04")
        assert at.end() == 0, at.shown


def test_a_line_of_progress_every_few_seconds(ask, folder, monkeypatch):
    """Where stderr is no terminal; a clock that goes on by two seconds with each look at it."""
    (folder / "b.txt").write_text(TEXT * 1000)
    monkeypatch.setattr("quoth.answer.read_passages.WINDOWS", 4)
    assert ask("What?", folder, "--read", 0, "--no-index").stderr == "", "not at once"
    clock = iter(range(0, 10**6, 2))
    monkeypatch.setattr("quoth.cli.common.PAUSE", 5.0)
    monkeypatch.setattr("quoth.cli.common.time", SimpleNamespace(monotonic=clock.__next__))
    lines = ask("What?", folder, "--read", 0, "--no-index").stderr.splitlines()
    told = [re.fullmatch(r"quoth: reading, (\d+) %, about [\d,]+ s left", line) for line in lines]
    assert len(told) > 2
    assert all(told), lines
    percent = [int(one[1]) for one in told]
    assert percent == sorted(percent)

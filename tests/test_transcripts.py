"""The transcripts of docs/ask.md are what the commands print today, but for the digits of scores."""

import re

import pytest

from transcripts import BLOCK, PAGE, run

BLOCKS = [(block["command"], block["shown"]) for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]
NUMBER = re.compile(r"-?\d+\.\d+")  # scores, logits, boxes: their last digits differ between processors


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_a_transcript_is_what_is_printed(command, shown):
    now = run(command)
    assert NUMBER.sub("#", now) == NUMBER.sub("#", shown), "python -m tests.transcripts writes docs/ask.md anew"


def test_every_form_is_there():
    """Point 5 of what the work on documents must show."""
    commands = " ".join(command for command, _ in BLOCKS)
    for option in ("--top", "--all", "--sentences", "--json", "--min-score", " -q ", " -i "):
        assert option in commands
    shown = "".join(shown for _, shown in BLOCKS)
    for words in ("No answer in these texts", "Rejected: ", ", page 2", " > ", " places)", ":help"):
        assert words in shown

"""Regular expressions that are not trusted: refused if they may take for ever."""

from __future__ import annotations

import re

from quoth.config import shown
from quoth.errors import QuothError

EXPRESSION = 1000  # characters; that of GPT-4o has 300
REPEATS = 1000
ATOM = re.compile(
    r"\\[pP]\{[^{}]*\}|\\x\{[0-9a-fA-F]*\}|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|(?P<back>\\[1-9gk])|\\.|"
    r"(?P<class>\[)|(?P<open>\((?:\?(?:[:=!>~]|<[=!]|[imsx-]+:))?)|(?P<close>\))|(?P<bar>\|)|.",
    re.S,
)
FLAGS = re.compile(r"\(\?[imsx-]+\)")
REPETITION = re.compile(r"(?:[*+?]|\{(?P<low>\d*)(?P<comma>,?)(?P<high>\d*)\})[?+]?")


def check_expression(text: str) -> None:
    """Refuse a regular expression that may take for ever: one that repeats a group which repeats or chooses."""
    if len(text) > EXPRESSION:
        raise QuothError(f"a regular expression of it has more than {EXPRESSION} characters")
    free = [False]  # for each open group, whether a repetition or an alternative is in it
    place = 0
    while place < len(text):
        if flags := FLAGS.match(text, place):
            place = flags.end()
            continue
        atom = ATOM.match(text, place)
        assert atom is not None  # its last branch is any character
        place = atom.end()
        group = False
        if atom["back"]:
            raise QuothError(f"the regular expression {shown(text)} refers back, which may take too long")
        if atom["class"]:
            place = _past_class(text, place)
        elif atom["open"]:
            free.append(False)
            continue
        elif atom["bar"]:
            free[-1] = True
            continue
        elif atom["close"]:
            if len(free) == 1:
                raise QuothError(f"the regular expression {shown(text)} closes a group that is not open")
            group = free.pop()
            free[-1] = free[-1] or group
        while repetition := REPETITION.match(text, place):
            place = repetition.end()
            if _many(repetition, text) and group:
                why = "repeats what repeats or chooses, which may take for ever"
                raise QuothError(f"the regular expression {shown(text)} {why}")
            free[-1] = group = True


def _many(repetition: re.Match[str], text: str) -> bool:
    """Whether a repetition may be of more than one."""
    if repetition[0][0] != "{":
        return repetition[0][0] != "?"
    counts = [int(repetition[name][:9]) for name in ("low", "high") if repetition[name]]
    if max(counts, default=0) > REPEATS:
        raise QuothError(f"the regular expression {shown(text)} repeats more than {REPEATS} times")
    return (not repetition["high"] and bool(repetition["comma"])) or max(counts, default=0) > 1


def _past_class(text: str, place: int) -> int:
    """One past the end of a class of characters, which may hold others."""
    depth = 1
    first = place
    while place < len(text) and depth:
        if text[place] == "\\":
            place += 1
        elif text[place] == "[":
            depth += 1
        elif text[place] == "]" and text[first:place] not in ("", "^"):
            depth -= 1
        place += 1
    return place

"""Lines of a wrapped paragraph, joined into what the author wrote: which line ends are real, which hyphens."""

from __future__ import annotations

import re
from collections.abc import Set

from quoth.search.word_sets import word_set

BULLET = re.compile(r"[-*+•‣◦·–—>#|]\s|[-*+•]{1,2}\s|\[\d+\]|[•‣◦·▪●○■]")
NUMBERED = re.compile(r"\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)](?:\s|$)")
GAP = re.compile(r"\S(?: {4,}|\t)\s*\S")  # between the cells of a table in plain text
CODE = re.compile(r"[{};\\]\s*$|^\s*(?:#include|#!|\$ |>>> |%|//|/\*|\*/|import |def |return\b|<[/?!a-zA-Z])")
HYPHENATED = re.compile(r"([^\W\d_]{2,})[-\u00ad\u2010]\Z")
BEGINS_LOWER = re.compile(r"[^\W\d_]+")
WORDS = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
SHORT = 45  # characters of a line that is taken for a full one, at least
PREFIXES = word_set("self non well all cross half high low long short semi quasi ex anti post pre multi co")


def is_item(line: str, before: str = "") -> bool:
    """Whether a line begins an item of a list. Both lines are without white space around them.

    before: the line before it, if it is of the same paragraph. A number goes on with a sentence that has not ended
    """
    if BULLET.match(line):
        return True
    return NUMBERED.match(line) is not None and (not before or before[-1] in ".:;!?)" or len(before) < SHORT)


def is_verbatim(line: str) -> bool:
    """Whether a line looks like a row of a table or a line of code, whose end is a real one."""
    return GAP.search(line) is not None or CODE.search(line) is not None


def joins(line: str, following: str, width: int) -> bool:
    """Whether the end of a line of prose is there only because the line was full.

    It is if the first word of the next line, which may be indented, would not have fitted into the `width` of the
    paragraph, or if the sentence visibly goes on in lower case. Both lines are without white space around them.
    """
    if len(line) < SHORT or is_item(following, line) or is_verbatim(line) or is_verbatim(following):
        return False
    if following[0].islower() and line[-1] not in ":;":
        return True
    return len(line) + 1 + len(following.split(maxsplit=1)[0]) > width - 3


def splits_word(line: str, following: str) -> tuple[str, str] | None:
    """The two halves of a word that a hyphen at the end of a line may have split."""
    left = HYPHENATED.search(line)
    right = BEGINS_LOWER.match(following)
    if not left or not right or not right[0][0].islower():
        return None
    return left[1], right[0]


def drops_hyphen(left: str, right: str, words: Set[str], by_default: bool) -> bool:
    """Whether a hyphen at a line end goes when the halves are joined ("exam-" + "ple").

    The other words of the text decide: does "example" occur, or "exam-ple"? If neither, `by_default`: typesetting
    programs split words, people who write plain text seldom do.
    """
    joined, kept = (left + right).lower(), f"{left}-{right}".lower()
    if joined in words or kept in words:
        return joined in words
    return by_default and left.lower() not in PREFIXES


def words_of(text: str) -> set[str]:
    """The words of a text in lower case, those with hyphens too."""
    return {word.lower() for word in WORDS.findall(text)}

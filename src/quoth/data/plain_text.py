"""Plain text for pre-training: paragraphs with blank lines between them, in .txt or .txt.gz."""

from __future__ import annotations

import re
from pathlib import Path

from quoth.data.source import read_source
from quoth.errors import QuothError

LEAST = 40  # characters of a paragraph, so that page numbers, rules and most headings are left out
BLANK = re.compile(r"\n[^\S\n]*\n")
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")  # none of them stands in text; form feeds and the like do


def read_paragraphs(path: str | Path) -> list[str]:
    """The usable paragraphs of a file, in order.

    - UTF-8, gzipped or not (the first bytes tell); the name ends in .txt or .txt.gz
    - lines of one paragraph are joined, and every run of white space becomes one space; nothing else is changed
    - a paragraph of fewer than 40 characters, or without any letter, is left out
    - a file with control characters is taken for something else than text and refused; so is one without any usable
      paragraph
    """
    name = Path(path).name.lower()
    if not name.endswith((".txt", ".txt.gz")):
        raise QuothError(f"{path}: plain text is wanted, in a file named .txt or .txt.gz")
    text = read_source(path).replace("\r\n", "\n").replace("\r", "\n")
    found = CONTROL.search(text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        raise QuothError(f"{path}, line {line}: has the control character {found.group()!r}; it is not plain text")
    joined = (" ".join(part.split()) for part in BLANK.split(text))
    kept = [part for part in joined if len(part) >= LEAST and any(map(str.isalpha, part))]
    if not kept:
        raise QuothError(
            f"{path}: has no usable paragraph; paragraphs of at least {LEAST} characters are wanted, "
            "with blank lines between them"
        )
    return kept

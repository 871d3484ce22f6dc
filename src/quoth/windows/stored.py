"""Windows of questions kept in a file, so that many runs on the same data tokenise them once.

FOLDER/windows-HASH.npz   the columns of `Windows`

HASH is that of all that the windows depend on: the tokenizer, the settings, every question and passage. A file that is
damaged (a zip archive has check sums) is made anew.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

from quoth.data import Question
from quoth.files import atomic_file
from quoth.windows.columns import TOKENS, Windows
from quoth.windows.questions import make_windows
from quoth.windows.tokenizer import Tokenizer

FORMAT = "1"


def stored_windows(questions: Sequence[Question], tokenizer: Tokenizer, settings: Mapping[str, int]) -> Windows:
    """`make_windows`; if the tokenizer names a folder where windows are kept, from there, or else written there.

    settings: max_length, step and max_query_length
    """
    if tokenizer.kept is None:
        return make_windows(questions, tokenizer, **settings)
    path = tokenizer.kept / f"windows-{windows_hash(questions, tokenizer, settings)}.npz"
    found = _read(path)
    if found is None:
        found = make_windows(questions, tokenizer, **settings)
        columns = {name: getattr(found, name) for name in _columns()}
        with atomic_file(path) as part, part.open("wb") as file:
            np.savez(file, allow_pickle=False, **columns)
    return found


def windows_hash(questions: Sequence[Question], tokenizer: Tokenizer, settings: Mapping[str, int]) -> str:
    """The hash of all that windows depend on; each passage is read once."""
    passages: dict[str, int] = {}
    asked = [(question.question, passages.setdefault(question.context, len(passages))) for question in questions]
    digest = hashlib.sha256()
    for part in ([FORMAT, dict(sorted(settings.items())), tokenizer.identity], asked, list(passages)):
        digest.update(json.dumps(part).encode())  # lone surrogates are escaped
        digest.update(b"\n")
    return digest.hexdigest()[:32]


def _columns() -> list[str]:
    return [f.name for f in fields(Windows)]


def _read(path: Path) -> Windows | None:
    """The windows of a file; None if there is none, or if it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as found:
            windows = Windows(**{name: found[name] for name in _columns()})
        whole = all(len(getattr(windows, name)) == windows.starts[-1] for name in TOKENS)
        return windows if whole and len(windows.starts) == len(windows) + 1 == len(windows.passage) + 1 else None
    except (OSError, ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile):
        return None

"""A case (files and arguments), a target (what is run on it) and a finding (what should not have happened)."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LEAST = {"format": 5000, "verb": 300}  # cases of a target in a run of 900 seconds


@dataclass(frozen=True)
class Case:
    """What a target reads: files by their names in a folder, the arguments of a verb, standard input."""

    files: dict[str, bytes]
    arguments: tuple[str, ...] = ()
    stdin: bytes = b""

    def __repr__(self) -> str:
        """Short, since Hypothesis makes it for every failing case."""
        files = {name: data if len(data) < 200 else f"{len(data)} bytes" for name, data in self.files.items()}
        return f"Case({files}, {self.arguments}, {self.stdin[:200]!r})"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(repr(self))

    @property
    def size(self) -> int:
        """The smaller of two failing cases is the better one."""
        return sum(len(name) + len(data) for name, data in self.files.items()) + len("".join(self.arguments))

    def write(self, folder: Path) -> None:
        """Write the files into an empty folder. What has no place in a file system is left out."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def to_json(self, target: str, *, files: bool = True) -> str:
        """The case as text, for a later `--replay`; without its files if they lie beside it."""
        kept = {name: base64.b64encode(data).decode() for name, data in self.files.items()} if files else {}
        stdin = base64.b64encode(self.stdin).decode()
        return json.dumps({"target": target, "arguments": self.arguments, "stdin": stdin, "files": kept})

    @classmethod
    def from_json(cls, text: str) -> tuple[str, Case]:
        """The name of the target, and the case."""
        value = json.loads(text)
        files = {name: base64.b64decode(data) for name, data in value["files"].items()}
        return value["target"], cls(files, tuple(value["arguments"]), base64.b64decode(value["stdin"]))


@dataclass(frozen=True)
class Target:
    """Something that reads files.

    cases: a Hypothesis strategy of `Case`; run: what reads them, given the folder that they were written to
    allowed: the entries of the folder that it may make or change; words: what an error may name beside a file
    seconds: how long a case may take
    """

    name: str
    kind: str
    cases: Any
    run: Callable[[Path, Case], Any]
    allowed: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    seconds: float = 10.0

    @property
    def least(self) -> int:
        """How many cases a run of 900 seconds has at least."""
        return LEAST[self.kind]


@dataclass(frozen=True)
class Finding:
    """What should not have happened. signature: the same for the same cause, as far as can be told."""

    target: str
    signature: str
    detail: str
    case: Case = field(compare=False)

    def save(self, place: Path) -> Path:
        """Write the case below `place`: `case.json` to replay, its files to look at, `finding.txt` to read."""
        number = len(list(place.glob(f"{self.target}-*"))) + 1 if place.exists() else 1
        folder = place / f"{self.target}-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "files").mkdir(parents=True)
        self.case.write(folder / "files")
        (folder / "case.json").write_text(self.case.to_json(self.target))
        text = f"{self.signature}\n\n{self.detail}\n"
        (folder / "finding.txt").write_bytes(text.encode("utf-8", "backslashreplace"))
        return folder

"""The questions of the documents benchmark (`documents/tuning.json`, `documents/test.json`), and whether they hold.

A question has a kind:

    answer     the answer is in one document, as a short span; `evidence` is the text around it, word by word
    trap       sounds like the document that it names, but nothing in the collection answers it
    off-topic  has nothing to do with the collection

and a form (question, imperative, keywords). No document, and no package, has questions in both halves.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.reader.collection import HERE
from quoth.errors import QuothError
from quoth.files import read_json

HALVES = ("tuning", "test")
KINDS = ("answer", "trap", "off-topic")
FORMATS = {".pdf": "PDF", ".html": "HTML", ".epub": "EPUB"}
STOP = frozenset(
    re.findall(
        r"\w+",
        """a an and are as at be by can do does for from has have how i if in into is it its me my no not of on one or
        so than that the this to unless was were what when where which who whom whose why will with""",
    )
)
COPIED = 0.6  # of the words of a question in its evidence: it repeats the text


@dataclass(frozen=True)
class Asked:
    """A question, the document that it is about, and for one with an answer all acceptable answers and the evidence."""

    id: str
    kind: str
    form: str
    question: str
    document: str = ""
    answers: tuple[str, ...] = ()
    evidence: str = ""

    @property
    def half(self) -> str:
        """`tuning` or `test`."""
        return self.id.partition("-")[0]

    @property
    def format(self) -> str:
        """The format of its document: PDF, HTML, EPUB or text."""
        return FORMATS.get(Path(self.document).suffix, "text")

    @property
    def wording(self) -> str:
        """`copied` if most words of the question are in the evidence too, else `paraphrased`."""
        own = words(self.question)
        return "copied" if len(own & words(self.evidence)) >= COPIED * len(own) else "paraphrased"


def load_questions(halves: Sequence[str] = HALVES) -> list[Asked]:
    """The questions of some halves, in the order of the files."""
    return [_question(row) for half in halves for row in read_json(HERE / f"{half}.json")]


def _question(row: dict[str, Any]) -> Asked:
    return Asked(**{**row, "answers": tuple(row.get("answers", ()))})


def words(text: str) -> set[str]:
    """The words of a text that say something, in lower case and cut to six letters."""
    return {word[:6] for word in re.findall(r"\w+", text.lower()) if word not in STOP}


def plain(text: str) -> str:
    """A text with single spaces, and without the characters that a PDF has for a hyphen at the end of a line."""
    return " ".join(text.replace("\ufffe", "").replace("\u00ad", "").split())


def problems(questions: Sequence[Asked], folder: Path) -> list[str]:
    """What is wrong with questions, over the documents of a folder; a line each."""
    found = []
    texts: dict[str, str] = {}
    for one in questions:
        if not one.document:
            continue
        if not (folder / one.document).is_file():
            found.append(f"{one.id}: there is no document {one.document}")
            continue
        if one.kind != "answer":
            continue
        if one.document not in texts:
            texts[one.document] = plain(text_of(folder / one.document))
        if plain(one.evidence) not in texts[one.document]:
            found.append(f"{one.id}: the evidence is not in {one.document}")
        if not any(answer in plain(one.evidence) for answer in one.answers):
            found.append(f"{one.id}: no answer is in the evidence")
    return found


def text_of(path: Path) -> str:
    """The text of a document, with nothing cleaned: to check evidence, not to be read by a model."""
    if path.suffix == ".pdf":
        return _pdf(path)
    data = path.read_bytes()
    if path.suffix == ".html":
        return _html(data)
    if path.suffix == ".epub":
        with zipfile.ZipFile(io.BytesIO(data)) as book:
            return "\n".join(_html(book.read(name)) for name in book.namelist() if name.endswith("html"))
    return data.decode("utf-8", "replace")


def _pdf(path: Path) -> str:
    try:
        pypdfium2 = import_module("pypdfium2")
    except ImportError:
        raise QuothError("checking questions about PDFs needs pypdfium2: pip install pypdfium2") from None
    document = pypdfium2.PdfDocument(path)
    return "\n".join(page.get_textpage().get_text_range() for page in document)


def _html(data: bytes) -> str:
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        raise QuothError("checking questions about HTML needs selectolax: pip install selectolax") from None
    tree = LexborHTMLParser(data)
    return str(tree.body.text()) if tree.body else ""

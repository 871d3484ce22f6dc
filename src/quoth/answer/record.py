"""The answers of a run in a file, which `quoth analyse` reads without the model.

JSON lines, gzipped if the name ends in .gz, one line a question, in the order of the data:

    {"id": "5ad3…", "null_minus_best": -2.5, "answers": [["in Rome", 20, 27, 7.25], …]}

`answers` are the best spans as [text, start, end, score], best first, without "no answer"; `null_minus_best` is how
far "no answer" is ahead of the first of them, and null exactly where there is no span at all.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quoth.answer.decode import Answer, Decoded, finite_margins
from quoth.data import Question
from quoth.data.source import parse_json, read_source
from quoth.errors import QuothError
from quoth.files import atomic_file

KEEP = 5


@dataclass(frozen=True, eq=False)
class Recorded:
    """The best spans of Q questions, as `write_answers` kept them.

    - source: where they were read from, for messages
    - ids: Q question ids
    - null_minus_best: (Q,) float64, +inf where a question has no span
    - answers: Q tuples of spans, best first; none of them is "no answer"
    """

    source: str
    ids: tuple[str, ...]
    null_minus_best: NDArray[np.float64]
    answers: tuple[tuple[Answer, ...], ...]

    def __len__(self) -> int:
        return len(self.ids)

    def finite_margins(self) -> list[float]:
        """`null_minus_best` as finite numbers."""
        return finite_margins(self.null_minus_best)

    def predictions(self, threshold: float = 0.0) -> list[str]:
        """Q texts: the best span, or "" where null - best > threshold, as `Decoded.predictions`."""
        abstains = (self.null_minus_best > threshold).tolist()
        return ["" if none or not spans else spans[0].text for none, spans in zip(abstains, self.answers)]

    def ranked(self, i: int, threshold: float = 0.0) -> list[str]:
        """The texts of question i, best first, "no answer" among them as "": the order of `Decoded.answers`.

        With `math.inf` "no answer" is left out, unless there is nothing else.
        """
        spans = self.answers[i]
        texts = [span.text for span in spans]
        if not texts or threshold < math.inf:
            # null - score of each span, from the margin of the best
            behind = [float(self.null_minus_best[i]) + (spans[0].score - span.score) for span in spans]
            texts.insert(sum(margin <= threshold for margin in behind), "")
        return texts

    def of(self, ids: Sequence[str]) -> Recorded:
        """The same answers in the order of `ids`, which must be the very questions that were answered."""
        place = {id: i for i, id in enumerate(self.ids)}
        lacking = next((id for id in ids if id not in place), None)
        if lacking is not None:
            raise QuothError(f"{self.source}: has no line for question {lacking} of the data; are they other data?")
        known = set(ids)
        unknown = next((id for id in self.ids if id not in known), None)
        if unknown is not None:
            raise QuothError(f"{self.source}: question {unknown} is not in the data; are they other data?")
        order = [place[id] for id in ids]
        answers = tuple(self.answers[i] for i in order)
        return Recorded(self.source, tuple(ids), self.null_minus_best[order], answers)


def write_answers(path: str | Path, questions: Sequence[Question], decoded: Decoded, keep: int = KEEP) -> None:
    """Write the `keep` best spans of each question, whole or not at all; equal answers make equal bytes."""
    if len(questions) != len(decoded) or keep < 1:
        raise QuothError(f"{path}: {len(decoded)} answers to {len(questions)} questions, keep={keep}")
    lines = []
    for i, question in enumerate(questions):
        found = np.flatnonzero(np.isfinite(decoded.score[i, :keep]))
        spans = zip(*(values[i, found].tolist() for values in (decoded.start, decoded.end, decoded.score)))
        answers = [[decoded.contexts[i][start:end], start, end, score] for start, end, score in spans]
        margin = float(decoded.null_minus_best[i]) if answers else None
        line = {"id": question.id, "null_minus_best": margin, "answers": answers}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    data = "".join(lines).encode("utf-8")
    with atomic_file(path) as part:
        part.write_bytes(gzip.compress(data, mtime=0) if Path(path).suffix == ".gz" else data)


def read_answers(path: str | Path) -> Recorded:
    """Read what `write_answers` wrote, or say in one line what is wrong with it."""
    ids: dict[str, None] = {}
    margins, answers = [], []
    for number, line in enumerate(read_source(path).split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        id, margin, spans = _line(parse_json(line, where), where)
        if id in ids:
            raise QuothError(f"{where}: the id {id} stands twice")
        ids[id] = None
        margins.append(margin)
        answers.append(spans)
    if not ids:
        raise QuothError(f"{path}: has no answers")
    return Recorded(str(path), tuple(ids), np.array(margins, np.float64), tuple(answers))


def _line(value: Any, where: str) -> tuple[str, float, tuple[Answer, ...]]:
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        raise QuothError(f'{where}: an object with a text "id" is wanted')
    spans, margin = value.get("answers"), value.get("null_minus_best")
    if not isinstance(spans, list) or not all(_is_span(span) for span in spans):
        raise QuothError(f'{where}: "answers" must be a list of [text, start, end, score]')
    if any(above[3] < below[3] for above, below in pairwise(spans)):
        raise QuothError(f'{where}: "answers" must begin with the best: a score is higher than the one before it')
    if not (_is_number(margin) if spans else margin is None):
        wanted = "a finite number" if spans else "null where there are no answers"
        raise QuothError(f'{where}: "null_minus_best" must be {wanted}')
    answers = tuple(Answer(text, start, end, float(score)) for text, start, end, score in spans)
    return value["id"], math.inf if margin is None else float(margin), answers


def _is_span(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 4 or not isinstance(value[0], str):
        return False
    return type(value[1]) is int and type(value[2]) is int and _is_number(value[3])


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # NaN is not: it compares with nothing

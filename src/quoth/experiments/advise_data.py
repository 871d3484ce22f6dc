"""The user's questions in two parts, to train candidates on and to score them on: whole articles or passages.

Questions of one text are alike, so a model is scored on texts that it has not seen. With few articles, or one, whole
passages are held out instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quoth.data import Dataset, Gold, Question
from quoth.errors import QuothError
from quoth.files import write_json

PART = 0.2  # of the questions, to score on
MOST = 1000  # questions to score on, so that scoring takes less time than training
ARTICLES = 5  # with fewer, whole passages are held out
TRAIN, HELD_OUT = "train.json", "held-out.json"


@dataclass(frozen=True)
class Split:
    """Numbers of questions to train on and to score on. by: "articles" or "passages"; groups: of them held out."""

    train: list[int]
    held_out: list[int]
    by: str
    groups: int


def split(questions: Sequence[Question], where: str, seed: int = 0, part: float = PART, most: int = MOST) -> Split:
    """Hold out a part of the questions, by whole articles or passages, drawn by the seed."""
    titles, passages = [q.title for q in questions], [q.context for q in questions]
    by, keys = ("articles", titles) if len(set(titles)) >= ARTICLES else ("passages", passages)
    wanted = min(part * len(questions), most)
    held = _draw(_groups(keys), wanted, seed)
    if not held and by == "articles":  # each of them is too large
        by, held = "passages", _draw(_groups(passages), wanted, seed)
    if not held:  # or each of the passages
        held = [one for one in [min(_groups(passages), key=len)] if 2 * len(one) <= len(questions)]
    if not held:
        raise QuothError(f"{where}: nearly all questions are about one passage, so none can be held out; give more")
    out = sorted(i for group in held for i in group)
    rest = sorted(set(range(len(questions))) - set(out))
    if not any(questions[i].trainable for i in rest):
        raise QuothError(f"{where}: too few questions to hold some out; give more")
    return Split(rest, out, by, len(held))


def _draw(groups: Sequence[list[int]], wanted: float, seed: int) -> list[list[int]]:
    """Groups with at least so many questions together, and at most twice as many: larger ones are passed over."""
    held: list[list[int]] = []
    count = 0
    for number in np.random.default_rng(seed).permutation(len(groups)):
        if count < wanted and count + len(groups[number]) <= max(1, 2 * wanted):
            held.append(groups[number])
            count += len(groups[number])
    return held if len(held) < len(groups) else []


def _groups(keys: Sequence[Hashable]) -> list[list[int]]:
    found: dict[Hashable, list[int]] = {}
    for number, key in enumerate(keys):
        found.setdefault(key, []).append(number)
    return list(found.values())


def write_split(dataset: Dataset, found: Split, folder: Path) -> tuple[Path, Path]:
    """Write both parts as SQuAD files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / TRAIN, folder / HELD_OUT
    for path, numbers in zip(paths, (found.train, found.held_out)):
        write_json(path, squad([dataset.questions[i] for i in numbers], dataset.version))
    return paths


def squad(questions: Sequence[Question], version: str) -> dict[str, Any]:
    """The content of a SQuAD file. Texts that do not stand in their passage are kept: they are scored with."""
    articles: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for one in questions:
        places = list(one.answers)
        answers = [{"text": text, "answer_start": _take(places, text)} for text in one.gold_texts]
        entry = {"id": one.id, "question": one.question, "answers": answers, "is_impossible": one.impossible}
        articles.setdefault(one.title, {}).setdefault(one.context, []).append(entry)
    data = [
        {"title": title, "paragraphs": [{"context": context, "qas": qas} for context, qas in passages.items()]}
        for title, passages in articles.items()
    ]
    return {"version": "v2.0" if version != "1.1" else "1.1", "data": data}


def _take(places: list[Gold], text: str) -> int:
    """Where the next answer with this text starts; −1 if it could not be placed."""
    for number, gold in enumerate(places):
        if gold.text == text:
            return places.pop(number).start
    return -1


def identity(dataset: Dataset) -> str:
    """The sha256 of all questions, passages and answers: whether a search goes on over the same data."""
    digest = hashlib.sha256()
    for one in dataset.questions:
        answers = [[gold.text, gold.start] for gold in one.answers]
        row = [one.id, one.question, one.context, answers, one.impossible, one.title, one.gold_texts]
        digest.update(json.dumps(row).encode())
    return digest.hexdigest()

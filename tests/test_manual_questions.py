"""benchmarks/reader/manuals: questions about documentation, as data."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from quoth.data import read

FOLDER = Path(__file__).parents[1] / "benchmarks/reader/manuals"
DOCUMENTS = FOLDER.parent / "documents/packages.json"
COUNTS = {"train": (3902, 1849), "held-out": (1472, 739)}


@pytest.mark.parametrize("name", COUNTS)
def test_answers_stand_where_they_are_said_to(name):
    dataset = read(str(FOLDER / f"{name}.json.gz"))
    count, impossible = COUNTS[name]
    assert len(dataset.questions) == len(dataset.trainable) == count
    assert sum(question.impossible for question in dataset.questions) == impossible
    assert len({question.id for question in dataset.questions}) == count
    for question in dataset.questions:
        for answer in question.answers:
            assert question.context[answer.start : answer.start + len(answer.text)] == answer.text


def test_packages_are_in_one_file_alone():
    """Nor in the collection that checks the reader from outside."""
    found = []
    for name in COUNTS:
        with gzip.open(FOLDER / f"{name}.json.gz") as file:
            found.append({article["title"].lower().removesuffix("-doc") for article in json.load(file)["data"]})
    train, held_out = found
    outside = {one["name"].lower() for one in json.loads(DOCUMENTS.read_text())}
    assert len(train) == 45
    assert len(held_out) == 16
    assert not train & held_out
    assert not (train | held_out) & {name.removesuffix("-doc") for name in outside}


def test_the_licences_of_all_packages_are_listed():
    text = (FOLDER / "README.md").read_text()
    for name in COUNTS:
        with gzip.open(FOLDER / f"{name}.json.gz") as file:
            for article in json.load(file)["data"]:
                assert f"| {article['title']} " in text

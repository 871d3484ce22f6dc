"""Windows kept in a file are those that are made; whatever they depend on makes another file."""

import numpy as np
import pytest

from quoth.data import Question
from quoth.windows import Tokenizer, make_windows
from quoth.windows.columns import Windows
from quoth.windows.stored import stored_windows

SETTINGS = {"max_length": 24, "step": 8, "max_query_length": 9}
QUESTIONS = [
    Question("1", "Who built the mill?", "Thomas Hale built the mill. " * 6, ()),
    Question("2", "When?", "", ()),
    Question("3", "Where, \ud800 où?", "In Arden, près de la rivière.", ()),
]


@pytest.fixture
def tokenizer(minilm, tmp_path):
    one = Tokenizer.load(minilm)
    one.kept = tmp_path / "kept"
    return one


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in Windows.__dataclass_fields__)


def test_from_the_file_as_made(tokenizer, monkeypatch):
    wanted = make_windows(QUESTIONS, tokenizer, **SETTINGS)
    first = stored_windows(QUESTIONS, tokenizer, SETTINGS)
    monkeypatch.setattr("quoth.windows.stored.make_windows", None)  # it is not made again
    second = stored_windows(QUESTIONS, tokenizer, SETTINGS)
    assert same(first, wanted)
    assert same(second, wanted)
    assert [getattr(second, name).dtype for name in Windows.__dataclass_fields__] == [
        getattr(wanted, name).dtype for name in Windows.__dataclass_fields__
    ]


def test_what_they_depend_on(tokenizer, span_model):
    """Another question, passage, order, setting or tokenizer."""
    for questions, settings in (
        (QUESTIONS, SETTINGS),
        (QUESTIONS[:2], SETTINGS),
        (QUESTIONS[::-1], SETTINGS),
        (QUESTIONS, {**SETTINGS, "step": 9}),
    ):
        found = stored_windows(questions, tokenizer, settings)
        assert same(found, make_windows(questions, tokenizer, **settings))
    files = list(tokenizer.kept.iterdir())
    assert len(files) == 4
    other = Tokenizer.load(span_model)  # the same tokenizer from another folder
    other.kept = tokenizer.kept
    stored_windows(QUESTIONS, other, SETTINGS)
    assert len(list(tokenizer.kept.iterdir())) == 4


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text"])
def test_a_damaged_file_is_made_anew(tokenizer, damage):
    wanted = stored_windows(QUESTIONS, tokenizer, SETTINGS)
    (path,) = tokenizer.kept.iterdir()
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes({"cut": data[: len(data) // 2], "flipped": data, "empty": b"", "text": b"no"}[damage])
    assert same(stored_windows(QUESTIONS, tokenizer, SETTINGS), wanted)
    assert same(stored_windows(QUESTIONS, tokenizer, SETTINGS), wanted)


def test_without_a_folder_nothing_is_kept(minilm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = Tokenizer.load(minilm)
    assert same(stored_windows(QUESTIONS, plain, SETTINGS), make_windows(QUESTIONS, plain, **SETTINGS))
    assert not list(tmp_path.iterdir())

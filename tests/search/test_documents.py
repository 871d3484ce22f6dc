"""A user's own texts: what is read, what is left out and told, and sentences around an answer."""

import io
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoth.errors import QuothError
from quoth.search.documents import Document, read_documents


def test_files_folders_and_what_lies_in_them(tmp_path):
    (tmp_path / "a.txt").write_text("One.", encoding="utf-8")
    (tmp_path / "docs/deep").mkdir(parents=True)
    (tmp_path / "docs/b.md").write_text("\ufeffTwo.", encoding="utf-8")
    (tmp_path / "docs/deep/c.TXT").write_text("Three.", encoding="utf-8")
    (tmp_path / "docs/.hidden.txt").write_text("Hidden.")
    (tmp_path / "docs/picture.png").write_bytes(b"\x89PNG\0")
    (tmp_path / "docs/broken.txt").write_bytes(b"caf\xe9")
    (tmp_path / "docs/empty.txt").write_text(" \n")
    documents, notes = read_documents([str(tmp_path / "a.txt"), str(tmp_path / "docs")])
    assert [d.text for d in documents] == ["One.", "Two.", "Three."]
    assert [note.split("/")[-1] for note in notes] == [
        "broken.txt: is not UTF-8 text (byte 3); convert it first",
        "empty.txt: is empty",
    ]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("Früh.\r\n".encode())))
    (document,), _ = read_documents(["-"])
    assert document.text == "Früh.\r\n"


@pytest.mark.parametrize(
    ("name", "content", "culprit"),
    [
        ("none.txt", None, "none.txt: no such file or folder"),
        ("a.bin", b"\x7fELF\0\0", "a.bin: is not a text file"),
        ("latin.txt", b"caf\xe9", "latin.txt: is not UTF-8"),
        ("empty.txt", b"", "empty.txt: is empty: there is no text"),
    ],
)
def test_a_named_file_that_cannot_be_read(name, content, culprit, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(QuothError, match=culprit):
        read_documents([str(tmp_path / name)])


def test_a_folder_without_texts(tmp_path):
    with pytest.raises(QuothError, match="the folder has no"):
        read_documents([str(tmp_path)])


@pytest.mark.parametrize(
    ("text", "answer", "sentence"),
    [
        ("First one. The answer is 42. Last.", "42", "The answer is 42."),
        ("The answer is 42", "42", "The answer is 42"),
        ("A line\nthe 42 of it\nanother", "42", "the 42 of it"),
        ("It cost 4.50 in all! Who knew?", "4.50", "It cost 4.50 in all!"),
        ("Yes. 42. No.", "42.", "42."),
        ("42", "42", "42"),
    ],
)
def test_sentences(text, answer, sentence):
    start = text.index(answer)
    first, past = Document("x", text).sentence(start, start + len(answer))
    assert text[first:past] == sentence


@given(st.text(alphabet="ab .!?\n\r。é😀", min_size=1, max_size=60), st.data())
def test_a_sentence_holds_its_answer(text, data):
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    first, past = Document("x", text).sentence(start, end)
    assert 0 <= first <= start < end <= past <= len(text)


def test_line_numbers():
    document = Document("x", "a\nb\r\nc")
    assert [document.line(i) for i in (0, 2, 5)] == [1, 2, 3]

"""A user's own documents: what is read, what is left out and told."""

import io
import sys
from types import SimpleNamespace

import pytest

from quoth.errors import QuothError
from quoth.search import Document, formats, read_documents, register_format


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


def test_line_numbers():
    document = Document("x", "a\nb\r\nc")
    assert [document.place(i, i + 1).line for i in (0, 2, 5)] == [1, 2, 3]


def test_a_format_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_FORMATS", dict(formats._FORMATS))
    register_format(".Rev", lambda data, name: data.decode()[::-1])
    (tmp_path / "a.rev").write_text(".enO")
    (document,), notes = read_documents([str(tmp_path)])
    assert (document.text, document.name, notes) == ("One.", str(tmp_path / "a.rev"), [])
    with pytest.raises(QuothError, match="'rev': an extension begins with a dot"):
        register_format("rev", lambda data, name: "")

"""`quoth index`: what it shows, and what it refuses."""

import json

import pytest


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "documents"
    (inside / "deep").mkdir(parents=True)
    (inside / "a.txt").write_text("A heron stood in the river.")
    (inside / "deep/b.md").write_text("# Mills\n\n" + "The mill is old. " * 200)
    (inside / "c.txt").write_bytes(b"\0")
    return inside


def test_what_was_read(cli, folder, tmp_path):
    place = tmp_path / "my.index"
    first = json.loads(cli("index", folder, "--index", place, "--json").stdout)
    assert first["files"] == {"added": 3, "changed": 0, "removed": 0, "unchanged": 0}
    assert (first["documents"], first["passages"]) == (2, 5)
    assert first["formats"] == [
        {"format": "md", "documents": 1, "passages": 4, "left_out": 0},
        {"format": "txt", "documents": 1, "passages": 1, "left_out": 1},
    ]
    assert (first["index"], first["bytes"]) == (str(place), place.stat().st_size)
    assert first["notes"] == [f"{folder}/c.txt: is not a text file (byte 0 is zero); Quoth reads plain text in UTF-8"]
    (folder / "a.txt").write_text("A swan.")
    (folder / "c.txt").unlink()
    result = cli("index", folder, "--index", place)
    assert result.returncode == 0, result.stderr
    assert "files: 0 added, 1 changed, 1 removed, 1 unchanged" in result.stdout
    assert f"{place}: 5 passages" in result.stdout
    assert result.stderr == ""
    again = json.loads(cli("index", folder, "--index", place, "--rebuild", "--json").stdout)
    assert again["files"]["added"] == 2


def test_notes_are_lines_of_standard_error(cli, folder):
    result = cli("index", folder)
    assert result.stderr == (
        f"quoth: {folder}/c.txt: is not a text file (byte 0 is zero); Quoth reads plain text in UTF-8\n"
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("none",), "none: no such folder"),
        (("documents/a.txt",), "documents/a.txt: is a file; an index is of a folder"),
        (("empty",), "empty: the folder has no .txt"),
        (("documents", "--index", "documents"), "documents: is a folder; name a file for the index"),
        (("documents", "--index", "notes"), "notes: is not an index of Quoth; choose another --index"),
        (("documents", "--index", "notes/x"), "notes/x: cannot be written (Not a directory)"),
        (("documents", "--index", "/proc/none/x"), "/proc/none/x: cannot be written (No such file or directory)"),
    ],
)
def test_mistakes_are_one_line(cli, folder, tmp_path, monkeypatch, arguments, why):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").write_text("My notes.")
    before = sorted(tmp_path.rglob("*"))
    result = cli("index", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"quoth: {why}")
    assert result.stderr.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before, "nothing was written"

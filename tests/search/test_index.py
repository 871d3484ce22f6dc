"""The index of a folder: what it finds is what a new one finds, whatever happened to the folder and to the file."""

import os
import sqlite3
import stat
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoth import QuothError
from quoth.search import index, index_refresh, open_collection, open_index
from quoth.search.index import Index, UnwritableError

QUESTIONS = (
    "Where do herons stand?",
    "the river mill",
    "How old is the miller?",
    "東京はどこですか",
    "of the",
    "Ω",
    "",
)

words = st.sampled_from(
    ["heron", "herons", "The", "river", "mill", "miller", "old", "42", "x", "東京", "Mühle", "it's"]
)
sentences = st.lists(words, min_size=1, max_size=12).map(lambda some: " ".join(some) + ".")
texts = st.lists(sentences, min_size=1, max_size=30).map("\n\n".join)


def fill(folder: Path, seed: int = 0, files: int = 12) -> Path:
    """Files of several formats and folders, with texts of their own."""
    for number in range(files):
        path = folder / ("deep/er" if number % 3 == 0 else "") / f"{number}.{('txt', 'md', 'html')[number % 3]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        birds = ["heron", "gull", "swan", "owl", "crow"]
        lines = [
            f"The {birds[(number * k + seed) % 5]} number {k} stood in the river near mill {number}." for k in range(40)
        ]
        path.write_text(f"# About {birds[number % 5]}s\n\n" + "\n\n".join(lines) + "\n")
    return folder


def search(collection, count=25):
    """All that a collection gives for some questions, by the names of its documents."""
    return {
        question: [
            (collection.document(one.document).name, one.begin, one.past, one.score, one.heading)
            for one in collection.best(question, count)
        ]
        for question in QUESTIONS
    }


def found(folder, **options):
    return search(open_collection([str(folder)], **options))


def fresh(folder):
    """What an index that never saw another state of the folder finds."""
    return found(folder, use_index=False)


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "documents"
    inside.mkdir()
    return fill(inside)


@pytest.fixture
def parsed(monkeypatch):
    """The names of the files that are read by a format."""
    names, real = [], index_refresh.read_document

    def read(data, name):
        names.append(name)
        return real(data, name)

    monkeypatch.setattr(index_refresh, "read_document", read)
    return names


class TestRefresh:
    def test_a_new_index_finds_what_memory_finds(self, folder):
        assert found(folder) == fresh(folder)
        assert any(rows for rows in fresh(folder).values())

    def test_unchanged_files_are_not_read_again(self, folder, parsed):
        open_index(folder)
        assert len(parsed) == 12
        parsed.clear()
        for _ in range(2):
            _, done = open_index(folder)
            assert (done.added, done.changed, done.removed, done.unchanged) == (0, 0, 0, 12)
        for path in folder.rglob("*.txt"):
            path.touch()  # another time, the same content
        assert open_index(folder)[1].unchanged == 12
        assert parsed == []

    def test_old_files_are_not_even_opened(self, folder, monkeypatch):
        for path in folder.rglob("*.*"):
            os.utime(path, (1, 1))
        open_index(folder)
        monkeypatch.setattr(index_refresh, "open_bytes", lambda *_: pytest.fail("opened"))
        assert open_index(folder)[1].unchanged == 12

    def test_a_change_within_the_resolution_of_the_clock_is_seen(self, folder):
        path = folder / "1.md"
        status = path.stat()
        open_index(folder)
        path.write_text(path.read_text().replace("gull", "tern"))  # as long as before …
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # … and at the same time
        assert open_index(folder)[1].changed == 1
        assert found(folder) == fresh(folder)

    def test_added_changed_and_removed(self, folder, parsed):
        open_index(folder)
        parsed.clear()
        (folder / "1.md").unlink()
        (folder / "2.html").rename(folder / "renamed.html")
        (folder / "4.md").write_text("# Otters\n\nThe otter lives in the river, and the heron does not.")
        (folder / "new.txt").write_text("A mill is older than its miller.")
        (folder / "bad.txt").write_bytes(b"\0")
        _, done = open_index(folder)
        assert (done.added, done.changed, done.removed, done.unchanged) == (3, 1, 2, 9)
        assert sorted(parsed) == ["4.md", "bad.txt", "new.txt", "renamed.html"]
        assert found(folder) == fresh(folder)
        assert open_collection([str(folder)]).notes == [
            f"{folder}/bad.txt: is not a text file (byte 0 is zero); Quoth reads plain text in UTF-8"
        ]
        (folder / "bad.txt").write_text("Now it is good.")
        assert open_collection([str(folder)]).notes == []

    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.dictionaries(st.sampled_from("abcdef"), texts, min_size=1), min_size=2, max_size=4))
    def test_any_sequence_of_states(self, tmp_path_factory, states):
        folder = tmp_path_factory.mktemp("states")
        for state in states:
            for path in folder.iterdir():
                path.unlink()
            for name, text in state.items():
                (folder / f"{name}.txt").write_text(text)
            assert found(folder) == fresh(folder)

    def test_hidden_files_links_and_unknown_formats(self, folder, tmp_path):
        (tmp_path / "outside.txt").write_text("An outside heron.")
        (folder / ".hidden.txt").write_text("heron")
        (folder / "program.py").write_text("heron")
        (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
        (folder / "other.txt").symlink_to(tmp_path / "outside.txt")
        (folder / "inside.md").symlink_to(folder / "1.md")
        (folder / "loop").symlink_to(folder)
        os.mkfifo(folder / "pipe.txt")
        names = {entry.path for entry in open_index(folder)[0].entries()}
        assert "link.txt" in names
        assert len(names) == 13
        assert found(folder) == fresh(folder)

    def test_an_empty_folder(self, tmp_path):
        with pytest.raises(QuothError, match=r"the folder has no \.txt"):
            open_collection([str(tmp_path)])
        (tmp_path / "a.txt").write_text(" ")
        with pytest.raises(QuothError, match=r"a\.txt: is empty: there is no text to answer from"):
            open_collection([str(tmp_path)])


class TestFile:
    def test_it_is_in_the_cache_directory_and_private(self, folder, cache_directory):
        opened, _ = open_index(folder)
        assert opened.path.is_relative_to(cache_directory)
        assert stat.S_IMODE(opened.path.stat().st_mode) == 0o600
        assert not list(folder.rglob("*.sqlite*")), "nothing is written into the folder"

    def test_it_is_where_it_is_told_to_be(self, folder, tmp_path):
        assert found(folder, index=tmp_path / "new/my.index") == fresh(folder)
        assert (tmp_path / "new/my.index").exists()

    @pytest.mark.parametrize("harm", ["garbage", "short", "middle", "version", "quoth", "empty", "documents", "words"])
    def test_a_damaged_or_old_one_is_built_again(self, folder, harm):
        opened, _ = open_index(folder)
        opened.close()
        data = opened.path.read_bytes()
        third = len(data) // 3
        harmed = {
            "garbage": b"\x07" * 5000,
            "short": data[:third],
            "middle": data[:4096] + b"\xff" * (len(data) - 4096),
            "empty": b"",
        }
        if harm in harmed:
            opened.path.write_bytes(harmed[harm])
        else:
            statement = {
                "version": "PRAGMA user_version = 77",
                "quoth": "UPDATE origin SET quoth = '0.0'",
                "documents": "UPDATE document SET data = x'00'",
                "words": "UPDATE words_data SET block = x'00ff00ff' WHERE id > 10",
            }[harm]
            base = sqlite3.connect(opened.path)
            base.execute("PRAGMA writable_schema = ON")
            base.execute(statement)
            base.commit()
            base.close()
        collection = open_collection([str(folder)])
        assert search(collection) == fresh(folder)
        assert harm == "empty" or any("built again" in note for note in collection.notes)
        assert found(folder) == fresh(folder)
        assert open_index(folder)[1].notes == []

    def test_what_is_not_ours_is_left_alone(self, folder, tmp_path):
        other = sqlite3.connect(tmp_path / "other.sqlite")
        other.execute("CREATE TABLE t (x)")
        other.close()
        (tmp_path / "text.txt").write_text("My notes.")
        for name in ("other.sqlite", "text.txt"):
            before = (tmp_path / name).read_bytes()
            for rebuild in (False, True):
                with pytest.raises(QuothError, match="is not an index of Quoth; choose another --index"):
                    open_index(folder, tmp_path / name, rebuild=rebuild)
            assert (tmp_path / name).read_bytes() == before
            assert not (tmp_path / f"{name}.lock").exists()
        fill(tmp_path / "second", 1)
        open_index(folder, tmp_path / "one.index")
        with pytest.raises(QuothError, match=f"is the index of {folder}; choose another"):
            open_index(tmp_path / "second", tmp_path / "one.index")

    def test_a_cache_that_cannot_be_written(self, folder, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
        collection = open_collection([str(folder)])
        assert search(collection) == fresh(folder)
        assert collection.notes == [
            f"{index_refresh.default_index(folder)}: cannot be written (No such file or directory); "
            f"{folder} was read without an index"
        ]

    def test_a_cache_that_can_only_be_read(self, folder, monkeypatch):
        for path in folder.rglob("*.*"):
            os.utime(path, (1, 1))
        wanted, real = found(folder), os.open

        def refuse(path, flags, *rest, **more):
            if str(path).endswith(".lock"):
                raise PermissionError(13, "Permission denied")
            return real(path, flags, *rest, **more)

        monkeypatch.setattr(os, "open", refuse)
        collection = open_collection([str(folder)])
        assert (search(collection), collection.notes) == (wanted, [])
        (folder / "new.txt").write_text("A heron.")
        collection = open_collection([str(folder)])
        assert search(collection) == fresh(folder)
        assert "its folder is read-only" in collection.notes[0]

    def test_a_read_only_folder(self, folder):
        for path in [folder, *folder.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222)
        try:
            assert found(folder) == fresh(folder)
        finally:
            for path in [folder, *folder.rglob("*")]:
                path.chmod(path.stat().st_mode | 0o200)

    def test_a_disk_that_fails_in_the_middle(self, folder, monkeypatch):
        """The second batch cannot be written: what was there before, and the first batch, stay."""
        open_index(folder)
        before = found(folder)
        fill(folder, seed=3)
        monkeypatch.setattr(index_refresh, "FILES", 5)
        real, calls = Index.add, []

        def add(self, *rest):
            calls.append(rest)
            if len(calls) == 8 and self.path:
                raise sqlite3.OperationalError("database or disk is full")
            return real(self, *rest)

        monkeypatch.setattr(Index, "add", add)
        monkeypatch.setattr(index, "UNWRITABLE", (sqlite3.SQLITE_ERROR,))
        with pytest.raises(UnwritableError, match=r"cannot be written \(database or disk is full"):
            open_index(folder)
        monkeypatch.undo()
        assert before != fresh(folder)
        _, done = open_index(folder)
        assert (done.changed, done.unchanged) == (7, 5)
        assert found(folder) == fresh(folder)


class TestCollections:
    def test_files_folders_and_nothing_twice(self, folder, tmp_path):
        (tmp_path / "one.txt").write_text("The only kingfisher stood in the river.")
        paths = [str(folder), str(tmp_path / "one.txt"), str(folder / "1.md"), str(folder / "deep"), str(folder)]
        collection = open_collection(paths)
        names = Counter(collection.document(i).name for i in range(len(collection)))
        assert len(collection) == 13
        assert set(names.values()) == {1}
        best = collection.best("Where is the kingfisher?", 4)
        assert any("kingfisher" in collection.document(one.document).text for one in best[:2])
        assert len(collection.best("river", 1000)) == collection.passages

    def test_an_index_is_of_one_folder(self, folder, tmp_path):
        (tmp_path / "one.txt").write_text("A text.")
        with pytest.raises(QuothError, match="an index is of one folder"):
            open_collection([str(tmp_path / "one.txt")], index=tmp_path / "x.index")

    def test_what_is_not_there(self, folder):
        with pytest.raises(QuothError, match="none: no such file or folder"):
            open_collection([str(folder), "none"])

    def test_what_shares_no_word_comes_if_all_are_asked_for(self, folder):
        collection = open_collection([str(folder)])
        assert len(collection.best("About swans", 1000)) == collection.passages
        some = collection.best("swans", collection.passages - 1)
        assert 0 < len(some) < collection.passages - 1
        assert all(one.score > 0 for one in some)
        assert len(collection.best("Ωμέγα", 3)) == 3


def test_what_is_searched(tmp_path):
    """Endings and accents do not matter, headings and file names count, stop words do not."""
    (tmp_path / "anatomy.md").write_text(
        "# Bones\n\n" + "The femur is long. " * 40 + "\n\n# Organs\n\n" + "Livers are red. " * 40
    )
    (tmp_path / "cafe.txt").write_text("Le café est fermé. The waiter was invented by the owner.")
    (tmp_path / "empty words.txt").write_text("What is the what of the who? It is what it is, and who are you?")
    (tmp_path / "tokyo.txt").write_text("時計はハリソンが作りました。" * 3)
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text(f"Filler number {number}, and nothing else of any interest.")
    collection = open_collection([str(tmp_path)])

    def first(question):
        return Path(collection.document(collection.best(question, 1)[0].document).name).name

    assert first("What is the inventing of waiters?") == "cafe.txt"
    assert first("CAFE") == "cafe.txt"
    assert first("Which organ?") == "anatomy.md"
    assert collection.best("organ", 1)[0].heading == "Organs"
    assert first("anatomy") == "anatomy.md"
    assert first("時計は誰が作りましたか") == "tokyo.txt"
    assert first("What is who?") == "empty words.txt"


SYNTAX = ['"', "a AND b", "NEAR(x", "x*", "text:y", "^z", "-", "\0 heron", "\ud800 heron", "²", "a_b.c", "İstanbul ﬁ"]


@pytest.mark.parametrize("question", [*SYNTAX, "x" * 9000, " ".join(f"w{i}" for i in range(5000))])
def test_no_question_is_a_mistake_of_syntax(folder, question):
    assert isinstance(open_collection([str(folder)]).best(question, 5), list)

"""Nothing that Quoth did not write is replaced or removed, and a kill at any call of the system loses nothing."""

import gzip
import json
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from quoth.errors import QuothError
from quoth.files import read_json, write_json, write_text
from quoth.folders import atomic_folder, recover, remove_leftovers, strange_entry
from quoth.train.run_folder import NAMES, RunFolder

MODEL = {"quoth.json": "{}", "model.safetensors": "weights", "tokenizer.json": "{}"}


def make(folder, files=MODEL, text=""):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text or content)
    return folder


def contents(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


class TestReplacing:
    def test_a_folder_of_our_files_is_replaced(self, tmp_path):
        make(tmp_path / "m", {**MODEL, "members/0/model.safetensors": "a"})
        with atomic_folder(tmp_path / "m") as part:
            (part / "quoth.json").write_text("new")
        assert contents(tmp_path / "m") == {"quoth.json": "new"}
        assert [path.name for path in tmp_path.iterdir()] == ["m"]

    @pytest.mark.parametrize(
        "strange", ["src/thesis.txt", "thesis.txt", "members/0/thesis.txt", "members/x/quoth.json"]
    )
    def test_a_folder_with_other_files_is_not(self, tmp_path, strange):
        """`config.json` alone makes no folder ours."""
        make(tmp_path / "proj", {"config.json": "{}", strange: "x"})
        before = contents(tmp_path / "proj")
        match = r"proj: exists and is not a model folder \(.*was not written by Quoth"
        with pytest.raises(QuothError, match=match), atomic_folder(tmp_path / "proj"):
            pytest.fail("must not be written")
        assert contents(tmp_path / "proj") == before

    def test_links_are_strange(self, tmp_path):
        make(tmp_path / "other")
        make(tmp_path / "m")
        (tmp_path / "m/vocab.txt").symlink_to(tmp_path / "other/quoth.json")
        assert strange_entry(tmp_path / "m").name == "vocab.txt"

    def test_a_link_to_a_folder_stays_a_link(self, tmp_path):
        make(tmp_path / "real")
        (tmp_path / "link").symlink_to(tmp_path / "real")
        with atomic_folder(tmp_path / "link") as part:
            (part / "quoth.json").write_text("new")
        assert (tmp_path / "link").is_symlink()
        assert contents(tmp_path / "real") == {"quoth.json": "new"}

    def test_the_commands_refuse(self, cli, span_model, tmp_path):
        make(tmp_path / "proj", {"config.json": "{}", "src/thesis.txt": "x"})
        for command in (("ensemble", span_model, span_model, "--out"), ("export", span_model, "--to")):
            done = cli(*command, tmp_path / "proj")
            assert (done.returncode, done.stderr.count("\n")) == (2, 1)
            assert "src was not written by Quoth" in done.stderr
        assert (tmp_path / "proj/src/thesis.txt").read_text() == "x"


CHILD = """
import sys
from quoth import folders
from support.killing import die_at
path, limit, exchange = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
die_at(limit)
if not exchange:
    folders._exchange = lambda *_: False
with folders.atomic_folder(path) as part:
    for name in ("quoth.json", "model.safetensors", "tokenizer.json"):
        (part / name).write_text("new")
"""


@pytest.mark.slow
@pytest.mark.parametrize("exchange", [True, False])
def test_a_kill_at_any_call_loses_nothing(tmp_path, exchange):
    """The folder is the old one or the new one after each, or the next command puts the old one back."""
    seen, limit = set(), 0
    while True:
        limit += 1
        folder = make(tmp_path / str(limit) / "m", text="old")
        command = [sys.executable, "-c", CHILD, str(folder), str(limit), str(exchange)]
        places = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": places})
        assert done.returncode in (0, 9), done.stderr
        recover(folder)
        found = set(contents(folder).values())
        assert found in ({"old"}, {"new"}), limit
        assert set(contents(folder)) == set(MODEL)
        seen |= found
        remove_leftovers(folder.parent, re.compile("m"))
        assert [path.name for path in folder.parent.iterdir()] == ["m"]
        if done.returncode == 0:
            break
    assert seen == {"old", "new"}
    assert limit > 15


class TestLeftovers:
    def test_a_refused_run_removes_nothing(self, tmp_path):
        make(tmp_path, {"recipe.toml": "", ".bashrc.old": "mine", "sub/.movie.part": "mine"})
        folder = RunFolder(tmp_path)
        with folder.held(), pytest.raises(QuothError, match="another recipe"):
            folder.claim({"seed": 1}, {"seed": 2})
        with folder.held():
            folder.claim({"seed": 1}, {"seed": 1})
        assert (tmp_path / ".bashrc.old").read_text() == (tmp_path / "sub/.movie.part").read_text() == "mine"

    def test_only_what_a_run_writes_is_removed(self, tmp_path):
        ours = (".metrics.json.a1b2c3d4.part", "checkpoints/.step-00000120.abcdefgh.part/state.json")
        mine = (".thesis.txt.a1b2c3d4.part", ".metrics.json.part", "sub/.step-120.abcdefgh.part")
        make(tmp_path, dict.fromkeys((*ours, *mine), "x"))
        remove_leftovers(tmp_path, NAMES)
        assert set(contents(tmp_path)) == set(mine)

    def test_a_model_that_was_moved_away_comes_back(self, tmp_path):
        make(tmp_path / "keep-0.5/.model.abcdefgh.old", text="old")
        remove_leftovers(tmp_path, NAMES)
        assert set(contents(tmp_path / "keep-0.5/model").values()) == {"old"}


class TestOneFile:
    def test_a_link_stays_and_its_target_is_written(self, tmp_path):
        (tmp_path / "real.json").write_text("old")
        (tmp_path / "link.json").symlink_to("real.json")
        write_json(tmp_path / "link.json", [1])
        assert (tmp_path / "link.json").is_symlink()
        assert json.loads((tmp_path / "real.json").read_text()) == [1]

    def test_a_pipe_is_written_to(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        read = []
        thread = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
        thread.start()
        write_text(tmp_path / "pipe", "hello\n")
        thread.join(timeout=30)
        assert read == ["hello\n"]
        assert Path(tmp_path / "pipe").is_fifo()

    def test_a_device_is_written_to(self):
        write_text("/dev/null", "hello")
        assert Path("/dev/null").is_char_device()

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
    def test_a_full_device_is_told_by_its_name(self):
        with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
            write_text("/dev/full", "hello" * 10_000)
        assert Path("/dev/full").is_char_device()

    def test_standard_output(self, tmp_path):
        code = "from quoth.files import write_text; write_text('/dev/stdout', 'hello')"
        with (tmp_path / "out.txt").open("w") as file:
            subprocess.run([sys.executable, "-c", code], check=True, stdout=file)
        assert (tmp_path / "out.txt").read_text() == "hello"

    def test_sockets_and_folders_are_refused(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)  # the name of a socket must be short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("socket")
            with pytest.raises(QuothError, match="socket: is a socket"):
                write_text("socket", "x")
        with pytest.raises(QuothError, match="is a folder"):
            write_text(tmp_path, "x")

    def test_gz_is_compressed(self, tmp_path):
        write_json(tmp_path / "x.json.gz", {"a": 1})
        assert json.loads(gzip.decompress((tmp_path / "x.json.gz").read_bytes())) == {"a": 1}

    def test_half_a_surrogate_pair_is_kept(self, tmp_path):
        write_json(tmp_path / "x.json", {"id": "\ud800", "text": "ü"})
        assert read_json(tmp_path / "x.json") == {"id": "\ud800", "text": "ü"}

    @pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, "{", "\ud800"])
    def test_what_is_no_json_is_one_line(self, tmp_path, text):
        (tmp_path / "x.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        with pytest.raises(QuothError, match="not valid JSON") as caught:
            read_json(tmp_path / "x.json")
        assert "\n" not in str(caught.value)

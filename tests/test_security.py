"""Text, models and data that mean harm: no code of theirs runs, no escape reaches the terminal, no memory is filled."""

import gzip
import json
import os
import subprocess
import sys

import pytest

from quoth import QuothError, Reader
from quoth.cli.screen import visible
from quoth.data import read
from quoth.hub import find_model
from quoth.runtime.onnx_runner import usable_threads
from quoth.train import make_recipe

EVIL = "\x1b]0;owned\x07 \x1b[31m red \x9b31m \x7f \ud800"


def quoth(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "quoth", *map(str, arguments)],
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
        timeout=120,
    )


class TestTerminal:
    def test_every_control_character_is_seen_and_places_stay(self):
        shown = visible("a\x1b[1m\nb\tc\x9b\x7f\ud800é")
        assert shown == "a␛[1m\nb\tc�␡�é"
        assert len(visible(EVIL)) == len(EVIL)
        assert visible("plain — text\n") == "plain — text\n"

    @pytest.mark.parametrize("flags", [(), ("--json",)])
    def test_of_a_document(self, cli, tmp_path, flags):
        (tmp_path / "a.txt").write_text(f"The mill was built by \x1b[31mHale\x9b0m in 1742.{EVIL[:-1]}")
        done = cli("ask", "Who built the mill?", tmp_path / "a.txt", "--min-score", "0", *flags)
        assert done.returncode == 0
        assert not set(done.stdout + done.stderr) & set("\x1b\x9b\x07\x7f")

    def test_of_a_file_name_in_an_error(self, cli, tmp_path):
        done = cli("ask", "Who?", tmp_path / "\x1b[31mx.txt")
        assert done.returncode == 2
        assert "␛[31mx.txt: no such file" in done.stderr

    def test_of_a_dataset(self, cli, tmp_path):
        done = cli("score", f"{tmp_path}/\x1b[2J.json", tmp_path / "x.json")
        assert (done.returncode, "\x1b" in done.stderr) == (2, False)


def test_an_encoding_without_the_characters(tmp_path):
    (tmp_path / "a.txt").write_text("Das Müllerhaus in Łódź wurde 1742 gebaut — 東京.")
    for encoding in ("ascii", "latin-1"):
        done = quoth("ask", "When?", tmp_path / "a.txt", "--min-score", "0", PYTHONIOENCODING=encoding)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


def test_no_columns(tmp_path):
    (tmp_path / "a.txt").write_text("The mill was built in 1742.")
    done = quoth("inspect", COLUMNS="0")
    assert (done.returncode, len(done.stdout) > 100) == (0, True)


class TestModels:
    @pytest.mark.slow
    def test_code_in_a_folder_does_not_run_and_nothing_is_asked(self, tmp_path):
        (tmp_path / "evil.py").write_text("open('owned', 'w'); from transformers import PretrainedConfig as Evil")
        (tmp_path / "config.json").write_text(
            json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}})
        )
        (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
        (tmp_path / "tokenizer.json").write_text((find_model(None).tokenizer[0]).read_text())
        done = subprocess.run(
            [sys.executable, "-m", "quoth", "ask", "Who?", "-", "--model", str(tmp_path)],
            input=b"y\ny\nBob did.\n", capture_output=True, cwd=tmp_path, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 2
        assert done.stderr.decode().strip().startswith(f"quoth: {tmp_path}: transformers cannot load it")
        assert b"[y/N]" not in done.stdout + done.stderr
        assert not (tmp_path / "owned").exists()

    @pytest.mark.parametrize("shard", ["/etc/passwd", "../outside.safetensors", "a/../../b", "", "C:/x", "..\\x"])
    def test_shards_lie_inside_the_folder(self, tmp_path, shard):
        (tmp_path / "outside.safetensors").write_bytes(b"")
        folder = tmp_path / "model"
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": shard}}))
        with pytest.raises(QuothError, match="does not lie inside the folder of the model"):
            find_model(folder)

    @pytest.mark.parametrize(
        "index", [None, 3, [], {}, {"weight_map": 3}, {"weight_map": {"w": 3}}, {"weight_map": {}}]
    )
    def test_an_index_of_another_type(self, tmp_path, index):
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(QuothError, match="weight_map must be an object"):
            find_model(tmp_path)


class TestMemory:
    def test_a_small_file_that_inflates(self, tmp_path, monkeypatch):
        monkeypatch.setenv("QUOTH_MAX_BYTES", "100000")
        (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b" " * 10_000_000))
        with pytest.raises(QuothError, match="holds more than 100,000 bytes; set QUOTH_MAX_BYTES"):
            read(str(tmp_path / "bomb.json.gz"))

    def test_a_text_without_end(self, cli, monkeypatch):
        monkeypatch.setenv("QUOTH_MAX_BYTES", "100000")
        done = cli("ask", "Who?", "/dev/zero")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "/dev/zero: holds more than 100,000 bytes" in done.stderr

    @pytest.mark.parametrize("limit", ["x", "-1", "0", "²", "1e9"])
    def test_a_limit_that_is_none(self, monkeypatch, tmp_path, limit):
        (tmp_path / "a.json").write_text("{}")
        monkeypatch.setenv("QUOTH_MAX_BYTES", limit)
        with pytest.raises(QuothError, match="give a whole number of bytes"):
            read(str(tmp_path / "a.json"))


class TestReader:
    """What transformers' pipeline took is taken; the rest is one clear error."""

    @pytest.fixture(scope="class")
    def reader(self):
        return Reader.load()

    def test_two_texts_generators_and_batch_sizes(self, reader):
        wanted = reader(question="Who wrote it?", context="Plutarch wrote it.")
        assert reader("Who wrote it?", "Plutarch wrote it.") == wanted
        many = [{"question": "Who wrote it?", "context": "Plutarch wrote it."}] * 2
        assert reader(one for one in many) == reader(many, batch_size=8, num_workers=2) == [wanted] * 2

    def test_mistakes(self, reader):
        for call in (
            lambda: reader.find("Where?", "a string"),
            lambda: reader(question=3, context="x"),
            lambda: reader(question="Who?", context="x", top_k="3"),
            lambda: reader(question="Who?", context="x", max_answer_len="3"),
            lambda: reader(question="Who?", context="x", doc_stride="3"),
            lambda: reader(question="Who?", context="x", max_seq_len=1.5),
            lambda: reader([{"question": "Who?", "context": "x"}], batch_size=0),
            lambda: reader(3),
            lambda: reader("Who?"),
        ):
            with pytest.raises(QuothError):
                call()


def test_probabilities_of_no_answer(cli, tmp_path):
    """`answer --na-probs` writes what `score --na-probs` reads: probabilities."""
    rows = [
        {"id": str(i), "question": "Who wrote it?", "context": text, "answer": ""}
        for i, text in enumerate(("Bob did.", "x"))
    ]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = cli("answer", tmp_path / "d.jsonl", "--out", tmp_path / "p.json", "--na-probs", tmp_path / "n.json.gz")
    assert done.returncode == 0, done.stderr
    found = json.loads(gzip.decompress((tmp_path / "n.json.gz").read_bytes()))
    assert all(0 <= value <= 1 for value in found.values())
    assert len(found) == 2


class TestAbsurdNumbers:
    @pytest.mark.parametrize("threads", ["²", "100000", "-1", "x"])
    def test_threads(self, monkeypatch, threads):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        assert 1 <= usable_threads() <= max(64, os.cpu_count() or 1)

    def test_answers(self, cli, tmp_path):
        (tmp_path / "a.txt").write_text("Bob did.")
        done = cli("ask", "Who?", tmp_path / "a.txt", "--top", "999999999")
        assert done.returncode == 2
        assert "Invalid value for '--top'" in done.stderr

    def test_epochs(self):
        with pytest.raises(QuothError, match=r"optimisation.epochs is 1e\+300; it must be at most 10,000"):
            make_recipe({"model": "m", "data": {"train": "t"}, "optimisation": {"epochs": 1e300}})

    def test_an_ensemble_that_is_its_own_member(self, tmp_path):
        for name in ("./.", ".", "", "a/.."):
            (tmp_path / "quoth.json").write_text(
                json.dumps({"format": 1, "ensemble": {"how": "max", "members": [name]}})
            )
            with pytest.raises(QuothError, match="does not lie inside the folder of the ensemble"):
                find_model(tmp_path)


def test_a_reader_leaves_nothing_in_the_cache_folder(tmp_path):
    """onnxruntime's telemetry would write an identifier of the device there."""
    code = "from quoth import Reader; Reader.load()('Where?', 'It is here.')"
    settings = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    place = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], env=settings | place, check=True, timeout=120)
    assert not list(tmp_path.rglob("*"))

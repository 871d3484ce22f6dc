"""Files that are not what they say: absurd sizes, wrong types, deep nesting, pipes. Each is one line and no harm."""

import json
import os
import shutil
import subprocess
import sys
import threading
import tracemalloc

import onnx
import pytest

from quoth import QuothError, Reader
from quoth.config import read_table, set_key
from quoth.embedded import embedded_folder
from quoth.encoder import Shape
from quoth.encoder.families import FAMILIES, family_of
from quoth.files import read_json, write_text
from quoth.limits import nested_deeply, open_bytes, within
from quoth.model import open_checkpoint
from quoth.model.checkpoint import Tensor
from quoth.model.weights import read_tensors
from quoth.runtime.onnx_runner import OnnxRunner
from quoth.train import make_recipe
from quoth.train.log import Log


def one_line(call, *words):
    """The call is refused in one line, with these words, and takes little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(QuothError) as caught:
            call()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 1000
    assert all(word in text for word in words), text
    assert most < 50e6
    return text


DEEP = {
    "a list": "x = " + "[" * 100_000,
    "a list that ends": "x = " + "[" * 200 + "]" * 200,
    "tables": "x = " + "{a = " * 50_000,
    "dotted keys": ".".join("a" * 5000) + " = 1",
    "dotted keys with spaces": " . ".join("a" * 50_000) + " = 1",
    "a table's name": f"[{'.'.join('a' * 5000)}]",
}


class TestRecipes:
    @pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
    def test_deep_nesting(self, tmp_path, text):
        (tmp_path / "r.toml").write_text(text)
        one_line(lambda: make_recipe(read_table(tmp_path / "r.toml")), "r.toml: not valid TOML", "nested too deeply")

    def test_long_numbers(self, tmp_path):
        (tmp_path / "r.toml").write_text("seed = " + "1" * 5000)
        one_line(lambda: read_table(tmp_path / "r.toml"), "r.toml: not valid TOML")
        (tmp_path / "r.toml").write_text(
            "data.train = 't'\nmodel = 0x" + "f" * 5000
        )  # which Python reads and does not write
        one_line(lambda: make_recipe(read_table(tmp_path / "r.toml")), "model is a number of 20000 bits")
        table = {"model": "m", "data": {"train": "t"}, "optimisation": {"epochs": 10**400}}
        one_line(lambda: make_recipe(table), "optimisation.epochs is a number of")

    def test_size(self, tmp_path):
        (tmp_path / "r.toml").write_text("#" * 2_000_000)
        one_line(lambda: read_table(tmp_path / "r.toml"), "r.toml: holds more than 1,048,576 bytes")
        (tmp_path / "r.toml").write_text("#" * 1_000_000 + "\nx = 'a. b. c. …'\n# " + "." * 1000 + "\n")
        assert read_table(tmp_path / "r.toml") == {"x": "a. b. c. …"}

    @pytest.mark.parametrize("text", ["x=" + "[" * 100_000, "x=" + "1" * 5000, ".".join("a" * 5000) + "=1", "a" * 5000])
    def test_overrides(self, text):
        one_line(lambda: set_key({}, text))

    def test_json_too(self, tmp_path):
        (tmp_path / "x.json").write_text("[" * 300 + "]" * 300)  # Python itself reads that
        one_line(lambda: read_json(tmp_path / "x.json"), "nested too deeply")
        assert not nested_deeply([[{"a": [1, "x", None]}]])
        assert not nested_deeply(3)


BERT = {
    "model_type": "bert",
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
ABSURD = [
    {"num_hidden_layers": 10**9},
    {"num_hidden_layers": -1},
    {"num_hidden_layers": 0},
    {"num_hidden_layers": 2.0},
    {"hidden_size": 10**12},
    {"hidden_size": -8},
    {"hidden_size": "8"},
    {"hidden_size": True},
    {"hidden_size": [8]},
    {"num_attention_heads": 0},
    {"intermediate_size": 10**300},
    {"vocab_size": 2**40},
    {"max_position_embeddings": 2**40},
    {"type_vocab_size": -1},
    {"hidden_act": ["gelu"]},
    {"hidden_act": None},
    {"layer_norm_eps": "x"},
    {"layer_norm_eps": -1.0},
    {"hidden_dropout_prob": 7},
    {"hidden_dropout_prob": {}},
]


class TestSizes:
    @pytest.mark.parametrize("change", ABSURD, ids=str)
    def test_of_a_config(self, change):
        def make():
            family = family_of("bert", "x")
            return family.shape({**BERT, **change}), family.style({**BERT, **change})

        one_line(make)

    def test_of_other_families(self):
        albert = {**BERT, "embedding_size": "x"}
        one_line(lambda: FAMILIES["albert"].shape(albert), "embedding is 'x'")
        for odd in (None, "x", -5, 10**12, [1]):
            one_line(lambda odd=odd: FAMILIES["roberta"].style({**BERT, "pad_token_id": odd}), "pad_token_id")
        one_line(lambda: family_of(["bert"], "x"), "unknown family")

    @pytest.mark.parametrize(
        "change", [{"hidden": 10**12}, {"vocab": 1.5}, {"layers": [{"heads": 10**9}]}, {"layers": {}}]
    )
    def test_of_a_shape(self, change):
        value = Shape.uniform(layers=1, hidden=8, heads=2).to_json()
        if isinstance(change.get("layers"), list):
            change = {"layers": [{**value["layers"][0], **change["layers"][0]}]}
        one_line(lambda: Shape.from_json({**value, **change}))

    @pytest.mark.parametrize("change", [*ABSURD, {"model_type": ["bert"]}, {"architectures": 3}], ids=str)
    def test_of_a_folder(self, tmp_path, change):
        (tmp_path / "config.json").write_text(json.dumps({**BERT, **change}))
        (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
        (tmp_path / "tokenizer.json").write_text("{}")
        if change == {"architectures": 3}:
            open_checkpoint(tmp_path)
        else:
            one_line(lambda: open_checkpoint(tmp_path), str(tmp_path))

    @pytest.mark.parametrize("text", ["null", "[]", "3", '"x"', "{}", '{"format": 1}', '{"format": 1, "windows": 3}'])
    def test_a_description_of_another_type(self, tmp_path, text):
        for name in ("model.onnx", "model.onnx.data", "tokenizer.json"):
            shutil.copyfile(embedded_folder() / name, tmp_path / name)
        (tmp_path / "quoth.json").write_text(text)
        if text in ("{}", '{"format": 1}'):  # an exported model needs nothing more to answer
            assert Reader.load(tmp_path)("Who?", "Bob did.")["answer"]
        else:
            one_line(lambda: Reader.load(tmp_path), "quoth.json")


def header(value, data=bytes(16), length=None):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(**changes):
    return {"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16], **changes}}


HEADERS = {
    "short offsets": header(tensor(data_offsets=[0])),
    "no offsets": header(tensor(data_offsets=None)),
    "negative": header(tensor(data_offsets=[-16, 0])),
    "turned round": header(tensor(data_offsets=[16, 0])),
    "beyond": header(tensor(data_offsets=[0, 10**15])),
    "overlapping": header({**tensor(), "v": tensor()["w"]}),
    "a gap": header(tensor(), bytes(64)),
    "no shape": header({"w": {"dtype": "F32", "data_offsets": [0, 16]}}),
    "an absurd shape": header(tensor(shape=[2**40, 2**40])),
    "a negative shape": header(tensor(shape=[-2, -2])),
    "another type": header(tensor(dtype="X9")),
    "deep nesting": header(b'{"w":' + b"[" * 100_000),
    "deep metadata": header(b'{"__metadata__":{"a":' + b"[" * 500 + b"]" * 500 + b"}}"),
    "an absurd length": header(tensor(), length=2**62),
    "the longest length": header(tensor(), length=2**64 - 1),
    "no length": header(tensor(), length=0),
    "a list": header([]),
    "null": header(None),
    "not UTF-8": header(b'{"\xff": 1}'),
    "a long number": header(b'{"w": ' + b"1" * 5000 + b"}"),
    "nothing": b"",
    "seven bytes": b"1234567",
}


@pytest.mark.parametrize("data", HEADERS.values(), ids=HEADERS)
def test_headers_of_weights(tmp_path, data):
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    (tmp_path / "model.safetensors").write_bytes(data)
    one_line(lambda: open_checkpoint(tmp_path), "model.safetensors: not a safetensors file, or truncated or damaged")


def test_weights_of_other_types(tmp_path):
    """A format of 8 or 4 bits, or a thousand dimensions, is nothing that torch can check for NaN."""
    path = tmp_path / "model.safetensors"
    for dtype, size in (("F8_E4M3", 1), ("F4", None), ("I64", 8), ("BOOL", 1), ("C64", 8)):
        data = bytes(4 * size) if size else bytes(2)
        path.write_bytes(header({"w": {"dtype": dtype, "shape": [4], "data_offsets": [0, len(data)]}}, data))
        stored = {"w": Tensor(path, "w", (4,), dtype)}
        one_line(lambda stored=stored: read_tensors(stored), f"w: holds {dtype}, not floating-point numbers")
    path.write_bytes(header({"w": {"dtype": "F32", "shape": [1] * 1000, "data_offsets": [0, 4]}}, bytes(4)))
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    one_line(lambda: open_checkpoint(tmp_path), "tensor w has 1000 dimensions")


def with_metadata(folder, value):
    """The embedded reader with other metadata; None removes it."""
    for name in ("model.onnx.data", "quoth.json", "tokenizer.json"):
        shutil.copyfile(embedded_folder() / name, folder / name)
    graph = onnx.load(embedded_folder() / "model.onnx", load_external_data=False)
    entry = next(entry for entry in graph.metadata_props if entry.key == "quoth")
    entry.value = value(json.loads(entry.value)) if callable(value) else value
    onnx.save(graph, folder / "model.onnx")
    return folder


METADATA = {
    "not JSON": "hello",
    "nothing": "",
    "deep": "[" * 100_000,
    "null": "null",
    "a list": "[]",
    "a number": "3",
    "empty": "{}",
    **{
        f"{key} is {odd!r}": lambda facts, key=key, odd=odd: json.dumps({**facts, key: odd})
        for key, odds in {
            "task": ["no", 3, None, ["span"]],
            "how": ["no", 3, ["max"]],
            "longest": [-1, 0, "x", None, 1.5],
            "vocab": [0, "x", None],
            "types": ["x", None, []],
            "parameters": ["x", None],
            "shapes": [3, None, [3], [{}], {}],
        }.items()
        for odd in odds
    },
}


@pytest.mark.parametrize("value", METADATA.values(), ids=METADATA)
def test_metadata_of_onnx(tmp_path, value):
    folder = with_metadata(tmp_path, value)
    one_line(lambda: OnnxRunner(folder / "model.onnx"), "model.onnx")


def test_the_same_metadata_is_read(tmp_path):
    assert OnnxRunner(with_metadata(tmp_path, json.dumps) / "model.onnx").task == "span"


def test_a_log_that_is_not_text(tmp_path):
    good = b'{"step": 5}\n{"step": 10}\n'
    for bad in (b"\xff\xfe\n", b"[" * 100_000 + b"\n", b'{"step": "x"}\n', b'{"step"', b"null\n"):
        (tmp_path / "log.jsonl").write_bytes(good + bad + b'{"step": 15}\n')
        Log(tmp_path, 20)
        assert (tmp_path / "log.jsonl").read_bytes() == good


class TestPipes:
    def test_nobody_writes(self, tmp_path, monkeypatch, cli):
        monkeypatch.setattr("quoth.limits.WAIT", 0.2)
        os.mkfifo(tmp_path / "pipe")
        for command in (("ask", "Who?"), ("score", tmp_path / "x.json"), ("inspect",)):
            done = cli(*command, tmp_path / "pipe")
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "is a pipe that nobody writes to" in cli("ask", "Who?", tmp_path / "pipe").stderr

    def test_nobody_reads(self, tmp_path, monkeypatch):
        monkeypatch.setattr("quoth.limits.WAIT", 0.2)
        os.mkfifo(tmp_path / "pipe")
        one_line(lambda: write_text(tmp_path / "pipe", "x"), "is a pipe that nobody reads from")

    def test_no_thread_is_left(self, tmp_path, monkeypatch):
        monkeypatch.setattr("quoth.limits.WAIT", 0.1)
        before = set(threading.enumerate())
        for mode in ("rb", "wb"):
            os.mkfifo(tmp_path / mode)
            one_line(lambda mode=mode: open_bytes(tmp_path / mode, mode))
        for thread in set(threading.enumerate()) - before:
            thread.join(timeout=10)
            assert not thread.is_alive()

    def test_somebody_writes_later_and_slowly(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        slow = f"sleep 0.3; (echo 'Bob'; sleep 0.3; echo 'did.') > {tmp_path}/pipe"
        with subprocess.Popen(["sh", "-c", slow]), open_bytes(tmp_path / "pipe") as file:
            assert file.read() == b"Bob\ndid.\n"

    @pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
    @pytest.mark.parametrize("command", ["echo 'Bob did it.'", "sleep 1; echo 'Bob did it.'"])
    def test_process_substitution(self, command):
        line = f"{sys.executable} -m quoth ask 'Who did it?' <({command}) --min-score 0"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout.splitlines()[:1]) == (0, ["Bob"]), done.stderr

    def test_within(self):
        assert within(10, lambda: 3, "late") == 3
        with pytest.raises(KeyError):
            within(10, lambda: {}["x"], "late")
        with pytest.raises(QuothError, match="late"):
            within(0.05, threading.Event().wait, "late")


def test_absurd_threads():
    """OMP_NUM_THREADS is bounded before onnxruntime sees it."""
    line = [sys.executable, "-m", "quoth", "ask", "Who did it?", "-", "--min-score", "0"]
    for threads in ("100000", "²", "-3"):
        environment = {**os.environ, "OMP_NUM_THREADS": threads}
        done = subprocess.run(line, input=b"Bob did it.", capture_output=True, env=environment, timeout=120)
        assert (done.returncode, done.stdout[:3]) == (0, b"Bob"), done.stderr

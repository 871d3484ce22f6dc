"""`OnnxRunner` and readers on it: without torch, with torch's answers, and with errors of one line."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoth import QuothError, Reader
from quoth.data import read
from quoth.export.export import export
from quoth.model.loading import load
from quoth.runtime.onnx_runner import OnnxRunner, group_by_length, usable_threads
from quoth.runtime.torch_runner import TorchRunner
from quoth.windows.packed import pack
from support.exporting import close, make_folder, shape, torch_logits, windows

ASKED = json.loads((Path(__file__).parents[1] / "fixtures/questions.json").read_text())
PAIRS = [(ASKED["questions"][q], ASKED["passages"][p]) for p, q in ASKED["pairs"]][::17]

WITHOUT_TORCH = """
import json, sys
for name in ("torch", "transformers", "safetensors", "accelerate", "onnx"):
    sys.modules[name] = None            # importing it is an ImportError from here on
from quoth import Reader
reader = Reader.load(sys.argv[1])
pairs = json.loads(sys.stdin.read())
found = reader(question=[q for q, _ in pairs], context=[c for _, c in pairs], handle_impossible_answer=True)
print(json.dumps({"answers": found, "runner": type(reader.runner).__name__, "torch": bool(sys.modules["torch"])}))
"""


def without_torch(folder, pairs):
    command = [sys.executable, "-c", WITHOUT_TORCH, str(folder)]
    result = subprocess.run(command, input=json.dumps(pairs), capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["runner"] == "OnnxRunner"
    assert not found["torch"]
    return found["answers"]


@pytest.fixture(scope="module")
def expected(span_model):
    reader = Reader.load(span_model, device="cpu", precision="fp32")
    return reader(question=[q for q, _ in PAIRS], context=[c for _, c in PAIRS], handle_impossible_answer=True)


def same_answers(found, expected):
    spans = [[(answer["start"], answer["end"], answer["answer"]) for answer in side] for side in (found, expected)]
    assert spans[0] == spans[1]
    assert [a["score"] for a in found] == pytest.approx([a["score"] for a in expected], rel=1e-3, abs=1e-6)


def test_without_torch_the_same_answers(exported, expected):
    same_answers(without_torch(exported, PAIRS), expected)


def test_a_folder_with_both_is_run_by_what_is_there(exported, span_model, expected, tmp_path):
    both = tmp_path / "both"
    shutil.copytree(span_model, both)
    for path in exported.glob("model.onnx*"):
        os.link(path, both / path.name)
    assert isinstance(Reader.load(both, device="cpu").runner, TorchRunner)
    same_answers(without_torch(both, PAIRS[:3]), expected[:3])


def test_limits_and_costs_are_those_of_torch(exported, span_model):
    onnx_reader, torch_reader = Reader.load(exported), Reader.load(span_model, device="cpu")
    assert isinstance(onnx_reader.runner, OnnxRunner)
    for name in ("longest", "parameters"):
        assert getattr(onnx_reader.runner, name) == getattr(torch_reader.runner, name)
    assert onnx_reader.runner.flops(123) == torch_reader.runner.flops(123)
    assert (onnx_reader.max_length, onnx_reader.step) == (torch_reader.max_length, torch_reader.step)
    assert onnx_reader.max_query_length == torch_reader.max_query_length


@pytest.mark.slow
def test_validation_questions_of_squad_get_the_same_answers(exported, span_model, tmp_path):
    if "QUOTH_SHARED" not in os.environ:
        pytest.skip("QUOTH_SHARED is not set, the folder with data/squad/validation.json.gz")
    path = Path(os.environ["QUOTH_SHARED"]) / "data/squad/validation.json.gz"
    whole = json.loads(gzip.decompress(path.read_bytes()))
    for article in whole["data"]:
        article["paragraphs"] = [{**p, "qas": p["qas"][:2]} for p in article["paragraphs"][:3]]
    (tmp_path / "some.json").write_text(json.dumps(whole))
    questions = read(tmp_path / "some.json").questions
    assert len(questions) >= 24
    found, expected = (Reader.load(model, device="cpu").decode(questions) for model in (exported, span_model))
    assert found.predictions(0.0) == expected.predictions(0.0)
    np.testing.assert_allclose(found.null, expected.null, atol=1e-3)


class TestGroups:
    @given(st.lists(st.integers(1, 512), min_size=1, max_size=60), st.integers(1, 4096))
    def test_each_window_once_equal_in_length_within_the_budget(self, lengths, budget):
        sizes = np.array(lengths)
        groups = group_by_length(sizes, budget)
        assert sorted(np.concatenate(groups).tolist()) == list(range(len(lengths)))
        for group in groups:
            assert len(set(sizes[group])) == 1
            assert len(group) == 1 or sizes[group].sum() <= budget

    @given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(1, 40))
    def test_no_two_groups_could_be_one_and_the_longest_come_first(self, lengths, budget):
        sizes = np.array(lengths)
        groups = group_by_length(sizes, budget)
        first = [int(sizes[group[0]]) for group in groups]
        assert first == sorted(first, reverse=True)
        for length in set(lengths):
            counts = [len(group) for group, own in zip(groups, first) if own == length]
            assert len(counts) == -(-sum(counts) // max(1, budget // length))

    @pytest.mark.parametrize("threads", [1, 2, 3, 16])
    def test_results_do_not_depend_on_rectangles_and_threads(self, folder, threads):
        packed = windows((3, 40, 39, 3, 1, 40, 20, 36, 20, 20, 40))
        wanted = torch_logits(load(folder.parent / "m").eval(), packed)
        runner = OnnxRunner(folder / "model.onnx", threads=threads)
        for runner.rectangle in (1, 50, 100, 4096):
            close(runner.member_logits(packed)[0], wanted)

    def test_side_by_side_only_if_all_cores_are_busy(self, folder):
        runner = OnnxRunner(folder / "model.onnx", threads=2)
        for lengths in ((40,), (40, 20)):
            runner(windows(lengths))
            assert runner._single is None
        runner(windows((40, 20, 20)))
        assert runner._single.get_session_options().intra_op_num_threads == 1
        assert runner.session.get_session_options().intra_op_num_threads == 2

    def test_threads(self, monkeypatch):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        assert usable_threads() == len(os.sched_getaffinity(0))
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        assert usable_threads() == 3
        monkeypatch.setenv("OMP_NUM_THREADS", "many")
        assert usable_threads() == len(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("refused")
    make_folder(place / "m", shape(), {"kind": "span"})
    export(place / "m", place / "onnx")
    return place / "onnx"


class TestRefused:
    @pytest.mark.parametrize(
        ("ids", "types", "culprit"),
        [
            ([], None, "no windows"),
            ([[5], []], None, "window 1 is empty"),
            ([[5], [5] * 41], None, "window 1 has 41 tokens, but this model reads at most 40"),
            ([[5, 97]], None, "token id 97 is outside its table, which has 97"),
            ([[5, -1]], None, "token id -1"),
            ([[5, 6]], [[0, 2]], "token type 2 is outside its table, which has 2"),
        ],
    )
    def test_windows_that_the_tables_cannot_embed(self, folder, ids, types, culprit):
        with pytest.raises(QuothError, match=culprit):
            OnnxRunner(folder / "model.onnx")(pack(ids, types))

    def test_no_file(self, tmp_path):
        with pytest.raises(QuothError, match=r"model.onnx: no such file; make it with `quoth export`"):
            OnnxRunner(tmp_path / "model.onnx")

    def test_a_damaged_file(self, folder, tmp_path):
        (tmp_path / "model.onnx").write_bytes((folder / "model.onnx").read_bytes()[:1000])
        with pytest.raises(QuothError, match="not an ONNX file that can be run"):
            OnnxRunner(tmp_path / "model.onnx")

    def test_a_file_without_its_data(self, folder, tmp_path):
        shutil.copyfile(folder / "model.onnx", tmp_path / "model.onnx")
        assert (folder / "model.onnx.data").is_file()
        with pytest.raises(QuothError, match=r"model\.onnx\.data"):
            OnnxRunner(tmp_path / "model.onnx")

    def test_a_file_of_another_program(self, folder, tmp_path):
        other = onnx.load(folder / "model.onnx")
        del other.metadata_props[:]
        onnx.save(other, tmp_path / "model.onnx")
        with pytest.raises(QuothError, match="was not written by Quoth"):
            OnnxRunner(tmp_path / "model.onnx")

    def test_a_file_of_an_older_quoth_which_had_padding(self, folder, tmp_path):
        older = onnx.load(folder / "model.onnx")
        older.graph.input.append(onnx.helper.make_tensor_value_info("attention_mask", 7, ["batch", "length"]))
        onnx.save(older, tmp_path / "model.onnx")
        with pytest.raises(QuothError) as caught:
            OnnxRunner(tmp_path / "model.onnx")
        line = "was exported by an older Quoth; export the model again"
        assert str(caught.value) == f"{tmp_path / 'model.onnx'}: {line}"

    def test_a_device(self, exported):
        for settings in ({"device": "cuda"}, {"precision": "bf16"}):
            with pytest.raises(QuothError, match="leave out device and precision"):
                Reader.load(exported, **settings)

    def test_a_head_for_classes(self, tmp_path, minilm):
        make_folder(tmp_path / "m", shape(), {"kind": "class", "labels": 2})
        export(tmp_path / "m", tmp_path / "onnx")
        shutil.copyfile(minilm / "tokenizer.json", tmp_path / "onnx/tokenizer.json")
        with pytest.raises(QuothError, match="has no span head"):
            Reader.load(tmp_path / "onnx")

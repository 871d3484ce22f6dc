"""Exported models give torch's logits: every kind of shape, tunings, ensembles, windows alone and in batches."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper

from quoth import QuothError
from quoth.encoder.graph import ONNXRUNTIME, Graph
from quoth.encoder.shape import LayerShape
from quoth.encoder.style import Style
from quoth.export.export import export
from quoth.export.graph import IR, OPSET, onnx_nodes
from quoth.model import apply
from quoth.model.loading import load
from quoth.model.saving import save
from quoth.model.tuned import trained
from quoth.runtime.ensemble import load_ensemble, save_ensemble
from quoth.runtime.onnx_runner import OnnxRunner
from quoth.tune.adapters import Adapters
from quoth.tune.lora import LoRA
from support.exporting import (
    RECTANGLES,
    close,
    make_folder,
    random_model,
    shape,
    torch_logits,
    widen,
    windows,
    with_tokenizer,
)

SHAPES = {
    "plain": {"layers": (LayerShape(3, 8, 8, 40),) * 3},
    "irregular": {},
    "tied, with projection": {"layers": (LayerShape(3, 8, 8, 40),) * 3, "tied": True, "embedding": 10},
    "projection of the same size": {"projection": True},
    "no types": {"types": 0},
    "shared relative biases": {"layers": (LayerShape(3, 8, 8, 40),) * 3, "types": 0, "relative_buckets": 32},
    "relative biases of each layer": {"relative_buckets": 32, "relative_per_layer": True},
    "relative biases, tied": {"layers": (LayerShape(3, 8, 8, 40),) * 3, "tied": True, "relative_buckets": 32},
    "key and value differ": {
        "layers": (LayerShape(1, 5, 1, 9), LayerShape(2, 24, 16, 40), LayerShape(3, 8, 32, 40), LayerShape(1, 1, 7, 8))
    },
}
STYLES = {
    "plain": Style(eps=1e-5, first_position=2, activation="gelu_tanh"),
    "irregular": Style(activation="relu"),
    "shared relative biases": Style(first_position=2),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("head", [{"kind": "span"}, "compress(8) > cnn(NxN) > linear"], ids=str)
def test_shapes_at_lengths_of_8_to_512(tmp_path, name, head):
    style = STYLES.get(name, Style())
    model = make_folder(
        tmp_path / "m", shape(**{**SHAPES[name], "positions": 512 + style.first_position}), head, style=style
    )
    export(tmp_path / "m", tmp_path / "onnx")
    runner = OnnxRunner(tmp_path / "onnx/model.onnx")
    assert runner.longest == 512
    assert runner.flops(100) == 100 * model.encoder.shape.flops(100)
    packed = windows((8, 512, 9, 100, 470, 9, 100, 8, 512), types=model.encoder.shape.types)
    for runner.rectangle in RECTANGLES:
        close(runner.member_logits(packed)[0], torch_logits(model, packed))


@pytest.mark.parametrize("head", ["linear", "cnn(NxN) > linear", {"kind": "cacnn", "context": "simple"}], ids=str)
def test_the_inputs_are_a_batch_of_equal_windows_and_nothing_else(tmp_path, head):
    model = make_folder(tmp_path / "m", shape(), head)
    export(tmp_path / "m", tmp_path / "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "onnx/model.onnx")
    packed = windows((30, 30, 30))
    wanted = torch_logits(model, packed).reshape(2, 1, 3, 30)
    ids, types = (values.reshape(3, 30).astype(np.int64) for values in (packed.ids, packed.types))
    for rows in (slice(0, 3), slice(1, 2)):  # a window's logits do not depend on what lies beside it
        outputs = session.run(["start", "end"], {"input_ids": ids[rows], "token_type_ids": types[rows]})
        close(np.stack(outputs), wanted[:, :, rows])


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("heads", "key", "value"), [(1, 1, 1), (1, 5, 1), (3, 24, 16), (2, 16, 24), (7, 33, 5)])
def test_attention_as_onnxruntime_computes_it(heads, key, value, biased):
    """Its operator against the formula, also where a value is not as long as a key."""
    g = Graph()
    g.output("y", g.attention("q", "k", "v", heads, "bias" if biased else ""))
    given = {name: ["batch", "length", None] for name in "qkv"} | ({"bias": [1, heads, None, None]} if biased else {})
    facts = helper.make_graph(
        onnx_nodes(g),
        "attention",
        [helper.make_tensor_value_info(name, 1, sizes) for name, sizes in given.items()],
        [helper.make_tensor_value_info("y", 1, None)],
    )
    domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(ONNXRUNTIME, 1)]
    made = helper.make_model(facts, opset_imports=domains, ir_version=IR)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    for batch, length in ((1, 1), (3, 8), (2, 37), (1, 512)):
        q, k, v = (torch.randn(batch, length, heads, size) * 2 for size in (key, key, value))
        bias = torch.randn(1, heads, length, length) * biased
        inputs = {name: part.flatten(2).numpy() for name, part in zip("qkv", (q, k, v))} | {"bias": bias.numpy()}
        (found,) = session.run(None, {name: inputs[name] for name in given})
        weights = (torch.einsum("bqad,bkad->baqk", q, k) / key**0.5 + bias).softmax(-1)
        close(found, torch.einsum("baqk,bkav->bqav", weights, v).flatten(2).numpy())


@pytest.mark.parametrize("tuning", [Adapters(5), LoRA(3, targets=("query", "output", "up"))], ids=lambda t: t.kind)
@pytest.mark.parametrize("tied", [False, True])
def test_tunings(tmp_path, tuning, tied):
    layers = (LayerShape(3, 8, 8, 40),) * 2
    base = random_model(shape(layers, tied=tied), {"kind": "span"})
    save(base, tmp_path / "base")
    model = apply(load(tmp_path / "base"), tuning)
    widen(model, trained(model))
    save(model.eval(), tmp_path / "m")
    export(tmp_path / "m", tmp_path / "onnx")
    runner = OnnxRunner(tmp_path / "onnx/model.onnx")
    close(np.stack(runner(windows())), torch_logits(model, windows()))
    plain = sum(value.numel() for value in base.parameters())
    assert runner.parameters == (plain if tuning.kind == "lora" else sum(v.numel() for v in model.parameters()))


def test_tied_layers_are_stored_once(tmp_path):
    layers = (LayerShape(4, 16, 16, 256),) * 4
    sizes = []
    for tied in (True, False):
        make_folder(tmp_path / "m", shape(layers, hidden=64, embedding=64, tied=tied), {"kind": "span"})
        sizes.append(export(tmp_path / "m", tmp_path / "onnx").bytes)
    one_layer = 4 * (4 * 64 * 64 + 2 * 64 * 256)
    assert sizes[1] - sizes[0] == pytest.approx(3 * one_layer, rel=0.05)


class TestEnsembles:
    @pytest.fixture
    def parts(self, tmp_path, minilm):
        """Two heads on one encoder, and another model."""
        small = shape(vocab=30522)
        for name, head, seed in (("a", {"kind": "span"}, 0), ("b", "cnn(NxN) > linear", 0), ("c", "attend(dot)", 1)):
            make_folder(tmp_path / name, small, head, seed=seed)
            with_tokenizer(tmp_path / name, minilm)
        one, other = load(tmp_path / "a"), load(tmp_path / "b")
        other.encoder.load_state_dict(one.encoder.state_dict())
        save(other, tmp_path / "b")
        return tmp_path

    @pytest.mark.parametrize("names", ["ab", "ca", "abc"])
    @pytest.mark.parametrize("how", ["max", "sum"])
    def test_members_and_what_they_give_together(self, parts, names, how):
        save_ensemble([parts / name for name in names], parts / "all", how)
        export(parts / "all", parts / "onnx")
        runner, expected = OnnxRunner(parts / "onnx/model.onnx"), load_ensemble(parts / "all", "cpu", "fp32")
        for runner.rectangle in RECTANGLES:
            close(runner.member_logits(windows()), expected.member_logits(windows()))
            close(np.stack(runner(windows())), np.stack(expected(windows())))
        assert runner.parameters == expected.parameters
        assert runner.flops(30) == expected.flops(30)
        heads = json.loads((parts / "onnx/quoth.json").read_text())["heads"]
        assert [head["kind"] for head in heads] == [{"a": "span"}.get(name, "chain") for name in names]

    def test_one_encoder_is_stored_once(self, parts):
        save_ensemble([parts / "a", parts / "b"], parts / "all")
        alone, both = export(parts / "a", parts / "o1"), export(parts / "all", parts / "o2")
        head = sum(value.numel() for value in load(parts / "b").head.parameters())
        assert both.bytes - alone.bytes < 4 * head + 30_000


class TestRefused:
    @pytest.fixture
    def model(self, tmp_path):
        make_folder(tmp_path / "m", shape(), {"kind": "span"})
        return tmp_path / "m"

    def left(self, tmp_path):
        return sorted(path.name for path in tmp_path.iterdir())

    def test_a_graph_that_computes_something_else(self, tmp_path, model, monkeypatch):
        monkeypatch.setattr(Graph, "activate", lambda g, x, activation: g("Tanh", x))
        with pytest.raises(QuothError, match=r"differ from torch's by .*, more than \d\.\de-04"):
            export(model, tmp_path / "onnx")
        assert self.left(tmp_path) == ["m"]

    def test_what_was_there_stays_where_an_export_fails(self, tmp_path, model, monkeypatch):
        export(model, tmp_path / "onnx")
        before = (tmp_path / "onnx/model.onnx").read_bytes()
        monkeypatch.setattr(Graph, "activate", lambda g, x, activation: g("Tanh", x))
        with pytest.raises(QuothError, match="differ"):
            export(model, tmp_path / "onnx", int8=True)
        assert (tmp_path / "onnx/model.onnx").read_bytes() == before
        assert self.left(tmp_path) == ["m", "onnx"]

    def test_no_such_folder(self, tmp_path):
        with pytest.raises(QuothError, match="no such file or folder"):
            export(tmp_path / "nowhere", tmp_path / "onnx")

    def test_a_model_without_a_head(self, tmp_path):
        make_folder(tmp_path / "m", shape(), None)
        with pytest.raises(QuothError, match="has no head"):
            export(tmp_path / "m", tmp_path / "onnx")

    def test_the_folder_of_the_model_itself(self, tmp_path, model):
        for place in (model, tmp_path):
            with pytest.raises(QuothError, match="the model itself lies there"):
                export(model, place)
        assert (model / "model.safetensors").is_file()

    def test_a_folder_of_something_else(self, tmp_path, model):
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine/notes.txt").write_text("keep")
        with pytest.raises(QuothError, match="exists and is not a model folder"):
            export(model, tmp_path / "mine")
        with pytest.raises((QuothError, OSError)):
            export(model, tmp_path / "mine/notes.txt/onnx")
        assert self.left(tmp_path / "mine") == ["notes.txt"]

    def test_what_is_exported_already(self, tmp_path, model):
        export(model, tmp_path / "onnx")
        for use in (load, lambda source: export(source, tmp_path / "again")):
            with pytest.raises(QuothError, match="is exported and can only answer"):
                use(tmp_path / "onnx")


def test_the_file(tmp_path):
    """Opset 20 and of onnxruntime's own operators attention alone, free sizes, no weight that is not in the model."""
    model = make_folder(tmp_path / "m", shape(types=0), {"kind": "span"})
    result = export(tmp_path / "m", tmp_path / "onnx")
    made = onnx.load(tmp_path / "onnx/model.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert [(entry.domain, entry.version) for entry in made.opset_import] == [("", 20), ("com.microsoft", 1)]
    assert {node.op_type for node in made.graph.node if node.domain} == {"MultiHeadAttention"}
    assert [value.name for value in made.graph.input] == ["input_ids"]
    assert [d.dim_param for d in made.graph.input[0].type.tensor_type.shape.dim] == ["batch", "length"]
    assert [value.name for value in made.graph.output] == ["start", "end"]
    weights = 4 * sum(value.numel() for value in model.parameters())
    assert weights < result.bytes < weights + 100_000
    described = json.loads((tmp_path / "onnx/quoth.json").read_text())
    assert described["head"] == {"kind": "span"}
    assert described["exported"]["difference"] == result.difference
    assert torch.__version__ not in json.dumps(described)

"""Every head, exported, gives torch's logits: windows of 1 to as many tokens as a model reads, alone and in batches."""

import numpy as np
import pytest

from quoth import QuothError
from quoth.export.export import export
from quoth.heads import KINDS, SpanHead
from quoth.heads.line import WORDS
from quoth.heads.pooling import Pool
from quoth.heads.step import STEPS
from quoth.runtime.onnx_runner import OnnxRunner
from support.exporting import RECTANGLES, close, make_folder, shape, torch_logits, windows

SPANS = [
    "linear",
    "pool(learned) > linear",
    "pool(average) > linear",
    "last(3) > pool(learned) > compress(20) > skip > linear",
    "layer(1) > skip > linear",
    "compress(9) > linear",
    "compress(9, each) > skip > linear",
    "compress(8) > pool(learned) > linear",
    "(compress(8) + pool(learned) > compress(6)) > linear",
    "cnn(1xN) > linear",
    "layers(all) > pool(average) > cnn(1xN, dilation=2, dropout=0) > linear",
    "cnn(NxN) > linear",
    "pool(learned) > compress(13) > cnn(NxN) > linear",
    "pool(learned) > compress(20) > inception > linear",
    "pool(learned) > compress(20) > xception > linear",
    "compress(21) > xception(short) > linear",
    "attend(weighted)",
    "attend(dot)",
    "attend(multiplicative)",
    "attend(encoder)",
    {"kind": "span"},
    {"kind": "cacnn"},
    {"kind": "cacnn", "filters": 7, "width": 3, "maps": 2},
    {"kind": "cacnn", "context": "simple"},
]
CLASSES = [
    {"kind": "class", "labels": 3},
    {"kind": "class", "labels": 3, "pooled": True},
    *({"kind": "class", "labels": 3, "activation": name} for name in ("tanh", "relu", "gelu")),
    {"kind": "chain", "line": "pool(learned) > compress(9) > skip > linear", "labels": 2, "pooled": True},
    {"kind": "chain", "line": "xception(short) > skip > linear", "labels": 2, "pooled": True},
    {"kind": "chain", "line": "pool(average) > inception > linear", "labels": 2},
    {"kind": "chain", "line": "cnn(NxN) > linear", "labels": 4},
    {"kind": "chain", "line": "attend(encoder)", "labels": 3},
]


def test_these_are_all_heads():
    lines = " ".join(head if isinstance(head, str) else head.get("line", "") for head in [*SPANS, *CLASSES])
    assert all(word in lines for word in WORDS)
    assert {head["kind"] for head in [*SPANS, *CLASSES] if isinstance(head, dict)} | {"chain"} >= {*KINDS} - {"mlm"}


@pytest.mark.parametrize("head", SPANS, ids=str)
def test_span_heads(tmp_path, head):
    model = make_folder(tmp_path / "m", shape(), head)
    result = export(tmp_path / "m", tmp_path / "onnx")
    runner = OnnxRunner(tmp_path / "onnx/model.onnx")
    wanted = torch_logits(model, windows())
    for runner.rectangle in RECTANGLES:
        close(runner.member_logits(windows())[0], wanted)
        close(np.stack(runner(windows())), wanted)
    assert result.difference <= 2e-5 * max(1, result.largest_logit)
    assert runner.parameters == sum(value.numel() for value in model.parameters())


@pytest.mark.parametrize("head", CLASSES, ids=str)
def test_class_heads(tmp_path, head):
    model = make_folder(tmp_path / "m", shape(), head)
    export(tmp_path / "m", tmp_path / "onnx")
    runner = OnnxRunner(tmp_path / "onnx/model.onnx")
    for runner.rectangle in RECTANGLES:
        close(runner.classes(windows()), torch_logits(model, windows()))
    with pytest.raises(QuothError, match="exported with a class head"):
        runner(windows())


def test_what_has_no_graph_is_refused(tmp_path, monkeypatch):
    class Bare(SpanHead):
        to_onnx = None

    class BarePool(Pool):
        to_onnx = None

    monkeypatch.setitem(KINDS, "span", Bare)
    monkeypatch.setitem(STEPS, "pool", BarePool)
    for number, (head, kind) in enumerate(
        [({"kind": "span"}, "head of kind 'span'"), (SPANS[1], "step of kind BarePool")]
    ):
        make_folder(tmp_path / str(number), shape(), head)
        with pytest.raises(QuothError, match=f"a {kind} cannot be exported; give its class a method to_onnx"):
            export(tmp_path / str(number), tmp_path / "onnx")

"""Targets: descriptions, weights, indices, tokenizers and exported models."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzz.case import Case, Target
from fuzz.hostile import TEXTS, Draw, changed, damage, dump, encode, json_file
from fuzz.material import CONTEXT, exported_with, facts_of_export, model_folders, tokenizer, vocabulary
from quoth.answer.abstention import stored_abstention
from quoth.answer.confidence import stored_confidence
from quoth.answer.reader import Reader
from quoth.cli.inspect import _of_checkpoint, _of_exported, _of_shape_file
from quoth.encoder.families import family_of
from quoth.encoder.shape import read_shape
from quoth.hub import find_model
from quoth.model import open_checkpoint
from quoth.model.loading import load
from quoth.runtime.members import open_ensemble
from quoth.runtime.onnx_runner import OnnxRunner
from quoth.windows.settings import window_settings
from quoth.windows.tokenizer import Tokenizer

ABSTENTION = {"threshold": -1.5, "temperature": 2.1, "bias": -0.4, "fitted": {"data": "dev.json"}}
_OUTCOME = {"weights": [1.0, 0.5], "bias": 0.1, "retrieval": 0.0, "windows": -0.1}
CALIBRATION = {
    "format": 1,
    "features": ["margin", "gap"],
    "mean": [2.0, 3.0],
    "scale": [9.0, 3.0],
    "right": _OUTCOME,
    "no_answer": _OUTCOME,
    "fitted": {},
}
CHANGED_FACTS = changed(facts_of_export())
WINDOWS = {"max_length": 64, "step": 16, "max_query_length": 16}


def folder_with(base: str, name: str, data: Any) -> Any:
    """A model folder in which one file is replaced by what a strategy gives."""
    return data.map(lambda found: Case({**model_folders()[base], name: found}))


def _json(base: str, name: str, **more: Any) -> Any:
    return {**json.loads(model_folders()[base][name]), **more}


def run_model(folder: Path, _: Case) -> None:
    """What inspecting and loading a model reads of it."""
    files = find_model(folder)
    window_settings(files)
    stored_abstention(files)
    stored_confidence(files)
    _of_checkpoint(open_checkpoint(folder))
    load(folder)


def run_delta(folder: Path, _: Case) -> None:
    _of_checkpoint(open_checkpoint(folder / "delta"))
    load(folder / "delta")


def run_ensemble(folder: Path, _: Case) -> None:
    stored_abstention(find_model(folder))
    stored_confidence(find_model(folder))
    window_settings(open_ensemble(folder).files)


def run_exported(folder: Path, _: Case) -> None:
    _of_exported(find_model(folder))
    reader = Reader.load(folder)
    reader.find("Who built the mill?", [CONTEXT])


def run_onnx(folder: Path, _: Case) -> None:
    runner = OnnxRunner(folder / "model.onnx")
    runner.flops(32)
    int(runner.longest), int(runner.vocab), int(runner.types), int(runner.parameters)


def run_tokenizer(folder: Path, _: Case) -> None:
    """Load it and let it read: spans stay in the text."""
    made = Tokenizer.load(folder)
    for text, found in zip(
        (CONTEXT, "é ßİ 東京 \ud800 a" * 3, ""), made.encode([CONTEXT, "é ßİ 東京 \ud800 a" * 3, ""])
    ):
        if len(found.spans) and not (found.spans.min() >= 0 and found.spans.max() <= len(text)):
            raise AssertionError("a span outside the text")
    made.ids(["Who?"])


def run_shape(folder: Path, _: Case) -> None:
    found = read_shape(folder / "shape.json")
    family_of(found.family, "shape.json")
    json.dumps(_of_shape_file(folder / "shape.json")["parameters"])
    found.shape.flops(384)


@st.composite
def weights(draw: Draw, base: str, name: str) -> Case:
    """A safetensors file with a changed header (offsets, types, shapes, names), tensors or bytes."""
    data = model_folders()[base][name]
    (length,) = struct.unpack("<Q", data[:8])
    header, rest = _small(json.loads(data[8 : 8 + length])), data[8 + length :]
    kind = draw(st.sampled_from(("tensors", "header", "bytes")))
    if kind == "bytes":
        return Case({**model_folders()[base], name: damage(draw, data, most=4)})
    if kind == "tensors":
        header, rest = draw(other_tensors(header, rest))
        said, text = 0, json.dumps(header).encode()
    else:
        text = dump(draw(changed(header, most=2))).encode("utf-8", "surrogatepass")
        said = draw(st.sampled_from([0] * 6 + [1, -1, -len(text), 2**40, 2**63, 2**64 - 1 - len(text)]))
    return Case({**model_folders()[base], name: struct.pack("<Q", len(text) + said) + text + rest})


@st.composite
def other_tensors(draw: Draw, header: dict[str, Any], rest: bytes) -> tuple[dict[str, Any], bytes]:
    """A sound file of other tensors: renamed, of another shape or type of the same size, of numbers that are none."""
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(key for key in header if key != "__metadata__")))
        fate, tensor = draw(st.sampled_from(("name", "shape", "flat", "type", "nan"))), header[name]
        if fate == "name":
            header[draw(st.sampled_from((f"{name}x", "head.x", "encoder.layers.7.x", *TEXTS)))] = header.pop(name)
        elif fate == "shape":
            tensor["shape"] = tensor["shape"][::-1]
        elif fate == "flat":
            tensor["shape"] = draw(st.sampled_from(([math.prod(tensor["shape"])], [1, *tensor["shape"], 1])))
        elif fate == "type":
            tensor["dtype"] = draw(st.sampled_from(("I32", "U32", "F32")))
        else:
            rest = draw(st.sampled_from((b"\xff", b"\x7f\x80\0\0", b"\0"))) * len(rest)
            rest = rest[: _end(header)]
    return header, rest


def _end(header: dict[str, Any]) -> int:
    """How many bytes the tensors take."""
    return max(tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__")


@st.composite
def damaged(draw: Draw, data: bytes) -> bytes:
    """A file with some bytes other than they were."""
    return damage(draw, data, most=4)


def _small(header: dict[str, Any]) -> dict[str, Any]:
    """The tensors first that a change should often reach."""
    return dict(sorted(header.items(), key=lambda item: (item[0] == "__metadata__", item[0])))


@st.composite
def tokenizers(draw: Draw) -> Case:
    """tokenizer.json or its settings changed."""
    files = tokenizer()
    if draw(st.integers(0, 3)) < 3:
        value = json.loads(files["tokenizer.json"])
        for part in draw(st.lists(st.sampled_from(_PARTS), max_size=2)):
            value |= json.loads(json.dumps(part))
        files["tokenizer.json"] = encode(draw, dump(draw(changed(value))))
    else:
        files["tokenizer_config.json"] = draw(json_file(json.loads(files["tokenizer_config.json"])))
    return Case(files)


_PARTS: tuple[dict[str, Any], ...] = (
    {"normalizer": {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"}},
    {"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "aa" * 500}},
    {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aaaa"}] * 8,
        }
    },
    {"normalizer": {"type": "Prepend", "prepend": "▁"}},
    {"normalizer": {"type": "NFKD"}},
    {"normalizer": None},
    {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(x*)*y"}, "behavior": "Isolated", "invert": False}},
    {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
    {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}},
    {"pre_tokenizer": None},
    {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], "unk_token": "a"}},
    {"model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.0]], "unk_id": 0}},
    {"model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}},
    {"model": {"type": "WordPiece", "vocab": {}, "unk_token": "[UNK]"}},
    {"added_tokens": []},
    {"post_processor": None},
    {"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}},
    {"truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}},
    {
        "padding": {
            "strategy": {"Fixed": 64},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        }
    },
)


@st.composite
def vocabularies(draw: Draw) -> Case:
    """vocab.txt: lines missing, doubled, hostile."""
    words = vocabulary().decode().split("\n")
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(words) - 1))
        words[place : place + draw(st.integers(0, 9))] = draw(
            st.lists(st.sampled_from(["", "a", "[CLS]", "##", "\ud800", "x" * 300, "\r"]), max_size=2)
        )
        words = words or [""]
    config = draw(json_file(json.loads(tokenizer()["tokenizer_config.json"]), most=1))
    return Case({"vocab.txt": encode(draw, "\n".join(words)), "tokenizer_config.json": config})


@st.composite
def exported(draw: Draw) -> Case:
    """The folder of an exported model: its description, or its metadata, or its bytes."""
    files = dict(model_folders()["exported"])
    if draw(st.booleans()):
        files["quoth.json"] = draw(json_file(_json("exported", "quoth.json", abstention=ABSTENTION)))
    else:
        files["model.onnx"] = exported_with(draw(_facts()))
    return Case(files)


@st.composite
def _facts(draw: Draw) -> str:
    """The metadata of an exported model; protobuf takes no half of a surrogate pair."""
    text = dump(draw(CHANGED_FACTS))
    if draw(st.integers(0, 7)) == 7:
        text = text[: draw(st.integers(0, len(text)))]
    return text.encode("utf-8", "replace").decode()


def _targets() -> tuple[Target, ...]:
    quoth = _json("whole", "quoth.json", abstention=ABSTENTION, calibration=CALIBRATION, windows=WINDOWS)
    delta, ensemble = _json("delta", "delta/quoth.json"), _json("ensemble", "quoth.json", abstention=ABSTENTION)
    config, index = _json("hf", "config.json"), _json("sharded", "model.safetensors.index.json")
    shape = {"family": "bert", **quoth["shape"]}
    onnx = _facts().map(lambda text: Case({"model.onnx": exported_with(text)}))
    broken = damaged(model_folders()["bin"]["pytorch_model.bin"])
    return (
        Target("quoth-json", "format", folder_with("whole", "quoth.json", json_file(quoth)), run_model),
        Target("config-json", "format", folder_with("hf", "config.json", json_file(config)), run_model),
        Target(
            "delta-json",
            "format",
            folder_with("delta", "delta/quoth.json", json_file(delta)),
            run_delta,
            words=("base",),
        ),
        Target("ensemble-json", "format", folder_with("ensemble", "quoth.json", json_file(ensemble)), run_ensemble),
        Target(
            "shape-json",
            "format",
            json_file(shape).map(lambda data: Case({"shape.json": data})),
            run_shape,
            words=("shape: ",),
        ),
        Target("safetensors", "format", weights("whole", "model.safetensors"), run_model, words=("head.", "encoder.")),
        Target(
            "delta-safetensors",
            "format",
            weights("delta", "delta/delta.safetensors"),
            run_delta,
            words=("head.", "encoder."),
        ),
        Target(
            "shard-index", "format", folder_with("sharded", "model.safetensors.index.json", json_file(index)), run_model
        ),
        Target("bin", "format", folder_with("bin", "pytorch_model.bin", broken), run_model, words=("encoder.",)),
        Target("onnx-metadata", "format", onnx, run_onnx),
        Target("exported", "format", exported(), run_exported, words=("window", "token", "max_length", "step")),
        Target("tokenizer-json", "format", tokenizers(), run_tokenizer),
        Target("vocab-txt", "format", vocabularies(), run_tokenizer),
    )


TARGETS = _targets()

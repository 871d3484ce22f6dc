"""What cases are made of: valid files of every kind, with models of one tiny layer, as {name: bytes}."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tokenizers as library
import torch
from safetensors.torch import save_file
from tokenizers import models, normalizers, pre_tokenizers, processors

from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.encoder.style import Style
from quoth.export.export import export
from quoth.heads import build_head
from quoth.model import apply
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.runtime.ensemble import save_ensemble
from quoth.tune import build_tuning

Files = dict[str, bytes]
CONTEXT = "The water mill at Arden was built by Thomas Hale in 1742. It was sold to Ada Winter in 1801."
QUESTIONS = (
    ("a", "Who built the mill?", "Thomas Hale"),
    ("b", "When was the mill sold?", "1801"),
    ("c", "Who burnt the mill?", None),
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = sorted(set(re.findall(r"\w+|[.?]", f"{CONTEXT} {QUESTIONS}".lower())))
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
VOCABULARY = [*SPECIAL, *WORDS, *LETTERS, *(f"##{c}" for c in LETTERS)]


def squad() -> dict[str, Any]:
    """A SQuAD 2.0 file of three questions."""
    qas = [
        {
            "id": name,
            "question": question,
            "answers": [{"text": text, "answer_start": CONTEXT.index(text)}] if text else [],
            "is_impossible": text is None,
        }
        for name, question, text in QUESTIONS
    ]
    return {"version": "v2.0", "data": [{"title": "Mill", "paragraphs": [{"context": CONTEXT, "qas": qas}]}]}


def rows() -> list[dict[str, Any]]:
    """The same questions as rows, in all forms of answers."""
    first = {"question": "Who built the mill?", "context": CONTEXT}
    return [
        {**first, "id": "a", "answer": "Thomas Hale", "answer_start": CONTEXT.index("Thomas"), "title": "Mill"},
        {**first, "id": "b", "answer": ["Hale", "Thomas Hale"], "answer_start": [44, 37]},
        {**first, "answer": ""},
        {**first, "id": "d", "answers": {"text": ["Hale"], "answer_start": [44]}},
        {**first, "id": "e", "answers": [{"text": "Hale", "answer_start": 44}]},
    ]


def tokenizer() -> Files:
    """A WordPiece tokenizer, and its settings."""
    made = library.Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(dict.fromkeys(VOCABULARY))}, unk_token="[UNK]")
    )
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    made.add_special_tokens(list(SPECIAL))
    config = {"model_max_length": 128, "do_lower_case": True, "tokenizer_class": "BertTokenizer"}
    return {"tokenizer.json": made.to_str().encode(), "tokenizer_config.json": json.dumps(config).encode()}


def vocabulary() -> bytes:
    """A BERT vocab.txt."""
    return "\n".join(dict.fromkeys(VOCABULARY)).encode()


def shape(vocab: int) -> Shape:
    """The sizes of all models here."""
    return Shape(vocab=vocab, positions=160, types=2, embedding=8, hidden=8, layers=(LayerShape(2, 4, 4, 8),))


def files_of(folder: Path) -> Files:
    """All files below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _model(seed: int, head: dict[str, Any] | None = None) -> Model:
    torch.manual_seed(seed)
    sizes = shape(len(dict.fromkeys(VOCABULARY)))
    made = build_head(head or {"kind": "span"}, sizes.hidden, len(sizes.layers))
    return Model(Encoder(sizes, Style()), made, pooler=False).eval()


def _with_tokenizer(folder: Path) -> None:
    for name, data in tokenizer().items():
        (folder / name).write_bytes(data)


@cache
def model_folders() -> dict[str, Files]:
    """Model folders: of Quoth (whole), of Hugging Face (hf, sharded, bin), a delta, an ensemble, and exported."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        save(_model(0), place / "whole")
        _with_tokenizer(place / "whole")
        save(_model(1), place / "other")
        _with_tokenizer(place / "other")
        save_ensemble([str(place / "whole"), str(place / "other")], place / "ensemble", "max")
        export(place / "whole", place / "exported")
        _strip(place / "exported" / "model.onnx")
        for one in ("whole", "ensemble", "exported"):
            found[one] = files_of(place / one)
        found |= {"delta": _delta(place), **_hugging_face(place)}
    return found


def _strip(path: Path) -> None:
    """Keep the tensors inside the file, so that a case is one file."""
    whole = onnx.load(path)
    (path.parent / "model.onnx.data").unlink(missing_ok=True)
    onnx.save(whole, path)


def _delta(place: Path) -> Files:
    """A delta on the model `base` beside it. The base is named by a relative path."""
    from quoth.model.loading import load

    model = apply(load(place / "whole"), build_tuning({"kind": "lora", "rank": 1}))
    save(model, place / "delta")
    files = files_of(place / "delta")
    description = json.loads(files["quoth.json"])
    description["base"]["source"] = "base"
    base = {f"base/{key}": data for key, data in files_of(place / "whole").items()}
    return {
        **base,
        **{f"delta/{key}": data for key, data in {**files, "quoth.json": json.dumps(description).encode()}.items()},
    }


def _hugging_face(place: Path) -> dict[str, Files]:
    """A BertForQuestionAnswering as config.json with one file, two shards, or a .bin."""
    config = {
        "model_type": "bert", "architectures": ["BertForQuestionAnswering"],
        "vocab_size": len(dict.fromkeys(VOCABULARY)),
        "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
        "max_position_embeddings": 160, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    }  # fmt: skip
    model = _model(2)
    tensors = {model.family.to_hugging_face(name, "span"): value for name, value in model.state_dict().items()}
    both = {**tokenizer(), "config.json": json.dumps(config).encode()}
    names = sorted(tensors)
    half = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, some in {"all.safetensors": names, **half}.items():
        save_file({name: tensors[name].contiguous() for name in some}, place / file, metadata={"format": "pt"})
    torch.save(tensors, place / "all.bin")
    index = {"metadata": {"total_size": 1}, "weight_map": {name: file for file, some in half.items() for name in some}}
    shards = {file: (place / file).read_bytes() for file in half}
    return {
        "hf": {**both, "model.safetensors": (place / "all.safetensors").read_bytes()},
        "sharded": {**both, **shards, "model.safetensors.index.json": json.dumps(index).encode()},
        "bin": {**both, "pytorch_model.bin": (place / "all.bin").read_bytes()},
    }


@cache
def onnx_model() -> onnx.ModelProto:
    """An exported model of the same inputs and outputs whose graph is one product: it opens in a millisecond."""
    whole = onnx.load_from_string(model_folders()["exported"]["model.onnx"])
    names = [one.name for one in whole.graph.output]
    nodes = [onnx.helper.make_node("Cast", ["input_ids"], ["x"], to=onnx.TensorProto.FLOAT)]
    nodes += [onnx.helper.make_node("Unsqueeze", ["x", "axis"], [name]) for name in names]
    axis = onnx.numpy_helper.from_array(np.array([0], np.int64), "axis")
    outputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, "n", "l"]) for name in names]
    graph = onnx.helper.make_graph(nodes, "tiny", list(whole.graph.input), outputs, [axis])
    made = onnx.helper.make_model(graph, opset_imports=list(whole.opset_import), ir_version=whole.ir_version)
    made.metadata_props.extend(whole.metadata_props)
    return made


def exported_with(facts: str) -> bytes:
    """The bytes of such a model, with this text as its metadata."""
    made = onnx_model()
    for prop in made.metadata_props:
        if prop.key == "quoth":
            prop.value = facts
    return made.SerializeToString()


def facts_of_export() -> dict[str, Any]:
    """What the metadata of an exported model say."""
    whole = onnx.load_from_string(model_folders()["exported"]["model.onnx"])
    return dict(json.loads(next(prop.value for prop in whole.metadata_props if prop.key == "quoth")))


@cache
def checkpoint() -> tuple[Files, dict[str, Any]]:
    """A training checkpoint with one weight of 2×3; the files and the state."""
    state = {
        "step": 4, "windows": 24, "device": "cpu", "processes": 1, "threads": 1, "data": "d", "loss_steps": 2,
        "seconds": 1.5, "evaluations": [], "saved": [],
    }  # fmt: skip
    tensors = {f"{kind}.w": torch.ones(2, 3) for kind in ("model", "exp_avg", "exp_avg_sq")}
    with tempfile.TemporaryDirectory() as name:
        save_file({**tensors, "loss_sum": torch.zeros(1)}, Path(name) / "s")
        data = (Path(name) / "s").read_bytes()
    return with_hashes({"state.safetensors": data, "state.json": json.dumps(state).encode()}), state


def with_hashes(files: Files) -> Files:
    """The files of a checkpoint with hashes that fit them."""
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return {**files, "hashes.json": json.dumps(sums).encode()}

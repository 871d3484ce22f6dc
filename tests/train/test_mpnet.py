"""MPNet from the base to an exported model: trained, heads pruned, exported; its vocabulary is BERT's, shifted by 4."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from quoth import Reader
from quoth.export.export import export
from quoth.heads.linear import SpanHead
from quoth.model.loading import load
from quoth.model.saving import save, save_hugging_face
from quoth.prune.recipe import make_prune_recipe
from quoth.train.recipe import make_recipe
from train.material import make_questions, prune, table, train

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture
def base(tmp_path, minilm):
    """A random MPNet with a vocabulary file alone, as microsoft/mpnet-base has it."""
    bert = (minilm / "vocab.txt").read_text(encoding="utf-8").splitlines()
    words = ["<s>", "<pad>", "</s>", "<unk>", *bert, "<mask>"]
    torch.manual_seed(0)
    config = transformers.MPNetConfig(**SMALL, vocab_size=len(words), max_position_embeddings=130)
    transformers.MPNetModel(config).save_pretrained(tmp_path / "base")
    (tmp_path / "base/vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return tmp_path / "base"


def test_train_prune_export(base, tmp_path):
    data = make_questions(tmp_path / "train.json", 0), make_questions(tmp_path / "dev.json", 1, passages=2)
    recipe = table(base, *data, optimisation={"epochs": 1.0, "learning_rate": 3e-3})
    train(make_recipe(recipe), tmp_path / "run", device="cpu")
    model, before = load(tmp_path / "run/model"), load(base)
    assert not torch.equal(model.encoder.relative.weight, before.encoder.relative.weight)
    smaller = {
        "model": str(tmp_path / "run/model"),
        "data": recipe["data"],
        "target": {"keep": [0.6], "kinds": "af", "embeddings": False},
        "gates": {"steps": 2, "batch_size": 8},
        "recovery": {"epochs": 0.3, "batch_size": 8},
    }
    prune(make_prune_recipe(smaller), tmp_path / "small", device="cpu")
    folder = tmp_path / "small/keep-0.6/model"
    small = load(folder)
    assert small.encoder.shape.relative_per_layer
    assert min(layer.heads for layer in small.encoder.shape.layers) < 4
    export(folder, tmp_path / "onnx")
    text = "The water mill at Arden was built by Thomas Hale in 1742."
    torch_reader, onnx_reader = Reader.load(folder, device="cpu"), Reader.load(tmp_path / "onnx")
    one, other = (r(question="Who built the mill?", context=text, top_k=3) for r in (torch_reader, onnx_reader))
    for found, same in zip(one, other, strict=True):
        assert text[found["start"] : found["end"]] == found["answer"] == same["answer"]
        assert np.isclose(found["score"], same["score"], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.skipif("QUOTH_MPNET" not in os.environ, reason="QUOTH_MPNET is not set: no all-mpnet-base-v2 to load")
def test_real_weights_go_there_and_back_and_are_exported(tmp_path):
    folder = Path(os.environ["QUOTH_MPNET"])
    model = load(folder)
    save_hugging_face(model, tmp_path / "back")
    theirs, back = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "back"))
    theirs.pop("embeddings.position_ids", None)
    assert theirs.keys() == back.keys()
    assert all(torch.equal(value, back[name]) for name, value in theirs.items())
    torch.manual_seed(0)
    model.head = SpanHead(768)
    save(model, tmp_path / "span")
    assert export(tmp_path / "span", tmp_path / "onnx").difference < 1e-4

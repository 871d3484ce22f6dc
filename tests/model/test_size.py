"""How large a delta of the real BERT-base is."""

import shutil

import pytest
import torch

from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.heads.linear import SpanHead
from quoth.model import apply
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save
from quoth.tune.adapters import Adapters


@pytest.mark.slow
def test_l0_a64_of_bert_base_is_ten_megabytes(tmp_path):
    shape = Shape.uniform(layers=12, hidden=768, heads=12, vocab=28996)
    try:
        save(Model(Encoder(shape), pooler=True), tmp_path / "base")
        model = load(tmp_path / "base")
        model.head = SpanHead(768)
        apply(model, Adapters(64))
        save(model, tmp_path / "tuned")
        assert 9e6 < (tmp_path / "tuned/delta.safetensors").stat().st_size < 10.5e6
        again = load(tmp_path / "tuned")
        assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    finally:
        shutil.rmtree(tmp_path / "base", ignore_errors=True)

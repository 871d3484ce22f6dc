"""benchmarks.reader.dequantise: the embedded reader with float32 weights."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from quoth import Reader
from quoth.data.dataset import Question
from quoth.hub import find_model

pytest.importorskip("torch")
pytest.importorskip("onnx")

TEXT = "The watchmaker Larcum Kendall was told to make a copy, which he finished in 1769. It cost five hundred pounds."


def test_logits_are_those_of_the_int8_file_but_for_rounding(tmp_path):
    """An independent way: the file runs in onnxruntime, the folder in torch."""
    dequantise = importlib.import_module("benchmarks.reader.dequantise")
    from quoth.model import save

    folder = find_model("embedded").description.parent
    save(dequantise.dequantised(Path(folder)), tmp_path / "float")
    asked = [Question("q", "Who made a copy of the watch?", TEXT, ()), Question("r", "What did it cost?", TEXT, ())]
    int8, whole = Reader.load("embedded"), Reader.load(tmp_path / "float")
    expected, found = (reader.logits(reader.windows(asked)) for reader in (int8, whole))
    for one, other in ((expected.start, found.start), (expected.end, found.end)):
        assert np.abs(one - other).max() < 0.5
        assert np.corrcoef(one, other)[0, 1] > 0.999
    assert whole(question=asked[0].question, context=TEXT)["answer"] == "Larcum Kendall"
    assert whole(question=asked[1].question, context=TEXT)["answer"] == "five hundred pounds"

"""Random encoders of many shapes and a batch for them: on a GPU in bf16, else in fp32 for Triton's interpreter."""

from dataclasses import replace

import torch

from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.encoder.style import Style
from tiny import batch, random_windows

GPU = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if GPU == "cuda" else torch.float32
LENGTHS = (1, 130, 512, 40, 41) if GPU == "cuda" else (1, 70, 5)

IRREGULAR = (LayerShape(3, 20, 36, 70), LayerShape(1, 50, 7, 33), LayerShape(4, 16, 16, 8))
SHAPES = {
    "plain": Shape.uniform(layers=3, hidden=96, heads=3, vocab=97),
    "tied": Shape.uniform(layers=3, hidden=48, heads=3, vocab=97, embedding=10, tied=True),
    "irregular": Shape(97, 512, 2, 32, 88, IRREGULAR),
    "pruned": Shape(97, 512, 2, 32, 83, IRREGULAR),
    "pruned without a projection": Shape(97, 512, 2, 83, 83, IRREGULAR),
    "shared biases": replace(Shape.uniform(layers=3, hidden=96, heads=3, vocab=97), relative_buckets=32),
    "own biases": Shape(97, 512, 2, 32, 83, IRREGULAR, relative_buckets=32, relative_per_layer=True),
    "one unit": Shape(97, 512, 2, 32, 1, (LayerShape(2, 3, 5, 7),)),
}


def close(found, expected, tolerance):
    assert torch.isfinite(found).all()
    error = (found.double() - expected.double()).norm() / expected.double().norm()
    assert error < tolerance, float(error)


def make_encoder(shape, activation="gelu"):
    torch.manual_seed(0)
    encoder = Encoder(SHAPES[shape], Style(activation=activation)).to(GPU).eval()
    with torch.no_grad():
        for name, value in encoder.named_parameters():
            value.normal_(1.0 if "norm" in name and "weight" in name else 0.0, 0.15)
    return encoder


def make_batch():
    return batch(*random_windows(LENGTHS)).map(lambda a: a.to(GPU))

"""The encoder on a GPU: kernels under autocast against the plain path in fp32. Elsewhere this file is skipped."""

from dataclasses import replace

import pytest
import torch

from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.encoder.style import Style
from tiny import batch, random_windows

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine"),
]
GPU = "cuda"


def close(found, expected, tolerance=6e-3):
    """Relative error of a half-precision result."""
    assert torch.isfinite(found).all()
    error = (found.detach().double() - expected.detach().double()).norm() / expected.detach().double().norm()
    assert error < tolerance, float(error)


SHAPES = {
    "plain": Shape.uniform(layers=3, hidden=96, heads=3, vocab=97),
    "irregular": Shape(
        97, 512, 2, 32, 88, (LayerShape(3, 20, 36, 70), LayerShape(1, 50, 7, 33), LayerShape(4, 16, 16, 8))
    ),
    "relu": Shape(97, 512, 2, 32, 88, (LayerShape(3, 16, 16, 37),)),
    "shared biases": replace(Shape.uniform(layers=3, hidden=96, heads=3, vocab=97), relative_buckets=32),
    "own biases": Shape(
        97, 512, 2, 32, 88, (LayerShape(3, 20, 36, 70), LayerShape(4, 16, 16, 8)), False, True, 32, True
    ),
    "biases, wide heads": Shape(97, 512, 2, 32, 88, (LayerShape(2, 160, 20, 70),), relative_buckets=32),
    "wide heads": Shape(97, 512, 2, 32, 88, (LayerShape(2, 160, 20, 70),)),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_encoder_in_half_precision_equals_single(shape, compiled):
    """The packed kernels under autocast against the bucket path in fp32, states and gradients."""
    activation = "relu" if shape == "relu" else "gelu"
    encoder = Encoder(SHAPES[shape], Style(activation=activation, dropout=0.0, attention_dropout=0.0)).to(GPU)
    with torch.no_grad():
        for name, value in encoder.named_parameters():
            value.normal_(1.0 if "norm" in name and "weight" in name else 0.0, 0.15)
    packed = batch(*random_windows((1, 130, 512, 40, 41))).map(lambda a: a.to(GPU))
    weight = torch.randn(packed.tokens, encoder.shape.hidden, device=GPU)
    exact = encoder(packed)[0]
    (exact * weight).sum().backward()
    expected = [value.grad.clone() for value in encoder.parameters()]
    encoder.zero_grad()
    if compiled:
        for layer in encoder.layers:
            layer.compile(dynamic=True)
    with torch.autocast(GPU, torch.bfloat16):
        states = encoder(packed)[0]
    assert states.dtype == torch.bfloat16
    (states.float() * weight).sum().backward()
    close(states, exact, 0.03)
    whole = torch.cat([value.grad.flatten() for value in encoder.parameters()])
    close(whole, torch.cat([value.flatten() for value in expected]), 0.06)


def test_neighbours_do_not_matter():
    encoder = Encoder(SHAPES["irregular"]).to(GPU).eval()
    lengths = (40, 512, 1, 39)
    ids, types = random_windows(lengths)
    others, _ = random_windows(lengths, seed=1)
    with torch.no_grad(), torch.autocast(GPU, torch.bfloat16):
        mine = encoder(batch(ids, types).map(lambda a: a.to(GPU)))[0][:40]
        beside = encoder(batch([ids[0], *others[1:]], types).map(lambda a: a.to(GPU)))[0][:40]
    assert torch.equal(mine, beside)


@pytest.mark.parametrize("shape", ["plain", "shared biases"])
def test_checkpointing_and_seeds_in_half_precision(shape):
    packed = batch(*random_windows((1, 130, 512, 40))).map(lambda a: a.to(GPU))
    results = []
    for checkpointing in (False, True, False):
        torch.manual_seed(3)
        encoder = Encoder(SHAPES[shape]).to(GPU).train()
        encoder.checkpointing = checkpointing
        with torch.autocast(GPU, torch.bfloat16):
            encoder(packed)[0].float().square().sum().backward()
        results.append([value.grad for name, value in encoder.named_parameters() if not name.startswith("embed")])
    for plain, again, repeat in zip(*results):
        assert torch.equal(plain, repeat)
        assert torch.equal(plain, again)

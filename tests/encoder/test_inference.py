"""`InferenceEncoder` against `Encoder`: on a GPU in bf16, else in Triton's interpreter in fp32."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from quoth.encoder.device import Device
from quoth.encoder.encoder import Encoder
from quoth.encoder.inference import InferenceEncoder, for_inference, is_fast
from quoth.encoder.shape import LayerShape, Shape
from quoth.encoder.style import Style
from tiny import batch, random_windows

pytest.importorskip("triton", reason="Triton is not installed: it comes with torch for CUDA")

pytestmark = pytest.mark.slow  # in the interpreter

GPU = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if GPU == "cuda" else torch.float32
LENGTHS = (1, 130, 512, 40, 41) if GPU == "cuda" else (1, 70, 5)
gpu = pytest.mark.skipif(GPU == "cpu", reason="no CUDA GPU on this machine")

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


@pytest.mark.parametrize(
    ("shape", "activation"),
    [*((name, "gelu") for name in SHAPES), ("pruned", "relu"), ("pruned", "gelu_tanh")],
)
@torch.inference_mode()
def test_states_are_those_of_the_encoder(shape, activation):
    encoder, packed = make_encoder(shape, activation), make_batch()
    layers = tuple(range(len(encoder.shape.layers) + 1))
    expected = encoder(packed, layers)
    with torch.autocast(GPU, torch.bfloat16, enabled=GPU == "cuda"):
        found = InferenceEncoder(encoder, HALF)(packed, layers)
    assert [state.dtype for state in found] == [HALF] * len(layers)
    for state, truth in zip(found, expected, strict=True):
        assert state.shape == truth.shape
        assert state.is_contiguous()
        close(state, truth, 0.03 if GPU == "cuda" else 1e-5)


@pytest.mark.cuda
@gpu
@pytest.mark.parametrize("shape", ["plain", "tied", "shared biases"])
@torch.inference_mode()
def test_to_the_bit_where_nothing_is_padded(shape):
    encoder, packed = make_encoder(shape), make_batch()
    ready = for_inference(encoder, Device.choose("cuda"))
    assert isinstance(ready, InferenceEncoder)
    with torch.autocast(GPU, torch.bfloat16):
        for found, expected in zip(ready(packed, (0, 1, -1)), encoder(packed, (0, 1, -1))):
            assert torch.equal(found, expected)


@pytest.mark.parametrize(("width", "real"), [(8, 8), (16, 9), (104, 97), (8, 1)])
@pytest.mark.parametrize("rows", [1, 5])
def test_norm_over_the_real_units(rows, width, real):
    from quoth.encoder.kernels.inference import add_norm

    def draw(*shape, dtype=HALF):
        values = torch.randn(*shape, device=GPU).to(dtype)
        values[..., real:] = 0
        return values

    x, residual = draw(rows, width), draw(rows, width)
    bias, gain, offset = (draw(width, dtype=torch.float32) for _ in range(3))
    found = add_norm(x, bias, residual, gain, offset, 1e-3, real)
    z = (x.double() + residual.double() + bias.double())[:, :real]
    expected = F.layer_norm(z, (real,), gain[:real].double(), offset[:real].double(), 1e-3)
    close(found[:, :real], expected, 1e-2 if GPU == "cuda" else 1e-5)
    assert not found[:, real:].any()


def test_elsewhere_an_encoder_stays_as_it_is():
    encoder = Encoder(SHAPES["plain"])
    device = Device(torch.device("cpu"), half=True)
    assert for_inference(encoder, device) is encoder
    assert not is_fast(encoder, device)


@pytest.mark.cuda
@gpu
def test_parts_that_are_not_plain():
    encoder, device = make_encoder("plain"), Device.choose("cuda")
    assert for_inference(encoder, Device.choose("cuda", "fp32")) is encoder
    encoder.layers[1].attention_adapter = torch.nn.Identity()
    assert for_inference(encoder, device) is encoder
    assert is_fast(encoder, device)
    encoder.layers[0].up.register_forward_hook(lambda *_: None)
    assert not is_fast(encoder, device)

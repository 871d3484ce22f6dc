"""`InferenceEncoder` against `Encoder`: on a GPU in bf16, else in Triton's interpreter in fp32."""

import pytest
import torch
import torch.nn.functional as F

from encoder.random_encoders import GPU, HALF, SHAPES, close, make_batch, make_encoder
from quoth.encoder.device import Device
from quoth.encoder.encoder import Encoder
from quoth.encoder.inference import InferenceEncoder, for_inference, is_fast

pytest.importorskip("triton", reason="Triton is not installed: it comes with torch for CUDA")

pytestmark = pytest.mark.slow  # in the interpreter

gpu = pytest.mark.skipif(GPU == "cpu", reason="no CUDA GPU on this machine")


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

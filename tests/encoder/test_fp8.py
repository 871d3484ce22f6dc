"""fp8 inference. In the interpreter, with fp32 in place of fp8: how scales are folded in. On a Hopper GPU: fp8."""

import math

import numpy as np
import pytest
import torch

from encoder.random_encoders import GPU, SHAPES, close, make_batch, make_encoder
from quoth.encoder import fp8
from quoth.encoder.device import Device
from quoth.encoder.fp8 import MARGIN, TOP, Fp8Encoder, Source, embedding_source
from quoth.encoder.inference import for_inference
from quoth.encoder.steps import activate
from quoth.errors import QuothError
from quoth.heads.linear import SpanHead
from quoth.model.model import Model
from quoth.runtime.torch_runner import TorchRunner
from quoth.windows.packed import pack
from tiny import random_windows

UNBIASED = [name for name, shape in SHAPES.items() if not shape.relative_buckets]  # fp8 is for these
hopper = pytest.mark.skipif(
    GPU == "cpu" or torch.cuda.get_device_capability() != (9, 0), reason="no Hopper GPU on this machine"
)


@pytest.mark.slow
@pytest.mark.skipif(GPU == "cuda", reason="fp32 in place of fp8 is for the interpreter")
@pytest.mark.parametrize(
    ("shape", "activation"),
    [*((name, "gelu") for name in UNBIASED), ("pruned", "relu"), ("pruned", "gelu_tanh")],
)
@torch.inference_mode()
def test_with_exact_products_it_is_the_encoder(shape, activation, monkeypatch):
    """And no number that is multiplied is larger than fp8 has them."""
    largest = []

    def product(x, weight, ones, bias=None):
        largest.append(max(x.abs().max().item(), weight.rows.abs().max().item()))
        found = x @ weight.rows.t() * ones * weight.scale
        return found if bias is None else found + bias

    monkeypatch.setattr(fp8, "product", product)
    encoder, packed = make_encoder(shape, activation), make_batch()
    layers = tuple(range(len(encoder.shape.layers) + 1))
    found = Fp8Encoder(encoder, torch.float32, torch.float32)(packed, layers)
    for state, truth in zip(found, encoder(packed, layers), strict=True):
        close(state, truth, 1e-5)
    assert len(largest) == 4 * (len(layers) - 1)
    assert 1 < max(largest) <= TOP * (1 + 1e-6)


class TestBounds:
    @pytest.mark.parametrize("full", [False, True])
    def test_hold_and_are_reached(self, full):
        generator = torch.Generator().manual_seed(0)

        def draw(*sizes):
            return torch.randn(*sizes, generator=generator).double()

        radius = math.sqrt(9)
        source = Source(draw(5, 9) if full else draw(5), draw(5), radius)
        matrix = source.spread if full else source.spread.diag()
        weight, bias = draw(7, 5), draw(7)
        bound = source.bound(weight, bias)
        inner = matrix.shape[1]
        for directions in (draw(1000, inner), (weight @ matrix) * (weight @ source.offset + bias).sign()[:, None]):
            unit = radius * directions / directions.norm(dim=1, keepdim=True)
            states = unit @ matrix.t() + source.offset
            values = (states @ weight.t() + bias).abs().amax(0)
            assert (values <= bound * (1 + 1e-12)).all()
            assert (states.abs() <= source.own_bound() * (1 + 1e-12)).all()
        torch.testing.assert_close(values, bound)  # of the last directions
        torch.testing.assert_close(source.own_bound(), source.bound(torch.eye(5).double(), torch.zeros(5).double()))

    @pytest.mark.parametrize("shape", UNBIASED)
    @torch.no_grad()
    def test_of_the_embeddings(self, shape):
        encoder, packed = make_encoder(shape), make_batch()
        source = embedding_source(encoder.embeddings, encoder.shape.hidden + 3)
        states = torch.nn.functional.pad(encoder.embeddings(packed), (0, 3))
        assert (states.abs() <= source.own_bound() * (1 + 1e-5)).all()

    def test_a_unit_that_is_always_zero(self):
        assert fp8.scale_of([torch.tensor([0.0, TOP])]).tolist() == pytest.approx([1.0, MARGIN])


@pytest.mark.parametrize("precision", ["fp8", "fp16"])
def test_refused_elsewhere(precision):
    with pytest.raises(QuothError, match="Hopper" if precision == "fp8" else "unknown"):
        Device.choose("cpu", precision)


@pytest.mark.cuda
@hopper
class TestOnHopper:
    @pytest.mark.parametrize("shape", UNBIASED)
    @torch.inference_mode()
    def test_states_are_nearly_those_of_the_encoder(self, shape):
        encoder, packed = make_encoder(shape), make_batch()
        ready = for_inference(encoder, Device.choose("cuda", "fp8"))
        assert isinstance(ready, Fp8Encoder)
        with torch.autocast("cuda", torch.bfloat16):
            found = ready(packed, (0, -1))
        for state, truth in zip(found, encoder(packed, (0, -1)), strict=True):
            close(state, truth, 0.12)

    @pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu"])
    def test_the_activation_is_rounded_to_fp8(self, activation):
        from quoth.encoder.kernels.quantise import activate_fp8

        x, bias = torch.randn(37, 1100, device=GPU).bfloat16(), torch.randn(1100, device=GPU)
        inverse = torch.rand(1100, device=GPU) * 40 + 1  # the largest number stays below 448
        found = activate_fp8(x, bias, activation, inverse, torch.float8_e4m3fn).double()
        exact = activate(x.double() + bias.double(), activation) * inverse.double()
        # Half a step: 1/16 of a number from 2⁻⁶ on, 2⁻¹⁰ below.
        assert ((found - exact).abs() <= exact.abs().clamp(min=2.0**-6) * (1 / 16 + 1e-4)).all()

    def test_graphs_change_no_bit(self):
        encoder = make_encoder("plain")
        runner = TorchRunner(Model(encoder, SpanHead(encoder.shape.hidden)), "cuda", "fp8")
        packed = pack(*random_windows((100, 60, 7)))
        first, second = np.stack(runner(packed)), np.stack(runner(packed))
        assert runner.graphs.failure is None
        assert np.array_equal(first, second)

    def test_only_a_plain_encoder(self):
        encoder = make_encoder("plain")
        encoder.layers[1].attention_adapter = torch.nn.Identity()
        with pytest.raises(QuothError, match="plain encoder"):
            for_inference(encoder, Device.choose("cuda", "fp8"))

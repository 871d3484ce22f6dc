"""Gates on a GPU in bf16, with the fused kernels. Elsewhere this file is skipped."""

import pytest
import torch

from prune.shapes import make_batch, make_model, outputs, random_alpha, random_keep
from quoth.encoder.shape import LayerShape, Shape
from quoth.prune import cut
from quoth.prune.gates import Gates, gated

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine"),
]
EXACT = "akvf"  # a hidden unit with α = 0 still counts in LayerNorm: tests/prune/test_cut.py
SHAPE = Shape(97, 64, 2, 88, 88, (LayerShape(3, 20, 36, 70), LayerShape(4, 16, 16, 37)))


@pytest.fixture
def model():
    found = make_model(SHAPE, dtype=torch.float32)
    with torch.no_grad():
        for name, value in found.named_parameters():
            if "norm" not in name:
                value *= 0.4
    return found.cuda()


@pytest.fixture
def packed():
    return make_batch(SHAPE, (1, 64, 33, 32)).map(lambda array: array.cuda())


def half():
    return torch.autocast("cuda", torch.bfloat16)


def test_gates_at_one_change_no_bit(model, packed):
    with half():
        plain = outputs(model, packed)
        with gated(model, Gates(SHAPE).cuda()):
            assert torch.equal(outputs(model, packed), plain)


def test_gated_with_zeros_equals_cut(model, packed):
    """As near as bf16 gives it: of the other path, and of kernels of other sizes. Of kinds for which this is exact."""
    gates = Gates(SHAPE, EXACT).cuda()
    gates.zero(random_keep(SHAPE, 0, EXACT, share=0.8))
    small = cut(model, gates)
    with gated(model, gates):
        exact = outputs(model, packed)
        with half():
            rough = outputs(model, packed)
    assert (outputs(small, packed) - exact).norm() < 1e-3 * exact.norm()  # fp32, perhaps with TF32
    with half():
        assert (outputs(small, packed) - rough).norm() < 2e-2 * exact.norm()


@pytest.mark.parametrize("zeros", [False, True])
def test_gradients_in_half_precision_are_those_in_single(model, packed, zeros):
    gates = Gates(SHAPE)
    random_alpha(gates, 0)
    if zeros:
        gates.zero(random_keep(SHAPE, 0, share=0.8))
    gates = gates.cuda()

    def gradient():
        with gated(model, gates):
            loss = torch.stack(model(packed)).float().square().mean()
        found = torch.autograd.grad(loss, list(gates.parameters()))
        return torch.cat([part.flatten() for part in found])

    exact = gradient()
    with half():
        rough = gradient()
    assert (rough - exact).norm() < 5e-2 * exact.norm()

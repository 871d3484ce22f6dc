"""Penalties against loops written by hand."""

import math

import pytest
import torch

from prune.shapes import make_batch, make_model, outputs, random_alpha
from quoth.encoder.shape import LayerShape, Shape
from quoth.prune.cost import Parameters, betas
from quoth.prune.gates import gated
from quoth.prune.penalty import make_penalty

SHAPE = Shape(23, 16, 2, 6, 6, (LayerShape(2, 3, 4, 5), LayerShape(3, 2, 2, 7)))
BETA = betas(Parameters(), SHAPE)
GAMMA = 0.3


def made(name, kinds="all"):
    return make_penalty(name, SHAPE, kinds, GAMMA, betas(Parameters(), SHAPE, kinds))


def test_l1_is_gamma_times_beta_times_size():
    penalty = made("l1")
    random_alpha(penalty.gates(), 0)
    total = 0.0
    for name, value in penalty.gates().alpha.items():
        for number in value.tolist():
            total += GAMMA * BETA[name] * abs(number)
    assert penalty.loss().item() == pytest.approx(total, rel=1e-5)
    penalty.loss().backward()
    for name, value in penalty.gates().alpha.items():
        assert torch.allclose(value.grad, GAMMA * BETA[name] * value.sign())


def test_proximal_is_a_soft_threshold():
    penalty = made("proximal")
    random_alpha(penalty.gates(), 0)
    before = {name: value.tolist() for name, value in penalty.gates().alpha.items()}
    assert penalty.loss().item() == 0
    penalty.settle(2.0)
    zeros = 0
    for name, value in penalty.gates().alpha.items():
        limit = GAMMA * BETA[name] * 2.0
        for old, new in zip(before[name], value.tolist()):
            wanted = math.copysign(abs(old) - limit, old) if abs(old) > limit else 0.0
            assert new == pytest.approx(wanted, abs=1e-6)
            zeros += new == 0
    assert zeros > 0


def test_expected_l0():
    penalty = made("l0")
    generator = torch.Generator().manual_seed(0)
    total = 0.0
    with torch.no_grad():
        for name, value in penalty.log_a.items():
            value.normal_(0, 3, generator=generator)
            for number in value.tolist():
                total += GAMMA * BETA[name] / (1 + math.exp(-(number - 2 / 3 * math.log(0.1 / 1.1))))
    assert penalty.loss().item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("log_a", [-2.0, 0.0, 1.5, 4.0])
def test_drawn_gates_follow_the_hard_concrete_distribution(log_a):
    """The share of zeros and ones, and the median, against the inverse of the distribution written by hand."""
    big = make_penalty("l0", Shape(23, 16, 2, 20_000, 20_000, (LayerShape(1, 1, 1, 1),)), "h", 1.0, {"h": 1.0})
    torch.nn.init.constant_(big.log_a["h"], log_a)
    torch.manual_seed(0)
    drawn = big.alpha()["h"]

    def share_below(x):  # P(s·1.2 − 0.1 < x), s = σ((logit u + log a)/τ): u < σ(τ·logit((x + 0.1)/1.2) − log a)
        y = (x + 0.1) / 1.2
        return 1 / (1 + math.exp(-(2 / 3 * math.log(y / (1 - y)) - log_a)))

    assert (drawn == 0).double().mean() == pytest.approx(share_below(0.0), abs=0.015)
    assert (drawn == 1).double().mean() == pytest.approx(1 - share_below(1.0), abs=0.015)
    assert (drawn < 0.5).double().mean() == pytest.approx(share_below(0.5), abs=0.015)
    wanted = min(1.0, max(0.0, 1.2 / (1 + math.exp(-log_a)) - 0.1))
    assert big.gates().alpha["h"][0].item() == pytest.approx(wanted, abs=1e-6)


def test_scores_order_gates_that_are_equal():
    penalty = made("l0", "f")
    with torch.no_grad():
        penalty.log_a["f0"].copy_(torch.tensor([9.0, 4.0, -9.0, -4.0, 0.0]))
    assert penalty.gates().alpha["f0"].tolist()[:4] == [1, 1, 0, 0]
    assert penalty.scores()["f0"].argsort().tolist() == [2, 3, 4, 1, 0]


@pytest.mark.parametrize("name", ["l1", "l0", "proximal"])
def test_fresh_gates_change_nothing(name):
    model = make_model(SHAPE)
    packed = make_batch(SHAPE)
    with gated(model, made(name).gates()):
        assert torch.equal(outputs(model, packed), outputs(make_model(SHAPE), packed))


def test_gradients_reach_log_a():
    model, penalty = make_model(SHAPE, dtype=torch.float32), made("l0")
    torch.manual_seed(0)
    with gated(model, penalty.alpha()):
        loss = torch.stack(model(make_batch(SHAPE))).square().mean()
    loss.backward()
    assert all(value.grad is not None for value in penalty.log_a.values())
    assert sum(int(value.grad.count_nonzero()) for value in penalty.log_a.values()) > 0

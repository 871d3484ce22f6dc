"""The learning rate against tables and transformers' schedules; which weights decay."""

import math
from dataclasses import replace

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from quoth.train.build import build_model
from quoth.train.optimiser import learning_rate_at, make_optimiser
from quoth.train.recipe import make_recipe
from quoth.train.settings import Optimisation
from train.material import table

PLAIN = Optimisation(learning_rate=1.0, warmup_ratio=0.0)


def learning_rates(steps, **settings):
    return [learning_rate_at(step, steps, Optimisation(learning_rate=1.0, **settings)) for step in range(steps)]


class TestLearningRate:
    def test_tables(self):
        assert learning_rates(10, warmup_ratio=0.2) == pytest.approx(
            [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
        )
        assert learning_rates(4, warmup_ratio=0.0) == pytest.approx([1, 0.75, 0.5, 0.25])
        assert learning_rates(5, warmup_ratio=0.5, schedule="constant") == pytest.approx([1 / 3, 2 / 3, 1, 1, 1])
        # half a cosine over 4 steps: (1 + cos 0°, 45°, 90°, 135°) / 2
        half = [1.0, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]
        assert learning_rates(4, warmup_ratio=0.0, schedule="cosine") == pytest.approx(half)
        assert learning_rates(8, warmup_ratio=0.0, schedule="cosine", restarts=1) == pytest.approx(half + half)
        assert learning_rates(15, warmup_ratio=0.2, schedule="cosine", restarts=2) == pytest.approx(
            [1 / 3, 2 / 3, 1, *half * 3]
        )
        assert learning_rates(1, warmup_ratio=0.0) == [1.0]
        assert learning_rates(1, warmup_ratio=0.9) == [1.0]

    def test_the_peak_scales(self):
        assert learning_rate_at(3, 10, Optimisation(learning_rate=2e-4)) == pytest.approx(
            2e-4 * 7 / 9
        )  # 1 step of warm-up, 2 of 9 done

    @settings(deadline=None)
    @given(st.integers(1, 300), st.floats(0, 0.99), st.sampled_from(["linear", "constant", "cosine"]), st.data())
    def test_transformers_has_the_same_after_the_warm_up(self, steps, warmup, schedule, data):
        """In the warm-up transformers gives step/w, so that its first step does nothing; ours is (step + 1)/w."""
        restarts = data.draw(st.integers(0, 4)) if schedule == "cosine" else 0
        warm = math.ceil(warmup * steps)
        optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        if schedule == "linear":
            theirs = transformers.get_linear_schedule_with_warmup(optimiser, warm, steps)
        elif schedule == "constant":
            theirs = transformers.get_constant_schedule_with_warmup(optimiser, warm)
        else:
            theirs = transformers.get_cosine_with_hard_restarts_schedule_with_warmup(
                optimiser, warm, steps, num_cycles=restarts + 1
            )
        (at,) = theirs.lr_lambdas
        settings = replace(PLAIN, warmup_ratio=warmup, schedule=schedule, restarts=restarts)
        for step in range(steps):
            expected = at(step + 1) if step < warm - 1 else 1.0 if step == warm - 1 else at(step)
            assert learning_rate_at(step, steps, settings) == pytest.approx(expected, abs=1e-9), step

    @settings(deadline=None)
    @given(st.integers(1, 200), st.floats(0, 0.99), st.sampled_from(["linear", "constant", "cosine"]))
    def test_every_learning_rate_is_above_0_and_none_exceeds_the_peak(self, steps, warmup, schedule):
        assert all(0 < value <= 1 for value in learning_rates(steps, warmup_ratio=warmup, schedule=schedule))


class TestGroups:
    @pytest.fixture
    def model(self, material):
        return build_model(make_recipe(table(material.model, material.train)))

    def test_norms_and_biases_do_not_decay(self, model):
        optimiser = make_optimiser(model.parameters(), Optimisation(weight_decay=0.3))
        decay = {id(value): group["weight_decay"] for group in optimiser.param_groups for value in group["params"]}
        assert len(decay) == len(list(model.parameters()))
        for name, value in model.named_parameters():
            spared = name.endswith("bias") or "norm" in name  # as written in transformers' run_qa and in Devlin's code
            assert decay[id(value)] == (0.0 if spared else 0.3), name

    def test_only_trainable_parameters_are_handed_over(self, model):
        for name, value in model.named_parameters():
            value.requires_grad_(name.startswith("head."))
        optimiser = make_optimiser(model.parameters(), Optimisation())
        assert [len(group["params"]) for group in optimiser.param_groups] == [1, 1]
        for name, value in model.named_parameters():
            value.requires_grad_(name.endswith("norm.weight"))  # vectors alone: one group
        (group,) = make_optimiser(model.parameters(), Optimisation()).param_groups
        assert group["weight_decay"] == 0.0

    def test_a_step_is_adamw_by_hand(self):
        """Loshchilov and Hutter 2019, algorithm 2, in a loop."""
        settings = Optimisation(learning_rate=0.1, adam_beta1=0.7, adam_beta2=0.9, adam_epsilon=1e-3, weight_decay=0.5)
        torch.manual_seed(0)
        matrix, vector = nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(3))
        expected = [matrix.detach().double().clone(), vector.detach().double().clone()]
        moments = [(torch.zeros_like(value), torch.zeros_like(value)) for value in expected]
        optimiser = make_optimiser([matrix, vector], settings)
        for step in range(1, 6):
            for k, value in enumerate((matrix, vector)):
                value.grad = torch.randn_like(value)
                g = value.grad.double()
                m = 0.7 * moments[k][0] + 0.3 * g
                v = 0.9 * moments[k][1] + 0.1 * g * g
                moments[k] = m, v
                expected[k] *= 1 - 0.1 * (0.5 if k == 0 else 0.0)
                expected[k] -= 0.1 * (m / (1 - 0.7**step)) / ((v / (1 - 0.9**step)).sqrt() + 1e-3)
            optimiser.step()
        torch.testing.assert_close(matrix.detach().double(), expected[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(vector.detach().double(), expected[1], atol=1e-5, rtol=1e-5)

"""The loop: what a step is made of, how large it is, and what happens at which epoch."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from quoth import Reader
from quoth.data import read
from quoth.errors import QuothError
from quoth.model.loading import load
from quoth.model.saving import save
from quoth.tasks.examples import Feed
from quoth.tasks.seeds import seed_of
from quoth.train.build import build_model
from quoth.train.fine_tuning import _has_idle
from quoth.train.loop import make_batches
from quoth.train.recipe import make_recipe
from quoth.train.run import make_accelerator
from quoth.train.settings import Optimisation
from quoth.windows.batches import Batches
from train.material import (
    assert_same_weights,
    fine_tuning,
    log_lines,
    make_model,
    prepare,
    table,
    train,
    weights,
)

# A shift of all logits of a window changes no softmax, nor does one of all keys change attention. So the gradients of
# these are 0 but for rounding, and AdamW, which divides by their size, makes of the rounding steps of the full learning
# rate.
IDLE = ("head.linear.bias", "layers.1.ffn_norm.bias", "attention.key.bias")


@pytest.fixture(scope="module")
def quiet(material):
    """A recipe without dropout."""
    return table(material.model, material.train, optimisation={"dropout": 0.0, "learning_rate": 1e-4})


@pytest.fixture(scope="module")
def prepared(quiet):
    recipe = make_recipe(quiet)
    return prepare(recipe, build_model(recipe))


def make_loop(recipe, prepared, **optimisation):
    recipe = make_recipe({**recipe, "optimisation": {**recipe["optimisation"], **optimisation}})
    return fine_tuning(build_model(recipe), prepared, recipe.optimisation, recipe.seed, make_accelerator("cpu"))


def advance(loop, steps=None):
    """The loss of each step."""
    found = []
    for _ in range(steps or loop.steps):
        loop.advance()
        found.append(loop.take_losses()["loss"])
    return found


class TestStep:
    def test_some_gradients_are_nothing_but_rounding(self, quiet, prepared):
        """The claim above `IDLE`, in double precision, where rounding is 1e-16."""
        loop = make_loop(quiet, prepared)
        model = loop.objective.model.double().train()
        packed, answers = loop.objective.feed.batch(np.arange(6))
        start, end = (logits.split(list(packed.lengths)) for logits in model(packed))
        for w, (first, last) in enumerate(answers):
            loss = F.cross_entropy(start[w][None], first[None]) + F.cross_entropy(end[w][None], last[None])
            loss.backward(retain_graph=True)
        largest = {
            name: value.grad.abs().max().item() for name, value in model.named_parameters() if value.grad is not None
        }
        for name, value in largest.items():
            assert (value < 1e-14) == name.endswith(IDLE), name

    @pytest.mark.parametrize("parts", [2, pytest.param(3, marks=pytest.mark.slow), 5])
    def test_accumulation_gives_the_same(self, quiet, prepared, parts):
        whole, split = make_loop(quiet, prepared), make_loop(quiet, prepared, gradient_accumulation_steps=parts)
        np.testing.assert_allclose(advance(split), advance(whole), rtol=1e-6)
        theirs = dict(whole.objective.model.named_parameters())
        for name, value in split.objective.model.named_parameters():
            if not name.endswith(IDLE):
                torch.testing.assert_close(value, theirs[name], atol=1e-6, rtol=0, msg=name)

    def test_parts_need_windows(self, quiet, prepared):
        with pytest.raises(QuothError, match="a step has 5 windows, too few for 1 process"):
            make_loop(quiet, prepared, gradient_accumulation_steps=6)

    def test_the_loss_is_that_of_the_windows_of_the_step(self, quiet, prepared):
        """The first step by hand: order, mean over windows, clipping, learning rate, weight decay."""
        loop = make_loop(quiet, prepared, max_grad_norm=0.01, weight_decay=0.1)
        model = loop.objective.model
        before = {name: value.detach().clone() for name, value in model.named_parameters()}
        indices = Batches(prepared.examples.windows.lengths, seed=0, batch_size=6).batch(0, 0)
        total = torch.zeros(())
        for w in indices:
            packed, answers = loop.objective.feed.batch(np.array([w]))
            for logits, place in zip(model.train()(packed), answers[0], strict=True):
                total = total + F.cross_entropy(logits[None], place[None]) / 2 / len(indices)
        total.backward()
        grads = {
            name: value.grad.clone()
            for name, value in loop.objective.model.named_parameters()
            if value.grad is not None
        }
        norm = torch.stack([grad.norm() for grad in grads.values()]).norm()
        model.zero_grad()
        (loss,) = advance(loop, 1)
        assert loss == pytest.approx(total.item(), rel=1e-6)
        assert norm > 0.01  # so that clipping does something
        for name, value in loop.objective.model.named_parameters():
            if name not in grads:
                assert torch.equal(value, before[name])  # the pooler
                continue
            grad = grads[name] * 0.01 / norm
            decayed = before[name] * (1 - loop.learning_rate * (0.1 if value.ndim > 1 else 0.0))
            expected = decayed - loop.learning_rate * grad / (grad.abs() + 1e-8)
            sure = grad.abs() > 1e-6  # where rounding does not decide the sign
            torch.testing.assert_close(value[sure], expected[sure], atol=1e-8, rtol=1e-5, msg=name)

    def test_no_clipping(self, quiet, prepared):
        one, other = (make_loop(quiet, prepared, max_grad_norm=clip, adam_epsilon=1.0) for clip in (0.0, 1e9))
        assert advance(one, 3) == pytest.approx(advance(other, 3))
        third = make_loop(quiet, prepared, max_grad_norm=1e-9, adam_epsilon=1.0)
        first = third.objective.model.head.linear.weight.detach().clone()
        advance(third, 3)
        assert (third.objective.model.head.linear.weight - first * (1 - 0.01 * 1e-4) ** 3).abs().max() < 1e-6

    def test_dropout_is_a_function_of_seed_and_step(self, quiet, prepared):
        noisy = make_loop(quiet, prepared, dropout=0.3)
        first = advance(noisy, 4)
        torch.rand(7)  # a draw from torch's own state changes nothing
        assert advance(make_loop(quiet, prepared, dropout=0.3), 4) == first
        assert advance(make_loop({**quiet, "seed": 1}, prepared, dropout=0.3), 4) != first
        assert advance(make_loop(quiet, prepared), 4) != first

    def test_every_part_of_every_step_has_a_seed_of_its_own(self, quiet, prepared, monkeypatch):
        asked = []
        monkeypatch.setattr(
            "quoth.train.fine_tuning.seed_of", lambda *numbers: asked.append(numbers) or seed_of(*numbers)
        )
        advance(make_loop(quiet, prepared, gradient_accumulation_steps=2), 3)
        assert asked == [(0, step, part, 0) for step in range(3) for part in range(2)]
        grid = np.ndindex(3, 9, 2, 3)
        assert len({seed_of(*map(int, numbers)) for numbers in grid}) == 3 * 9 * 2 * 3

    def test_the_models_own_dropout_unless_the_recipe_says_other(self, quiet, prepared):
        del (own := {**quiet, "optimisation": {**quiet["optimisation"]}})["optimisation"]["dropout"]
        assert advance(make_loop(own, prepared), 3) == advance(make_loop(quiet, prepared, dropout=0.1), 3)

    def test_bf16_on_the_cpu(self, quiet, prepared):
        half = make_loop(quiet, prepared, precision="bf16")
        assert half.objective.device.half
        assert all(value.dtype == torch.float32 for value in half.objective.model.parameters())
        mine, theirs = advance(half, 5), advance(make_loop(quiet, prepared, precision="fp32"), 5)
        assert mine != theirs
        assert mine == pytest.approx(theirs, rel=0.01)

    @pytest.mark.parametrize("pooler", [True, False])
    @pytest.mark.parametrize(
        ("head", "task"),
        [
            ({"kind": "span"}, "span"),
            ("layer(1) > linear", "span"),
            ("attend(dot)", "span"),
            ("pool(learned) > linear", "span"),
            ({"kind": "class", "labels": 2, "pooled": True}, "answerable"),
            ({"kind": "class", "labels": 2}, "answerable"),
        ],
    )
    def test_several_processes_are_told_of_what_gets_no_gradient(self, material, minilm, tmp_path, head, task, pooler):
        """torch asks beforehand whether all that is trained gets a gradient; a head may read lower layers only."""
        place = make_model(tmp_path / "small", minilm, pooler=pooler, num_hidden_layers=2)
        made = table(place, material.train, head=head, data={"task": task})
        recipe = make_recipe(made)
        model = build_model(recipe)
        prepared = prepare(recipe, model)
        packed, labels = Feed(prepared.examples, torch.device("cpu")).batch(np.arange(4))
        prepared.loss(model.train()(packed), packed, labels).backward()
        idle = [name for name, value in model.named_parameters() if value.requires_grad and value.grad is None]
        assert _has_idle(model) == bool(idle)

    def test_a_step_begins_without_gradients(self, quiet, prepared):
        """A capture that fails in the middle of a backward pass leaves gradients that were never computed."""
        loop, other = make_loop(quiet, prepared), make_loop(quiet, prepared)
        advance(loop, 1)
        advance(other, 1)
        for _, value, _ in loop.trained():
            value.grad = torch.full_like(value, float("nan"))
        assert advance(loop, 2) == advance(other, 2)

    def test_compile_is_for_cuda(self, quiet, prepared):
        assert advance(make_loop(quiet, prepared, compile="off"), 2) == advance(make_loop(quiet, prepared), 2)


class TestSize:
    @pytest.mark.parametrize("budget", [{"batch_size": 7}, {"batch_tokens": 333}, {}])
    def test_each_window_once_an_epoch_and_none_too_many(self, prepared, budget):
        lengths = prepared.examples.windows.lengths
        batches = make_batches(lengths, Optimisation(**budget), 3, 1)
        for epoch in (0, 1):
            steps = [batches.batch(epoch, index) for index in range(batches.count())]
            assert sorted(np.concatenate(steps)) == list(range(len(lengths)))
            for indices in steps:
                assert len(indices) <= budget.get("batch_size", len(lengths))
                assert lengths[indices].sum() <= budget.get("batch_tokens", 8192 if not budget else lengths.sum())
        count = -(-len(lengths) // 7) if "batch_size" in budget else batches.count()
        assert batches.count() == count >= lengths.sum() / budget.get("batch_tokens", 8192)

    def test_the_order_goes_on_over_epochs(self, quiet, prepared):
        loop = make_loop(quiet, prepared, epochs=2.0)
        seen = []
        request = loop.objective.feed.request
        loop.objective.feed.request = lambda indices, *rest: (seen.append(indices), request(indices, *rest))[1]
        advance(loop)
        order = Batches(prepared.examples.windows.lengths, seed=0, batch_size=6)
        expected = [order.batch(epoch, index) for epoch in (0, 1) for index in range(17)]
        assert [list(indices) for indices in seen] == [list(indices) for indices in expected]
        assert list(seen[0]) != list(seen[17])
        assert (loop.step, loop.windows, loop.epoch) == (34, 200, 2.0)

    @pytest.mark.parametrize(("epochs", "steps"), [(0.01, 1), (0.1, 2), (0.5, 8), (1.0, 17), (1.3, 22), (2.0, 34)])
    def test_fractional_epochs(self, quiet, prepared, epochs, steps):
        loop = make_loop(quiet, prepared, epochs=epochs)
        assert (loop.steps_per_epoch, loop.steps) == (17, steps)


class TestMoments:
    """Evaluations and snapshots at a list of epochs."""

    @pytest.fixture(scope="class")
    @classmethod
    def recipe(cls, material):
        return table(
            material.model,
            material.train,
            material.dev,
            optimisation={"epochs": 1.2},
            evaluation={"at": [0.1, 0.3, 1], "snapshots": [0.3, 0.31, 1.2]},
        )

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, recipe, tmp_path_factory):
        folder = tmp_path_factory.mktemp("runs") / "moments"
        return folder, train(make_recipe(recipe), folder, device="cpu")

    def test_evaluations(self, run):
        folder, facts = run
        seen = [(line["step"], line["epoch"]) for line in log_lines(folder) if "evaluation" in line]
        assert seen == [(step, step / 17) for step in (2, 5, 17, 20)]
        assert [(e["step"], e["epoch"]) for e in facts["evaluations"]] == seen
        for line in log_lines(folder):
            if "evaluation" in line:
                assert (
                    line["evaluation"].items()
                    <= facts["evaluations"][seen.index((line["step"], line["epoch"]))].items()
                )

    def test_snapshots_are_the_weights_at_that_step(self, run, recipe):
        folder, _ = run
        assert sorted(path.name for path in (folder / "snapshots").iterdir()) == [
            "epoch-0.3",
            "epoch-0.31",
            "epoch-1.2",
        ]
        assert_same_weights(folder / "snapshots/epoch-1.2", folder / "model")
        assert_same_weights(folder / "snapshots/epoch-0.3", folder / "snapshots/epoch-0.31")  # both are step 5
        made = make_recipe(recipe)
        model = build_model(made)
        loop = make_loop(recipe, prepare(made, model))
        advance(loop, 5)
        kept = load(folder / "snapshots/epoch-0.3")
        for name, value in loop.objective.model.named_parameters():
            assert torch.equal(value, kept.get_parameter(name)), name

    def test_snapshots_answer(self, run, material):
        folder, _ = run
        question = read(str(material.dev)).questions[0]
        for path in (*(folder / "snapshots").iterdir(), folder / "model"):
            answer = Reader.load(path, device="cpu")(question=question.question, context=question.context)
            assert question.context[answer["start"] : answer["end"]] == answer["answer"]

    def test_without_evaluation_data(self, material, tmp_path):
        recipe = table(material.model, material.train, optimisation={"epochs": 0.2}, evaluation={"at": [0.1]})
        facts = train(make_recipe(recipe), tmp_path / "run", device="cpu")
        assert (facts["quality"], facts["evaluations"], facts["inference_seconds"]) == ({}, [], None)


class TestModels:
    def test_a_fraction_of_the_data(self, material, tmp_path):
        recipe = table(material.model, material.train, data={"fraction": 0.1, "max_length": 384})
        facts = train(make_recipe(recipe), tmp_path / "run", device="cpu")
        assert (facts["windows"], facts["steps"]) == (6, 1)  # 6 of 60 questions, a window each

    @pytest.mark.parametrize(
        ("tuning", "head", "file"),
        [
            ({"kind": "adapters", "size": 4}, {"kind": "span"}, "delta.safetensors"),
            ({"kind": "freeze", "layers": 1}, {"kind": "cacnn", "width": 3, "filters": 8}, "delta.safetensors"),
            ({"kind": "full"}, {"kind": "cacnn", "context": "simple", "width": 3}, "model.safetensors"),
        ],
    )
    def test_other_tunings_and_heads(self, material, tmp_path, tuning, head, file):
        """Exactly what is trained has changed, snapshots and model are deltas on the base, and they load."""
        recipe = make_recipe(
            table(
                material.model,
                material.train,
                material.dev,
                tuning=tuning,
                head=head,
                optimisation={"epochs": 0.3},
                evaluation={"snapshots": [0.1]},
            )
        )
        facts = train(recipe, tmp_path / "run", device="cpu")
        before, after = build_model(recipe), load(tmp_path / "run/model")
        assert (tmp_path / "run/model" / file).exists()
        assert facts["trainable_parameters"] == sum(v.numel() for v in before.parameters() if v.requires_grad)
        for name, value in before.named_parameters():
            changed = not torch.equal(value, after.get_parameter(name))
            assert changed == (value.requires_grad and not name.startswith("pooler.")), name
        load(tmp_path / "run/snapshots/epoch-0.1")
        assert Reader.load(tmp_path / "run/model", device="cpu")(question="Who?", context="Ada did.")

    def test_a_head_of_the_same_kind_is_kept(self, material, quiet, tmp_path):
        recipe = make_recipe(quiet)
        first, same, other = build_model(recipe), build_model(recipe), build_model(replace(recipe, seed=1))
        assert torch.equal(first.head.linear.weight, same.head.linear.weight)  # a fresh head is drawn from the seed
        assert not torch.equal(first.head.linear.weight, other.head.linear.weight)
        save(other, tmp_path / "model")
        again = build_model(replace(recipe, model=str(tmp_path / "model")))
        assert torch.equal(again.head.linear.weight, other.head.linear.weight)
        cnn = build_model(replace(recipe, model=str(tmp_path / "model"), head={"kind": "cacnn", "width": 3}))
        assert cnn.head.to_json()["kind"] == "cacnn"

    def test_no_tokenizer(self, material, tmp_path, quiet):
        model = build_model(make_recipe(quiet))
        save(model, tmp_path / "bare")
        for path in (tmp_path / "bare").iterdir():
            if path.name not in ("quoth.json", "model.safetensors"):
                path.unlink()
        with pytest.raises(QuothError, match=r"bare: has no tokenizer; tokenizer.json should lie beside"):
            train(make_recipe({**quiet, "model": str(tmp_path / "bare")}), tmp_path / "run", device="cpu")

    def test_a_prepared_task_serves_many_runs(self, quiet, prepared, tmp_path):
        recipe = make_recipe({**quiet, "optimisation": {**quiet["optimisation"], "epochs": 0.3}})
        train(recipe, tmp_path / "one", device="cpu", task=prepared)
        train(recipe, tmp_path / "two", device="cpu")
        assert_same_weights(tmp_path / "one/model", tmp_path / "two/model")
        assert json.loads((tmp_path / "one/metrics.json").read_text())["steps"] == 5
        assert weights(tmp_path / "one/model")

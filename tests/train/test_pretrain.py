"""Pre-training by recipe, its evaluation, and head warm-up."""

import json
import os
import random
import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from quoth import QuothError
from quoth.heads.mlm import MlmHead
from quoth.model.checkpoint import open_checkpoint
from quoth.model.loading import load
from quoth.model.saving import save
from quoth.tasks import Pretraining
from quoth.tasks.masking import MaskedFeed
from quoth.tasks.pretraining import add_heads
from quoth.train.build import build_model
from quoth.train.log import Status
from quoth.train.recipe import make_recipe
from quoth.train.run import make_accelerator
from quoth.train.training import Interrupted
from quoth.train.warm_up import SETTINGS, WarmUp, _flat, warm_up
from quoth.windows.nsp import make_neighbours
from quoth.windows.packed import NOTHING
from quoth.windows.tokenizer import Tokenizer
from train.material import CPU, FACTS, assert_same_weights, fine_tuning, make_model, prepare, table, train, weights

PRETRAIN = {"task": "pretrain", "held_out": 0.2, "max_length": 48}


def make_text(path, seed=0, paragraphs=40, facts=4):
    drawn = random.Random(seed)
    rows = [" ".join(fact[0] for fact in drawn.sample(FACTS, facts)) for _ in range(paragraphs)]
    path.write_text("\n\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return make_text(tmp_path_factory.mktemp("text") / "facts.txt")


@pytest.fixture(scope="module")
def bare(minilm, tmp_path_factory):
    """An encoder without pooler and head."""
    return make_model(tmp_path_factory.mktemp("bare") / "small", minilm, pooler=False)


def pretrain(model, text, **sections):
    data = {**PRETRAIN, **sections.pop("data", {})}
    return table(model, text, head={"kind": "mlm"}, data=data, **sections)


@pytest.fixture(scope="module")
def quiet(bare, text):
    return pretrain(
        bare, text, optimisation={"dropout": 0.0, "learning_rate": 1e-3, "batch_size": 12, "adam_epsilon": 1e-6}
    )


@pytest.fixture(scope="module")
def prepared(quiet):
    recipe = make_recipe(quiet)
    return prepare(recipe, build_model(recipe))


def make_loop(made, prepared, **optimisation):
    recipe = make_recipe({**made, "optimisation": {**made["optimisation"], **optimisation}})
    return fine_tuning(build_model(recipe), prepared, recipe.optimisation, recipe.seed, make_accelerator("cpu"))


def advance(loop, steps):
    found = []
    for _ in range(steps):
        loop.advance()
        found.append(loop.take_losses()["loss"])
    return found


class TestStep:
    def test_the_loss_is_the_mean_over_masked_tokens_and_windows(self, quiet, prepared):
        """By hand from the logits of the model, window by window; masked tokens a window are the mean of all data."""
        loop = make_loop(quiet, prepared)
        indices = loop.batches.batch(0, 0)
        words, nsp = 0.0, 0.0
        for index in indices:
            packed, label = loop.objective.feed.batch(np.array([index]), 0)
            logits, said = loop.objective.model.train()(packed)
            for row, target in zip(logits, packed.targets):
                words += F.cross_entropy(row[None], target[None]).item() if target != NOTHING else 0.0
            nsp += F.cross_entropy(said, label).item()
        planned = [
            max(1, round(0.15 * (length - 3))) for length in loop.objective.feed.lengths
        ]  # every word can be masked
        expected = words / np.mean(planned) / len(indices) + nsp / len(indices)
        assert advance(loop, 1) == [pytest.approx(expected, rel=1e-5)]

    def test_that_is_nearly_the_mean_over_the_masked_tokens_of_the_step(self, quiet, prepared):
        loop = make_loop(quiet, prepared)
        for step in range(loop.steps):
            packed, _ = loop.objective.feed.batch(loop.batches.batch(0, step), step)
            exact = len(packed.lengths) / int((packed.targets != NOTHING).sum())
            assert packed.weight == pytest.approx(exact, rel=1 / len(packed.lengths))

    @pytest.mark.parametrize("parts", [2, 3])
    def test_accumulation_gives_the_same(self, quiet, prepared, parts):
        whole, split = make_loop(quiet, prepared), make_loop(quiet, prepared, gradient_accumulation_steps=parts)
        np.testing.assert_allclose(advance(split, 4), advance(whole, 4), rtol=1e-5)

    def test_masks_change_from_step_to_step(self, quiet, prepared):
        feed, indices = prepared.feed(prepared.examples, torch.device("cpu"), 0), np.arange(4)
        assert not torch.equal(feed.batch(indices, 0)[0].ids, feed.batch(indices, 1)[0].ids)

    def test_all_that_is_trained_gets_a_gradient(self, quiet, prepared):
        loop = make_loop(quiet, prepared)
        packed, labels = loop.objective.feed.batch(np.arange(6), 0)
        prepared.loss(loop.objective.model(packed), packed, labels).backward()
        assert not [name for name, value in loop.objective.model.named_parameters() if value.grad is None]

    def test_mlm_alone(self, quiet, prepared):
        made = {**quiet, "head": {"kind": "mlm", "nsp": False}}
        loop = make_loop(made, prepared)
        assert loop.objective.model.pooler is None
        assert advance(loop, 1)[0] < make_loop(quiet, prepared).objective.model.head.bias.shape[0]
        scores = prepared.evaluate(loop.objective.model, CPU).quality
        assert scores["loss"] == scores["mlm_loss"]
        assert "nsp_accuracy" not in scores


class TestRun:
    @pytest.fixture(scope="class")
    @staticmethod
    def ran(quiet, tmp_path_factory):
        """A run of 14 epochs that was not interrupted."""
        folder = tmp_path_factory.mktemp("ran") / "run"
        made = {
            **quiet,
            "optimisation": {**quiet["optimisation"], "epochs": 14.0, "learning_rate": 1e-2, "dropout": 0.1},
        }
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        told = []
        facts = train(make_recipe({**made, "evaluation": {"at": [0.1]}}), folder, device="cpu", tell=told.append)
        torch.set_num_threads(threads)
        return made, folder, facts, told

    def test_the_loss_falls_on_held_out_text_too(self, ran):
        _, _, facts, _ = ran
        first, last = facts["evaluations"]
        assert last["mlm_loss"] < 0.5 * first["mlm_loss"]
        assert last["mlm_accuracy"] > first["mlm_accuracy"]
        assert last["perplexity"] == pytest.approx(np.exp(last["mlm_loss"]))
        assert facts["quality"]["loss"] == pytest.approx(last["mlm_loss"] + last["nsp_loss"])
        assert {"mlm_loss", "mlm_accuracy", "perplexity", "nsp_loss", "nsp_accuracy"} <= facts["quality"].keys()

    def test_people_are_told(self, ran):
        *_, told = ran
        lines = [line for line in told if isinstance(line, str)]
        assert all("MLM loss" in line and "perplexity" in line for line in lines)

    def test_the_model_folder_evaluates_alike_and_goes_on_to_other_tasks(self, ran, prepared, material):
        made, folder, facts, _ = ran
        model = load(folder / "model")
        assert isinstance(model.head, MlmHead)
        scores = prepared.evaluate(model, CPU).quality
        assert scores["mlm_loss"] == pytest.approx(facts["quality"]["mlm_loss"], rel=1e-6)
        reader = build_model(make_recipe(table(folder / "model", material.train)))
        assert reader.head.task == "span"
        assert build_model(make_recipe({**made, "model": str(folder / "model")})).head.bias.abs().max() > 0

    @pytest.mark.slow
    def test_interrupted_it_ends_with_the_same_weights(self, ran, tmp_path):
        made, folder, _, _ = ran

        def stop(news):
            if isinstance(news, Status) and news.step >= 20:
                os.kill(os.getpid(), signal.SIGTERM)

        recipe = make_recipe({**made, "evaluation": {"at": [0.1]}})
        with pytest.raises(Interrupted):
            train(recipe, tmp_path / "run", device="cpu", tell=stop)
        train(recipe, tmp_path / "run", device="cpu")
        assert_same_weights(tmp_path / "run/model", folder / "model")

    def test_frozen_only_the_heads_are_trained(self, quiet, bare, tmp_path):
        tuning = {"kind": "freeze", "layers": 0, "norms": "above"}
        facts = train(make_recipe({**quiet, "tuning": tuning}), tmp_path / "run", device="cpu")
        assert {name.partition(".")[0] for name in weights(tmp_path / "run/model")} == {"head", "pooler"}
        assert facts["trainable_parameters"] == 32 * 33 + 64 + 30522 + 2 * 33 + 32 * 33
        assert load(tmp_path / "run/model").head.bias.abs().max() > 0


def model_of(vocab):
    """What the task asks of a model: how many words its table has."""
    return SimpleNamespace(encoder=SimpleNamespace(shape=SimpleNamespace(vocab=vocab)))


class TestData:
    def test_held_out_paragraphs_are_not_trained_on(self, minilm, tmp_path):
        words = [f"{name} " * 12 for name in ("alpha", "beta", "gamma", "delta", "sigma", "omega", "kappa", "lambda")]
        place = tmp_path / "words.txt"
        place.write_text("\n\n".join(words))
        tokens = Tokenizer.load(minilm)
        recipe = make_recipe(pretrain(minilm, place, data={"held_out": 0.4}))
        found = Pretraining.prepare(recipe.data, tokens, model_of(30522), 0, 30)
        train, held = ({int(i) for i in part.windows.ids if i > 999} for part in (found.examples, found.evaluation))
        assert train
        assert held
        assert not train & held
        assert len(found.evaluation) == 3

    def test_the_held_out_text_does_not_depend_on_the_seed(self, minilm, text, tmp_path):
        tokens, other = Tokenizer.load(minilm), make_text(tmp_path / "other.txt", seed=9)
        data = make_recipe(pretrain(minilm, text, data={"held_out": 0.0, "evaluate": str(other)})).data
        one, two = (Pretraining.prepare(data, tokens, model_of(30522), seed, 30) for seed in (0, 1))
        assert np.array_equal(one.evaluation.windows.ids, two.evaluation.windows.ids)
        assert not np.array_equal(one.examples.windows.ids, two.examples.windows.ids)

    def test_windows_are_those_of_the_paragraphs(self, prepared):
        assert isinstance(prepared, Pretraining)
        assert 0.4 < prepared.examples.labels.mean() <= 0.5
        assert prepared.negatives == {}

    @pytest.mark.parametrize(
        ("content", "data", "reason"),
        [
            (b"", {}, "has no usable paragraph"),
            (b"\x00\x01\x02" * 99, {}, "it is not plain text"),
            (b"One paragraph of some forty characters, and no more than it. " * 3, {"held_out": 0.0}, "at least 2 are"),
            (
                b"One paragraph of more than forty characters.\n\nAnd another one, about as long as the first.",
                {},
                "at least 2 are",
            ),
        ],
    )
    def test_clear_errors_before_any_training(self, bare, tmp_path, content, data, reason):
        place = tmp_path / "text.txt"
        place.write_bytes(content)
        with pytest.raises(QuothError, match=reason) as error:
            train(make_recipe(pretrain(bare, place, data=data)), tmp_path / "run", device="cpu")
        assert "\n" not in str(error.value)
        assert not (tmp_path / "run/recipe.toml").exists()

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"head": {"kind": "span"}}, 'must be { kind = "mlm" } with data.task "pretrain", and only there'),
            ({"head": "pool(learned) > linear"}, 'must be { kind = "mlm" }'),
            ({"head": {"kind": "mlm", "vocab": 9}}, "the model gives its sizes"),
            ({"head": {"kind": "mlm", "nsp": 1}}, "head.nsp is 1; it must be true or false"),
            ({"data": {"held_out": 1.0}}, "data.held_out is 1.0"),
            ({"data": {"evaluate": "other.txt"}}, "data.held_out is 0.2; it must be 0 where"),
            ({"data": {"task": "span"}, "head": {"kind": "span"}}, "data.held_out is 0.2; it must be 0 but for"),
            ({"data": {"task": "span", "held_out": 0.0}}, "and only there"),
            (
                {"data": {"task": "span", "held_out": 0.0, "whole_words": True}, "head": {"kind": "span"}},
                "data.whole_words is True; it must be false but for data.task 'pretrain'",
            ),
            ({"frozen": {"heads": {"lp": "pool(learned) > linear"}}}, "frozen.heads is"),
        ],
    )
    def test_recipes_that_cannot_be(self, quiet, change, reason):
        made = {**quiet, **change, "data": {**quiet["data"], **change.get("data", {})}}
        with pytest.raises(QuothError, match=reason):
            make_recipe(made)


class TestEvaluation:
    def test_by_hand_and_whatever_the_batches(self, quiet, prepared, monkeypatch):
        model, evaluation = build_model(make_recipe(quiet)), prepared.evaluation
        scores = prepared.evaluate(model, CPU).quality
        feed = MaskedFeed(evaluation, prepared.vocabulary, torch.device("cpu"))
        words, right, count, nsp, nsp_right = [], 0, 0, [], 0
        with torch.no_grad():
            for index in range(len(evaluation)):
                packed, label = feed.batch(np.array([index]), 0)
                logits, said = model.eval()(packed)
                for row, target in zip(logits, packed.targets):
                    if target != NOTHING:
                        words.append(F.cross_entropy(row[None], target[None]).item())
                        right += int(row.argmax() == target)
                        count += 1
                nsp.append(F.cross_entropy(said, label).item())
                nsp_right += int(said.argmax() == label)
        assert scores["mlm_loss"] == pytest.approx(np.mean(words), rel=1e-6)
        assert scores["nsp_loss"] == pytest.approx(np.mean(nsp), rel=1e-6)
        assert scores["mlm_accuracy"] == pytest.approx(100 * right / count)
        assert scores["nsp_accuracy"] == pytest.approx(100 * nsp_right / len(nsp))
        monkeypatch.setattr("quoth.encoder.device.CPU_TOKENS", 100)
        assert prepared.evaluate(model, CPU).quality["mlm_loss"] == pytest.approx(scores["mlm_loss"], rel=1e-6)
        assert not model.training

    def test_a_new_head_guesses(self, quiet, prepared):
        scores = prepared.evaluate(build_model(make_recipe(quiet)), CPU).quality
        assert scores["mlm_loss"] == pytest.approx(np.log(30522), rel=0.02)
        assert scores["nsp_loss"] == pytest.approx(np.log(2), rel=0.1)


class TestWarmUp:
    def test_what_is_missing_is_made(self, bare):
        model = load(bare)
        new = add_heads(model)
        assert set(new) == {n for n, _ in model.named_parameters() if n.startswith(("head.", "pooler."))}
        assert add_heads(model) == ()
        kept = model.head
        add_heads(model)
        assert model.head is kept

    def test_what_is_there_stays(self, bare, tmp_path):
        model = load(bare)
        add_heads(model, nsp=False)
        torch.nn.init.normal_(model.head.bias)
        save(model, tmp_path / "words")
        again = load(tmp_path / "words")
        new = add_heads(again)
        assert set(new) == {"head.nsp.weight", "head.nsp.bias", "pooler.weight", "pooler.bias"}
        assert torch.equal(again.head.bias, model.head.bias)

    @pytest.mark.slow
    def test_warm_up_moves_nothing_else_and_ends_when_flat(self, bare, prepared):
        model = load(bare)
        names = add_heads(model)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        told = []
        arguments = {"every": 10, "patience": 2, "tolerance": 0.02, "most": 400, "tell": told.append}
        settings = replace(SETTINGS, learning_rate=0.1)  # a table of tiny random words needs as much
        found = warm_up(model, prepared, names, make_accelerator("cpu"), settings=settings, **arguments)
        moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
        assert moved == set(names)
        assert found.flat
        assert found.steps == 10 * (len(found.losses) - 1) == 10 * len(told) < 400
        assert found.losses[-1] < 0.8 * found.losses[0]
        assert found.losses[-1] == pytest.approx(prepared.evaluate(model, CPU).quality["loss"], rel=1e-6)
        assert all(value.requires_grad for value in model.parameters())
        assert f"{found.steps} steps" in found.line()

    def test_some_of_them_alone_and_the_same_again(self, bare, prepared):
        found = []
        for _ in range(2):
            model = load(bare)
            add_heads(model)
            before = model.head.bias.clone()
            names = {"head.nsp.weight", "pooler.weight"}
            done = warm_up(model, prepared, names, make_accelerator("cpu"), every=5, most=12, tolerance=0.0)
            assert done.steps <= 12
            assert torch.equal(model.head.bias, before)
            found.append((done, model.pooler.weight.clone()))
        assert found[0][0] == found[1][0]
        assert torch.equal(found[0][1], found[1][1])

    def test_nothing_to_warm_up(self, bare, prepared):
        model = load(bare)
        add_heads(model)
        found = warm_up(model, prepared, (), make_accelerator("cpu"))
        assert (found.steps, len(found.losses), found.flat) == (0, 1, True)

    def test_refusals(self, bare, prepared):
        model = load(bare)
        with pytest.raises(QuothError, match="no head for 'pretrain'"):
            warm_up(model, prepared, (), make_accelerator("cpu"))
        add_heads(model)
        wrong = ["encoder.embeddings.norm.bias"]
        with pytest.raises(QuothError, match=r"encoder\.embeddings\.norm\.bias: is no parameter"):
            warm_up(model, prepared, wrong, make_accelerator("cpu"))
        with pytest.raises(QuothError, match=r"data\.held_out is 0"):
            warm_up(model, replace(prepared, evaluation=None), (), make_accelerator("cpu"))

    @pytest.mark.parametrize(
        ("losses", "flat"),
        [
            ([10.0, 9.0, 8.0], False),
            ([10.0, 9.0, 8.99, 8.98], True),
            ([10.0, 9.0, 9.5, 8.5], False),
            ([10.0, 9.0, 11.0, 12.0], True),
        ],
    )
    def test_flat(self, losses, flat):
        assert _flat(losses, 2, 0.01) == flat
        assert WarmUp(3, tuple(losses), 1, flat).line().endswith("flat")


def test_an_encoder_of_the_hub_keeps_the_heads_that_it_has(minilm, tmp_path, text):
    """A checkpoint of BertForPreTraining: no weight is new, and a run starts from what is there."""
    import shutil

    import transformers

    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=30522
    )
    transformers.BertForPreTraining(config).save_pretrained(tmp_path / "bert")
    shutil.copyfile(minilm / "tokenizer.json", tmp_path / "bert/tokenizer.json")
    assert open_checkpoint(tmp_path / "bert").head["kind"] == "mlm"
    stored = load(tmp_path / "bert")
    model = build_model(make_recipe(pretrain(tmp_path / "bert", text)))
    for name, value in stored.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name
    windows, labels = make_neighbours(["a b c d e f g h i j"] * 2, Tokenizer.load(tmp_path / "bert"), max_length=16)
    assert len(windows) == len(labels) == 2
    assert json.loads((tmp_path / "bert/config.json").read_text())["architectures"] == ["BertForPreTraining"]

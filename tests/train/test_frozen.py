"""Many heads on the states of one frozen encoder: each learns as if it were alone, whatever happens to the run."""

import gzip
import json
import multiprocessing
import os
import random
import signal
import time
import weakref
from contextlib import suppress
from types import SimpleNamespace
from zlib import crc32

import numpy as np
import pytest
import torch
from safetensors import safe_open

from laconic import Reader
from laconic.answer.record import read_answers, write_answers
from laconic.encoder import load
from laconic.errors import LaconicError
from laconic.heads import build_head
from laconic.score import span_quality
from laconic.text import Batches, read
from laconic.train import Interrupted, Status, build_model, make_recipe, prepare, read_recipe, train
from laconic.train.frozen import FrozenLoop, Shared
from laconic.train.loop import seed_of, task_loss
from laconic.train.optimiser import rate_at
from laconic.train.recipe import Frozen
from laconic.train.run import _accelerator
from laconic.train.spans import Feed
from train.material import assert_same_weights, log_lines, make_model, make_recipe_file, table, weights

# Kinds that read different layers, two with dropout (cnn), some with settings of their own.
HEADS = {
    "lp": "pool(learned) > linear",
    "noisy cnn": "compress(4) > cnn(1xN, dropout=0.5) > linear",
    "compress+skip": {"head": "compress(8) > skip > linear", "rate": 3e-3, "schedule": "linear", "warmup": 0.2},
    "cnn": "compress(8) > cnn(1xN) > linear",
    "dot": {"head": "attend(dot)", "decay": 0.1, "clip": 0.1},
    "first": "layer(1) > linear",
    "span": {"kind": "span"},
}
AT = ("0", "0.5", "1")


def frozen_table(place, heads, **sections):
    """A recipe with an encoder of 17 steps, and heads of 17 steps on its beginning, its middle and its end."""
    made = table(place.model, place.train, place.dev, **sections)
    made["frozen"] = {"at": [0, 0.5, 1], "windows": 6, **made.get("frozen", {}), "heads": heads}
    return made


def as_it_is(place, heads, **frozen):
    """The same for the encoder as it was loaded alone."""
    made = frozen_table(place, heads, optimisation={"epochs": 0})
    made["frozen"] |= {"at": [0], **frozen}
    return made


@pytest.fixture(scope="module")
def run(lively, tmp_path_factory):
    """All heads at three moments of the encoder, in one command."""
    folder = tmp_path_factory.mktemp("frozen") / "run"
    told = []
    facts = train(make_recipe(frozen_table(lively, HEADS)), folder, device="cpu", tell=told.append)
    return SimpleNamespace(folder=folder, facts=facts, told=told, frozen=folder / "frozen")


@pytest.fixture(scope="module")
def prepared(lively):
    recipe = make_recipe(as_it_is(lively, HEADS))
    return prepare(recipe, build_model(recipe))


def make_loop(place, prepared, heads, **frozen):
    settings = make_recipe(as_it_is(place, heads, **frozen)).frozen
    feed = Feed(prepared.examples, torch.device("cpu"))
    return FrozenLoop(load(place.model), feed, settings, 0, _accelerator("cpu"), None)


def answers(folder):
    """The lines of an answers file: gzip itself writes the time."""
    return gzip.decompress((folder / "answers.jsonl.gz").read_bytes())


def head_losses(folder, name):
    lines = [line for line in log_lines(folder) if "loss" in line]
    return [(line["step"], line["losses"][name] if "losses" in line else line["loss"]) for line in lines]


class TestAlone:
    @pytest.mark.parametrize("name", HEADS)
    def test_alone_against_together(self, lively, run, tmp_path, name):
        """Weights, losses, answers and scores are the same to the bit; the encoder is not touched."""
        recipe = make_recipe(as_it_is(lively, {name: HEADS[name]}))
        facts = train(recipe, tmp_path / "run", device="cpu")
        alone, together = tmp_path / "run/frozen/epoch-0", run.frozen / "epoch-0"
        assert_same_weights(alone / name / "model", together / name / "model")
        assert head_losses(alone, name) == head_losses(together, name)
        assert [step for step, _ in head_losses(alone, name)] == [10, 17]
        assert answers(alone / name) == answers(together / name)
        assert facts["frozen"]["0"]["heads"][name] == run.facts["frozen"]["0"]["heads"][name]

    def test_the_order_does_not_matter(self, lively, run, tmp_path):
        turned = dict(reversed(HEADS.items()))
        train(make_recipe(as_it_is(lively, turned)), tmp_path / "run", device="cpu")
        for name in HEADS:
            mine, theirs = tmp_path / "run/frozen/epoch-0", run.frozen / "epoch-0"
            assert_same_weights(mine / name / "model", theirs / name / "model")
            assert head_losses(mine, name) == head_losses(theirs, name)
            assert answers(mine / name) == answers(theirs / name)

    def test_dropout_is_that_of_the_name_and_the_step(self, lively, prepared):
        """Two heads of one kind differ by their names; a draw from torch's own state changes nothing."""
        two = {"a": HEADS["cnn"], "b": HEADS["cnn"]}
        first, again = make_loop(lively, prepared, two), make_loop(lively, prepared, {"b": HEADS["cnn"]})
        for _ in range(3):
            first.advance()
            torch.rand(5)
            again.advance()
        mine, other = (dict(learner.head.named_parameters()) for learner in first.learners)
        same = dict(again.learners[0].head.named_parameters())
        assert all(torch.equal(other[name], value) for name, value in same.items())
        assert not all(torch.equal(mine[name], value) for name, value in same.items())
        quiet = make_loop(lively, prepared, {"b": "compress(8) > cnn(1xN, dropout=0) > linear"})
        for _ in range(3):
            quiet.advance()
        assert quiet.take_losses() != again.take_losses()  # so dropout was on

    def test_the_stages_differ(self, run):
        """Each moment of the encoder has states of its own, so what the heads become differs."""
        for name in HEADS:
            found = [weights(run.frozen / f"epoch-{at}" / name / "model") for at in AT]
            for tensor in found[0]:
                values = [value[tensor] for value in found]
                if values[0].numel() > 8:
                    assert not torch.equal(values[0], values[1])
                    assert not torch.equal(values[1], values[2])


SETTINGS = {
    "lp": {},
    "compress+skip": {"rate": 3e-3, "schedule": "linear", "warmup": 0.2},
    "dot": {"decay": 0.1, "clip": 0.1},
    "first": {},
    "span": {"clip": 0.0},
}


class TestReference:
    """The plain way for one head: states under no_grad, loss, backward, clipping, AdamW."""

    def by_hand(self, place, examples, description, name, settings):
        model = load(place.model).eval()
        torch.manual_seed(seed_of(0, crc32(name.encode())))
        head = build_head(description, 32, 2)
        layers = [layer % 3 for layer in head.reads]
        matrices = [value for value in head.parameters() if value.ndim > 1]
        vectors = [value for value in head.parameters() if value.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": settings.decay}, {"params": vectors, "weight_decay": 0.0}]
        optimiser = torch.optim.AdamW(groups, lr=1.0, fused=True)
        batches = Batches(examples.windows.lengths, seed=0, windows=6)
        losses = []
        for step in range(2 * batches.count()):
            indices = batches.batch(*divmod(step, batches.count()))
            packed = examples.windows.packed(indices).map(torch.from_numpy)
            with torch.no_grad():
                states = model.encoder(packed, layers)
            loss = task_loss(head(states, packed), packed, torch.from_numpy(examples.answers[indices]).long())
            loss = loss / len(indices)
            loss.backward()
            if settings.clip:
                torch.nn.utils.clip_grad_norm_(list(head.parameters()), settings.clip)
            for group in optimiser.param_groups:
                group["lr"] = rate_at(step, 2 * batches.count(), settings)
            optimiser.step()
            optimiser.zero_grad()
            losses.append(loss.item())
        return head, losses

    @pytest.mark.parametrize("name", SETTINGS)
    def test_equals_a_loop_by_hand(self, lively, prepared, name):
        own = SETTINGS[name]
        description = HEADS[name] if isinstance(HEADS[name], str) else HEADS[name].get("head", HEADS[name])
        settings = Frozen(**{"epochs": 2.0, **own})
        head, losses = self.by_hand(lively, prepared.examples, description, name, settings)
        heads = {name: {"head": description, **own}, "other": "pool(average) > linear"}
        loop = make_loop(lively, prepared, heads, epochs=2.0)
        found = []
        while loop.step < loop.steps:
            loop.advance()
            found.append(loop.take_losses()[name])
        assert found == losses
        for key, value in loop.learners[0].head.named_parameters():
            assert torch.equal(value, head.get_parameter(key)), key
        assert losses[-1] != losses[0]


class TestOnePass:
    def watched(self, loop):
        """What the encoder is asked for, and weak references to what it gives."""
        asked, alive, layers = [], [], []
        loop.model.encoder.register_forward_hook(
            lambda _, args, found: (asked.append(args[1]), alive.extend(map(weakref.ref, found)), None)[-1]
        )
        for number, layer in enumerate(loop.model.encoder.layers):
            layer.register_forward_hook(lambda *_, number=number + 1: layers.append(number))
        return asked, alive, layers

    @pytest.mark.parametrize(
        ("names", "wanted"),
        [(tuple(HEADS), (0, 1, 2)), (("dot", "span"), (1, 2)), (("first",), (1,)), (("span",), (2,))],
    )
    def test_the_encoder_runs_once_a_batch_for_the_layers_that_are_read(self, lively, prepared, names, wanted):
        loop = make_loop(lively, prepared, {name: HEADS[name] for name in names})
        asked, alive, layers = self.watched(loop)
        for _ in range(3):
            loop.advance()
            assert all(reference() is None for reference in alive)  # nothing outlives its step
        assert asked == [wanted] * 3
        assert len(alive) == 3 * len(wanted)
        assert layers == [*range(1, max(wanted) + 1)] * 3  # layers above the highest are not computed

    def test_states_have_no_graph_and_the_encoder_no_gradient(self, lively, prepared):
        loop = make_loop(lively, prepared, HEADS)
        before = {name: value.clone() for name, value in loop.model.encoder.named_parameters()}
        loop.model.encoder.register_forward_hook(
            lambda _, args, found: [pytest.fail("a graph") for state in found if state.requires_grad] or None
        )
        loop.advance()
        assert not loop.model.training
        for name, value in loop.model.encoder.named_parameters():
            assert value.grad is None
            assert torch.equal(value, before[name]), name

    def test_evaluation_is_one_pass_too(self, lively, tmp_path, monkeypatch):
        passes = []
        states = Shared.states

        def count(self, packed):
            passes.append((self.layers, len(packed.lengths)))
            return states(self, packed)

        monkeypatch.setattr("laconic.train.frozen.Shared.states", count)
        recipe = make_recipe(as_it_is(lively, {"first": HEADS["first"], "dot": HEADS["dot"]}))
        facts = train(recipe, tmp_path / "run", device="cpu")
        assert facts["frozen"]["0"]["steps"] == 17
        assert {layers for layers, _ in passes} == {(1, 2)}
        learnt, looked = passes[:17], passes[17:]
        assert sum(count for _, count in learnt) == 100
        assert sum(count for _, count in looked) == 33  # each window of the evaluation once

    def test_nothing_but_checkpoints_is_written(self, lively, tmp_path):
        seen = set()

        def look(news):
            if isinstance(news, Status):
                folder = tmp_path / "run/frozen"
                seen.update(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

        made = as_it_is(lively, HEADS)
        train(make_recipe({**made, "checkpoints": {"seconds": 0}}), tmp_path / "run", device="cpu", tell=look)
        assert seen == {
            "epoch-0/log.jsonl",
            *(
                f"epoch-0/checkpoints/step-000000{n}/state.{kind}"
                for n in ("09", "16")
                for kind in ("json", "safetensors")
            ),
        }

    def test_a_checkpoint_holds_the_heads_alone(self, lively, tmp_path):
        with pytest.raises(Interrupted):
            train(make_recipe(as_it_is(lively, HEADS)), tmp_path / "run", device="cpu", tell=after(10))
        (path,) = (tmp_path / "run/frozen/epoch-0/checkpoints").glob("step-*/state.safetensors")
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
        kinds = {
            name: build_head(d if not (isinstance(d, dict) and "head" in d) else d["head"], 32, 2)
            for name, d in HEADS.items()
        }
        own = {f"{name}/{key}" for name, head in kinds.items() for key, _ in head.named_parameters()}
        assert names == {"loss_sum", *(f"{kind}.{key}" for key in own for kind in ("model", "exp_avg", "exp_avg_sq"))}


class TestFolders:
    def test_what_lies_there(self, run):
        assert {path.name for path in run.folder.iterdir()} == {
            *(".lock", "recipe.toml", "log.jsonl", "metrics.json", "answers.jsonl.gz"),
            *("model", "snapshots", "frozen"),
        }
        assert {path.name for path in (run.folder / "snapshots").iterdir()} == {"epoch-0.5"}
        assert {path.name for path in run.frozen.iterdir()} == {f"epoch-{at}" for at in AT}
        for at in AT:
            own = {"encoder"} if at != "0" else set()  # the encoder as it was loaded has no head
            here = run.frozen / f"epoch-{at}"
            assert {path.name for path in here.iterdir()} == {"log.jsonl", "metrics.json", *HEADS, *own}
            for name in HEADS:
                assert {path.name for path in (here / name).iterdir()} == {"model", "answers.jsonl.gz", "metrics.json"}

    def test_metrics(self, run):
        facts = json.loads((run.folder / "metrics.json").read_text())
        assert facts == run.facts
        assert facts["frozen"].keys() == set(AT)
        for at in AT:
            stage = json.loads((run.frozen / f"epoch-{at}/metrics.json").read_text())
            assert stage == facts["frozen"][at]
            assert stage["steps"] == 17
            assert stage["windows_per_second"] == pytest.approx(100 / stage["train_seconds"])
            for name in HEADS:
                found = stage["heads"][name]
                assert found == json.loads((run.frozen / f"epoch-{at}" / name / "metrics.json").read_text())
                stored = weights(run.frozen / f"epoch-{at}" / name / "model")
                assert found["parameters"] == sum(value.numel() for value in stored.values())
                assert found["rate"] == (3e-3 if name == "compress+skip" else 1e-3)
        last = facts["frozen"]["1"]["heads"]["encoder"]["quality"]
        assert last == facts["quality"]  # the encoder's own head, from the same pass as the others
        assert answers(run.frozen / "epoch-1/encoder") == answers(run.folder)

    @pytest.mark.parametrize("at", AT)
    def test_a_head_is_a_model_folder_whose_answers_are_kept(self, run, lively, tmp_path, at):
        """`Reader` finds base, windows and head; its answers and scores are those that were kept."""
        dataset = read(str(lively.dev))
        base = {"0": lively.model, "0.5": run.folder / "snapshots/epoch-0.5", "1": run.folder / "model"}[at]
        plain = load(base)
        for name in HEADS:
            here = run.frozen / f"epoch-{at}" / name
            assert (here / "model/delta.safetensors").exists()
            assert all(tensor.startswith("head.") for tensor in weights(here / "model"))
            model = load(here / "model")
            for key, value in plain.encoder.named_parameters():
                assert torch.equal(model.encoder.get_parameter(key), value), key
            reader = Reader.load(here / "model", device="cpu")
            assert (reader.max_length, reader.step, reader.question_limit) == (64, 24, 24)
            decoded = reader.decode(dataset.questions)
            write_answers(tmp_path / "answers.jsonl.gz", dataset.questions, decoded)
            assert answers(tmp_path) == answers(here)
            assert span_quality(dataset, decoded)[1] == json.loads((here / "metrics.json").read_text())["quality"]
        kept = {name: read_answers(run.frozen / f"epoch-{at}" / name / "answers.jsonl.gz").answers for name in HEADS}
        assert len(set(map(str, kept.values()))) == len(HEADS)  # the heads do not all say the same

    def test_the_log_and_who_watches(self, run):
        for at in AT:
            lines = log_lines(run.frozen / f"epoch-{at}")
            assert [(line["step"], "losses" in line) for line in lines] == [(10, True), (17, True), (17, False)]
            for line in lines[:2]:
                assert line["losses"].keys() == HEADS.keys()
                assert line["loss"] == pytest.approx(np.mean(list(line["losses"].values())))
                assert line["rate"] == 1e-3
            assert lines[2]["evaluation"]["heads"].keys() == run.facts["frozen"][at]["heads"].keys()
        said = [news for news in run.told if isinstance(news, str)]
        assert [line for line in said if line.startswith("heads on")] == [
            f"heads on the encoder of epoch {at}" for at in AT
        ]
        assert sum(line.startswith("lp: exact ") for line in said) == 3
        status = [news for news in run.told if isinstance(news, Status)]
        assert [(news.step, news.steps) for news in status] == [(10, 17), (17, 17)] * 4

    def test_a_recipe_reads_back(self, run, lively):
        recipe = read_recipe(run.folder / "recipe.toml")
        assert recipe == make_recipe(frozen_table(lively, HEADS))
        assert recipe.frozen.heads == HEADS

    def test_the_command_tells_again_and_trains_nothing(self, run, lively, tmp_path, cli):
        recipe = make_recipe_file(tmp_path / "r.toml", frozen_table(lively, HEADS))
        (run.folder / "tuned.json").write_text("{}")  # as if killed between the last two writes
        before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*") if path.name != ".lock"}
        result = cli("train", recipe, "--out", run.folder, "--json", "--device", "cpu")
        assert json.loads(result.stdout) == run.facts
        del before[run.folder / "tuned.json"]
        assert not (run.folder / "tuned.json").exists()
        assert {path: path.stat().st_mtime_ns for path in before} == before

    def test_another_head_is_another_recipe(self, run, lively, tmp_path, cli):
        recipe = make_recipe_file(tmp_path / "r.toml", frozen_table(lively, HEADS))
        result = cli("train", recipe, "frozen.heads.dot.clip=1", "--out", run.folder)
        assert result.returncode == 2
        assert "holds a run of another recipe (there, here: frozen.heads.dot.clip: 0.1, 1)" in result.stderr


class TestEncoders:
    def test_without_epochs_the_encoder_is_as_it_is(self, lively, tmp_path):
        """at is then 0 by default; the encoder itself was neither trained nor evaluated."""
        made = as_it_is(lively, {"lp": HEADS["lp"]})
        del made["frozen"]["at"]
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        assert (facts["steps"], facts["quality"], facts["evaluations"]) == (0, {}, [])
        assert facts["frozen"].keys() == {"0"}
        plain, saved = load(lively.model), load(tmp_path / "run/model")
        for name, value in plain.encoder.named_parameters():
            assert torch.equal(saved.encoder.get_parameter(name), value)
        assert not (tmp_path / "run/log.jsonl").exists()

    def test_an_encoder_with_a_head_of_its_own_is_scored_beside_the_others(self, run, lively, tmp_path):
        """The result of one run is the model of another, at windows of its own."""
        made = as_it_is(
            SimpleNamespace(model=run.folder / "model", train=lively.train, dev=lively.dev), {"lp": HEADS["lp"]}
        )
        made["data"] |= {"max_length": 60}
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        assert facts["frozen"]["0"]["heads"].keys() == {"encoder", "lp"}
        reader = Reader.load(tmp_path / "run/frozen/epoch-0/lp/model", device="cpu")
        assert reader.max_length == 60  # of the recipe, not of the model below

    @pytest.mark.parametrize(
        ("tuning", "within"),
        [
            ({"kind": "adapters", "size": 4}, True),
            ({"kind": "lora", "rank": 2}, True),
            ({"kind": "freeze", "layers": 1}, False),
            ({"kind": "freeze", "layers": 0, "norms": "above"}, False),
        ],
    )
    def test_on_a_tuned_encoder(self, lively, tmp_path, tuning, within):
        """A snapshot is itself a delta; a head on it is one on that, or with adapters and LoRA has them within it."""
        heads = {"lp": HEADS["lp"], "dot": HEADS["dot"]}
        made = frozen_table(lively, heads, tuning=tuning)
        made["frozen"]["at"] = [0.5, 1]
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        dataset = read(str(lively.dev))
        for at, base in (("0.5", "snapshots/epoch-0.5"), ("1", "model")):
            plain = load(tmp_path / "run" / base)
            for name in heads:
                here = tmp_path / f"run/frozen/epoch-{at}" / name
                model = load(here / "model")
                own = {f"head.{key}" for key in model.head.state_dict()}
                learnt = {key for key in weights(tmp_path / "run" / base) if not key.startswith("head.")}
                assert weights(here / "model").keys() == own | (learnt if within else set())
                for key, value in plain.encoder.named_parameters():
                    assert torch.equal(model.encoder.get_parameter(key), value), key
                decoded = Reader.load(here / "model", device="cpu").decode(dataset.questions)
                assert span_quality(dataset, decoded)[1] == facts["frozen"][at]["heads"][name]["quality"]

    def test_without_evaluation_data(self, lively, tmp_path):
        made = as_it_is(lively, {"lp": HEADS["lp"]})
        made["data"]["evaluate"] = ""
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        assert facts["frozen"]["0"]["heads"]["lp"]["quality"] == {}
        assert {path.name for path in (tmp_path / "run/frozen/epoch-0/lp").iterdir()} == {"model", "metrics.json"}

    def test_a_fraction_of_the_data_and_of_an_epoch(self, lively, tmp_path):
        made = as_it_is(lively, {"lp": HEADS["lp"]}, epochs=0.5)
        made["data"]["fraction"] = 0.5
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        assert facts["frozen"]["0"]["steps"] == 4  # half of 9, rounded to the even one

    def test_bf16(self, lively, tmp_path):
        made = as_it_is(lively, {"lp": HEADS["lp"], "cnn": HEADS["cnn"]})
        made["optimisation"]["precision"] = "bf16"
        train(make_recipe(made), tmp_path / "run", device="cpu")
        assert all(
            value.dtype == torch.float32 for value in weights(tmp_path / "run/frozen/epoch-0/cnn/model").values()
        )


class TestMistakes:
    """Found before the encoder learns, and named."""

    @pytest.fixture(scope="class")
    @classmethod
    def bare(cls, minilm, lively, tmp_path_factory):
        """The same without a pooler."""
        model = make_model(tmp_path_factory.mktemp("bare") / "small", minilm, pooler=False)
        return SimpleNamespace(model=model, train=lively.train, dev=lively.dev)

    @pytest.mark.parametrize(
        ("head", "culprit"),
        [
            ("pool(lerned) > linear", "recipe: frozen.heads.it: head: pool: how must be learned or average"),
            ("pol(learned) > linear", "recipe: frozen.heads.it: head: unknown step 'pol'; did you mean pool?"),
            ("layer(3) > linear", "recipe: frozen.heads.it: head: layer(3): this encoder has the states 0"),
            ({"kind": "spam"}, "recipe: frozen.heads.it: head: kind 'spam' is unknown"),
            (
                {"kind": "class", "labels": 2},
                "recipe: frozen.heads.it gives classes, but data.task = 'span' wants spans",
            ),
            ({"head": "linear", "rte": 1}, "unknown key frozen.heads.it.rte; did you mean frozen.heads.it.rate?"),
        ],
    )
    def test_a_head(self, lively, tmp_path, cli, head, culprit):
        made = frozen_table(lively, {"lp": HEADS["lp"]})
        path = make_recipe_file(tmp_path / "r.toml", made)
        word = f"frozen.heads.it={head}" if isinstance(head, str) else f"frozen.heads.it={inline(head)}"
        result = cli("train", path, word, "--out", tmp_path / "run", "--device", "cpu")
        assert result.returncode == 2
        (line,) = result.stderr.splitlines()
        assert culprit in line
        assert not (tmp_path / "run/recipe.toml").exists()

    @pytest.mark.parametrize("at", [[0], [0.5, 0], [1]])
    def test_a_pooler_that_the_encoder_lacks(self, bare, tmp_path, at):
        pooled = {"kind": "class", "labels": 2, "pooled": True}
        plain = {"kind": "class", "labels": 2}
        made = frozen_table(bare, {"lp": pooled}, head=pooled if 0 in at else plain)
        made["data"]["task"] = "answerable"
        made["frozen"]["at"] = at
        with pytest.raises(LaconicError) as raised:
            train(make_recipe(made), tmp_path / "run", device="cpu")
        assert str(raised.value) == f"recipe: frozen.heads.lp reads a pooler, which {bare.model} does not have"
        assert not (tmp_path / "run/recipe.toml").exists()

    def test_a_pooler_that_learnt_with_the_encoder(self, bare, tmp_path):
        pooled = {"kind": "class", "labels": 2, "pooled": True}
        made = frozen_table(bare, {"lp": pooled}, head=pooled, optimisation={"epochs": 0.2})
        made["data"]["task"] = "answerable"
        made["frozen"]["at"] = []
        facts = train(make_recipe(made), tmp_path / "run", device="cpu")
        assert "exact" in facts["frozen"]["0.2"]["heads"]["lp"]["quality"]

    @pytest.mark.parametrize(
        ("frozen", "culprit"),
        [({"windows": None, "tokens": 32}, "more than the budget of 32"), ({"windows": 0}, "frozen.windows is 0")],
    )
    def test_steps(self, lively, tmp_path, frozen, culprit):
        made = frozen_table(lively, {"lp": HEADS["lp"]})
        made["frozen"] = {key: value for key, value in {**made["frozen"], **frozen}.items() if value is not None}
        with pytest.raises(LaconicError, match=culprit):
            train(make_recipe(made), tmp_path / "run", device="cpu")
        assert not (tmp_path / "run/recipe.toml").exists()

    def test_a_loss_that_diverges_names_its_head(self, lively, tmp_path):
        heads = {"calm": HEADS["lp"], "wild": {"head": "compress(8) > linear", "rate": 1e30, "clip": 0}}
        with pytest.raises(LaconicError, match=r"the loss of wild is (nan|inf) at step 10; lower its rate"):
            train(make_recipe(as_it_is(lively, heads)), tmp_path / "run", device="cpu")


def inline(value):
    return "{" + ", ".join(f"{key} = {json.dumps(inner)}" for key, inner in value.items()) + "}"


def after(step, part=None):
    """A `tell` that sends this process SIGTERM at the first line of the log after so many steps (of such a stage)."""
    seen = []

    def tell(news):
        if isinstance(news, str):
            seen.append(news)
        here = part is None or (seen and seen[-1].endswith(part))
        if isinstance(news, Status) and news.step >= step and here:
            os.kill(os.getpid(), signal.SIGTERM)

    return tell


def assert_same_runs(run, whole):
    """Encoder, snapshots, every head of every stage with its losses and answers: the same; and nothing is left over."""
    assert_same_weights(run / "model", whole / "model")
    assert_same_weights(run / "snapshots/epoch-0.5", whole / "snapshots/epoch-0.5")
    for at in AT:
        mine, theirs = run / f"frozen/epoch-{at}", whole / f"frozen/epoch-{at}"
        for name in HEADS:
            assert_same_weights(mine / name / "model", theirs / name / "model")
            assert answers(mine / name) == answers(theirs / name)
            assert head_losses(mine, name) == head_losses(theirs, name)
        heads = [json.loads((folder / "metrics.json").read_text())["heads"] for folder in (mine, theirs)]
        assert heads[0] == heads[1]
    left = [path.name for path in run.rglob(".*") if path.name != ".lock"]
    assert not left, "nothing half-written stays"
    assert not list(run.rglob("checkpoints"))
    assert not (run / "tuned.json").exists()


class TestInterrupted:
    def test_sigterm_in_every_part(self, lively, run, tmp_path):
        recipe = make_recipe(frozen_table(lively, HEADS))
        place = tmp_path / "run"
        with pytest.raises(Interrupted, match="stopped at step 10 of 17"):
            train(recipe, place, device="cpu", tell=after(10))
        assert (place / "checkpoints/step-00000010").exists()
        for at in AT:
            with pytest.raises(Interrupted, match="stopped at step 10 of 17"):
                train(recipe, place, device="cpu", tell=after(10, f"epoch {at}"))
            assert not (place / "checkpoints").exists()
            assert (place / "tuned.json").exists()
            assert [path.name for path in (place / f"frozen/epoch-{at}/checkpoints").iterdir()] == ["step-00000010"]
        train(recipe, place, device="cpu")
        assert_same_runs(place, run.folder)

    def test_sigterm_at_the_last_step_of_a_part(self, lively, run, tmp_path):
        """The part at hand is finished, and the next one stops at its first step."""
        recipe = make_recipe(frozen_table(lively, HEADS))
        place = tmp_path / "run"
        with pytest.raises(Interrupted, match="stopped at step 1 of 17"):
            train(recipe, place, device="cpu", tell=after(17))
        assert [path.name for path in (place / "frozen/epoch-0/checkpoints").iterdir()] == ["step-00000001"]
        train(recipe, place, device="cpu")
        assert_same_runs(place, run.folder)

    def test_another_encoder_below_is_refused(self, lively, tmp_path):
        recipe = make_recipe(as_it_is(lively, {"lp": HEADS["lp"]}))
        with pytest.raises(Interrupted):
            train(recipe, tmp_path / "run", device="cpu", tell=after(10))
        path = tmp_path / "run/frozen/epoch-0/checkpoints/step-00000010/state.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "encoder": "0" * 64}))
        with pytest.raises(LaconicError, match="the encoder has changed since it was written; use another --out"):
            train(recipe, tmp_path / "run", device="cpu")


@pytest.fixture(scope="module")
def processes():
    """Processes that are forked from one that has imported torch already, with one thread."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["laconic.train"])
    yield context
    if before is None:
        del os.environ["OMP_NUM_THREADS"]
    else:
        os.environ["OMP_NUM_THREADS"] = before


SEED = 20261115


def test_kills_in_every_part(lively, run, tmp_path, processes):
    """SIGKILL while the encoder learns, while heads do, while they are saved, and between two stages."""
    recipe = make_recipe({**frozen_table(lively, HEADS), "checkpoints": {"seconds": 0}})
    place, drawn = tmp_path / "run", random.Random(SEED)
    stages = [place / f"frozen/epoch-{at}" for at in AT]
    moments = [
        ("the encoder", lambda: kept(place, 4)),
        ("the first stage", lambda: kept(stages[0], 9)),
        ("saving heads", lambda: stages[0].glob("*/*model*")),  # the folder, or the part that will be it
        ("between stages", lambda: stages[0].glob("metrics.json")),
        ("the second stage", lambda: kept(stages[1], 6)),
        ("the last stage", lambda: kept(stages[2], 2)),
        ("the end", lambda: stages[2].glob("*/*model*")),
    ]
    for what, found in moments:
        learning = what not in ("saving heads", "between stages", "the end")
        before = set(found()) if learning else set()
        process = processes.Process(target=train, args=(recipe, place), kwargs={"device": "cpu"})
        process.start()
        while process.is_alive() and not set(found()) - before:
            time.sleep(0.0005)
        time.sleep(drawn.uniform(0, 0.05) if learning else 0)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        print(f"{what}: {process.exitcode}, {[path.name for stage in (place, *stages) for path in kept(stage)]}")
        assert process.exitcode == -signal.SIGKILL or what == "the end"  # where a moment later there is nothing to kill
    train(recipe, place, device="cpu")
    assert_same_runs(place, run.folder)


def kept(folder, least=0):
    """The checkpoints from step `least` on."""
    return [path for path in (folder / "checkpoints").glob("step-*") if int(path.name[5:]) >= least]

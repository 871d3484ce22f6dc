"""Many heads on the states of one frozen encoder: each is trained as if it were alone, from one pass a batch."""

import weakref
from zlib import crc32

import pytest
import torch
from safetensors import safe_open

from quoth.encoder.device import Device
from quoth.heads import build_head
from quoth.model.loading import load
from quoth.tasks.examples import Feed
from quoth.tasks.seeds import seed_of
from quoth.train.build import build_model
from quoth.train.frozen_heads import FrozenHeads, Shared
from quoth.train.log import Status
from quoth.train.loop import Loop
from quoth.train.optimiser import learning_rate_at
from quoth.train.recipe import make_recipe
from quoth.train.run import make_accelerator
from quoth.train.settings import Frozen
from quoth.train.training import Interrupted
from quoth.windows.batches import Batches
from train.heads_material import AT, HEADS, answers, as_it_is, head_losses
from train.material import CPU, assert_same_weights, prepare, stop_after, train, weights


@pytest.fixture(scope="module")
def prepared(lively):
    recipe = make_recipe(as_it_is(lively, HEADS))
    return prepare(recipe, build_model(recipe))


def make_loop(place, prepared, heads, **frozen):
    settings = make_recipe(as_it_is(place, heads, **frozen)).frozen
    feed = Feed(prepared.examples, torch.device("cpu"))
    accelerator = make_accelerator("cpu")
    objective = FrozenHeads(load(place.model), prepared, feed, settings, 0, accelerator, CPU)
    return Loop(objective, feed.lengths, settings, 0, accelerator)


LATER = ("cnn", "first", "span")  # like others, and so for the slow lane


class TestAlone:
    @pytest.mark.parametrize(
        "name", [pytest.param(name, marks=pytest.mark.slow if name in LATER else ()) for name in HEADS]
    )
    def test_alone_against_together(self, lively, staged, tmp_path, name):
        """Weights, losses, answers and scores are the same to the bit; the encoder is not touched."""
        recipe = make_recipe(as_it_is(lively, {name: HEADS[name]}))
        facts = train(recipe, tmp_path / "run", device="cpu")
        alone, together = tmp_path / "run/frozen/epoch-0", staged.frozen / "epoch-0"
        assert_same_weights(alone / name / "model", together / name / "model")
        assert head_losses(alone, name) == head_losses(together, name)
        assert [step for step, _ in head_losses(alone, name)] == [10, 17]
        assert answers(alone / name) == answers(together / name)
        assert facts["frozen"]["0"]["heads"][name] == staged.facts["frozen"]["0"]["heads"][name]

    def test_the_order_does_not_matter(self, lively, staged, tmp_path):
        turned = dict(reversed(HEADS.items()))
        train(make_recipe(as_it_is(lively, turned)), tmp_path / "run", device="cpu")
        for name in HEADS:
            mine, theirs = tmp_path / "run/frozen/epoch-0", staged.frozen / "epoch-0"
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
        mine, other = (dict(head.named_parameters()) for head in first.objective.heads.values())
        same = dict(again.objective.heads["b"].named_parameters())
        assert all(torch.equal(other[name], value) for name, value in same.items())
        assert not all(torch.equal(mine[name], value) for name, value in same.items())
        quiet = make_loop(lively, prepared, {"b": "compress(8) > cnn(1xN, dropout=0) > linear"})
        for _ in range(3):
            quiet.advance()
        assert quiet.take_losses() != again.take_losses()  # so dropout was on

    def test_the_stages_differ(self, staged):
        """Each moment of the encoder has states of its own, so what the heads become differs."""
        for name in HEADS:
            found = [weights(staged.frozen / f"epoch-{at}" / name / "model") for at in AT]
            for tensor in found[0]:
                values = [value[tensor] for value in found]
                if values[0].numel() > 8:
                    assert not torch.equal(values[0], values[1])
                    assert not torch.equal(values[1], values[2])


SETTINGS = {
    "lp": {},
    "compress+skip": {"learning_rate": 3e-3, "schedule": "linear", "warmup_ratio": 0.2},
    "dot": {"weight_decay": 0.1, "max_grad_norm": 0.1},
    "first": {},
    "span": {"max_grad_norm": 0.0},
}


class TestReference:
    """The plain way for one head: states under no_grad, loss, backward, clipping, AdamW."""

    def by_hand(self, place, task, description, name, settings):
        examples = task.examples
        model = load(place.model).eval()
        torch.manual_seed(seed_of(0, crc32(name.encode())))
        head = build_head(description, 32, 2)
        layers = [layer % 3 for layer in head.reads]
        matrices = [value for value in head.parameters() if value.ndim > 1]
        vectors = [value for value in head.parameters() if value.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        optimiser = torch.optim.AdamW(groups, lr=1.0, fused=True)
        batches = Batches(examples.windows.lengths, seed=0, batch_size=6)
        losses = []
        for step in range(2 * batches.count()):
            indices = batches.batch(*divmod(step, batches.count()))
            packed = examples.windows.packed(indices).map(torch.from_numpy)
            with torch.no_grad():
                states = model.encoder(packed, layers)
            loss = task.loss(head(states, packed), packed, torch.from_numpy(examples.labels[indices]).long())
            loss = loss / len(indices)
            loss.backward()
            if settings.max_grad_norm:
                torch.nn.utils.clip_grad_norm_(list(head.parameters()), settings.max_grad_norm)
            for group in optimiser.param_groups:
                group["lr"] = learning_rate_at(step, 2 * batches.count(), settings)
            optimiser.step()
            optimiser.zero_grad()
            losses.append(loss.item())
        return head, losses

    @pytest.mark.parametrize("name", SETTINGS)
    def test_equals_a_loop_by_hand(self, lively, prepared, name):
        own = SETTINGS[name]
        description = HEADS[name] if isinstance(HEADS[name], str) else HEADS[name].get("head", HEADS[name])
        settings = Frozen(**{"epochs": 2.0, **own})
        head, losses = self.by_hand(lively, prepared, description, name, settings)
        heads = {name: {"head": description, **own}, "other": "pool(average) > linear"}
        loop = make_loop(lively, prepared, heads, epochs=2.0)
        found = []
        while loop.step < loop.steps:
            loop.advance()
            found.append(loop.take_losses()[name])
        assert found == losses
        for key, value in loop.objective.heads[name].named_parameters():
            assert torch.equal(value, head.get_parameter(key)), key
        assert losses[-1] != losses[0]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")
class TestOnAGPU:
    """There heads share what they read of the states: alone and together are the same up to rounding."""

    LINES = {name: line for name, line in HEADS.items() if isinstance(line, str)} | {
        "average": "pool(average) > linear",
        "each": "compress(24, each) > linear",
        "image": "cnn(1xN, dropout=0) > linear",
        "dilated": "cnn(1xN, dilation=2) > linear",
        "block": "attend(encoder)",
    }

    def losses(self, place, prepared, lines, steps):
        settings = make_recipe(as_it_is(place, lines)).frozen
        accelerator = make_accelerator("cuda")
        feed = Feed(prepared.examples, accelerator.device)
        device = Device.choose(accelerator.device, "bf16")
        objective = FrozenHeads(load(place.model), prepared, feed, settings, 0, accelerator, device)
        loop, found = Loop(objective, feed.lengths, settings, 0, accelerator), []
        for _ in range(steps):
            loop.advance()
            found.append(loop.take_losses())
        return found, {name: [v.detach().cpu() for v in head.parameters()] for name, head in objective.heads.items()}

    def test_alone_against_together(self, lively, prepared):
        together, _ = self.losses(lively, prepared, self.LINES, 6)
        for name, line in self.LINES.items():
            alone, _ = self.losses(lively, prepared, {name: line}, 6)
            assert [step[name] for step in alone] == pytest.approx([step[name] for step in together], rel=2e-3), name

    def test_twice_the_same_bits(self, lively, prepared):
        (first, mine), (again, other) = (self.losses(lively, prepared, self.LINES, 6) for _ in range(2))
        assert first == again
        assert all(torch.equal(a, b) for name in mine for a, b in zip(mine[name], other[name]))

    def test_a_whole_run_twice_the_same_bits(self, lively, tmp_path):
        """Through `train`, which asks torch for deterministic operations: convolutions of every kind too."""
        heads = self.LINES | {
            "n by n": "compress(8) > cnn(NxN) > linear",
            "inception": "compress(8) > inception > linear",
            "xception": "compress(8) > xception > linear",
            "cacnn": {"kind": "cacnn", "width": 3},
        }
        recipe = make_recipe(as_it_is(lively, heads))
        for name in ("first", "second"):
            train(recipe, tmp_path / name, device="cuda")
        for name in heads:
            folders = [tmp_path / run / "frozen/epoch-0" / name / "model" for run in ("first", "second")]
            assert_same_weights(*folders)


class TestOnePass:
    def watched(self, loop):
        """What the encoder is asked for, and weak references to what it gives."""
        asked, alive, layers = [], [], []
        loop.objective.model.encoder.register_forward_hook(
            lambda _, args, found: (asked.append(args[1]), alive.extend(map(weakref.ref, found)), None)[-1]
        )
        for number, layer in enumerate(loop.objective.model.encoder.layers):
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
        before = {name: value.clone() for name, value in loop.objective.model.encoder.named_parameters()}
        loop.objective.model.encoder.register_forward_hook(
            lambda _, args, found: [pytest.fail("a graph") for state in found if state.requires_grad] or None
        )
        loop.advance()
        assert not loop.objective.model.training
        for name, value in loop.objective.model.encoder.named_parameters():
            assert value.grad is None
            assert torch.equal(value, before[name]), name

    def test_evaluation_is_one_pass_too(self, lively, tmp_path, monkeypatch):
        passes = []
        states = Shared.states

        def count(self, packed):
            passes.append((self.layers, len(packed.lengths)))
            return states(self, packed)

        monkeypatch.setattr("quoth.train.frozen_heads.Shared.states", count)
        recipe = make_recipe(as_it_is(lively, {"first": HEADS["first"], "dot": HEADS["dot"]}))
        facts = train(recipe, tmp_path / "run", device="cpu")
        assert facts["frozen"]["0"]["steps"] == 17
        assert {layers for layers, _ in passes} == {(1, 2)}
        trained, scored = passes[:17], passes[17:]
        assert sum(count for _, count in trained) == 100
        assert sum(count for _, count in scored) == 33  # each window of the evaluation once

    def test_nothing_but_checkpoints_is_written(self, lively, tmp_path):
        seen = set()

        def watch(news):
            if isinstance(news, Status):
                folder = tmp_path / "run/frozen"
                seen.update(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

        made = as_it_is(lively, HEADS)
        train(make_recipe({**made, "checkpoints": {"seconds": 0}}), tmp_path / "run", device="cpu", tell=watch)
        assert seen == {
            "epoch-0/log.jsonl",
            *(
                f"epoch-0/checkpoints/step-000000{n}/{name}"
                for n in ("08", "09", "15", "16")
                for name in ("state.json", "state.safetensors", "hashes.json")
            ),
        }

    def test_a_checkpoint_holds_the_heads_alone(self, lively, tmp_path):
        with pytest.raises(Interrupted):
            train(make_recipe(as_it_is(lively, HEADS)), tmp_path / "run", device="cpu", tell=stop_after(10))
        path = max((tmp_path / "run/frozen/epoch-0/checkpoints").glob("step-*/state.safetensors"))
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
        kinds = {
            name: build_head(d if not (isinstance(d, dict) and "head" in d) else d["head"], 32, 2)
            for name, d in HEADS.items()
        }
        own = {f"{name}/{key}" for name, head in kinds.items() for key, _ in head.named_parameters()}
        assert names == {"loss_sum", *(f"{kind}.{key}" for key in own for kind in ("model", "exp_avg", "exp_avg_sq"))}

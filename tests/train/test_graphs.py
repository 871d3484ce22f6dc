"""Steps as CUDA graphs. On any machine: what inert windows do to losses and gradients. On a GPU: the graphs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st

from quoth.encoder.device import Device
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.encoder.style import Style
from quoth.heads import build_head
from quoth.heads.mlm import mlm_table
from quoth.model import apply
from quoth.model.model import Model
from quoth.prune.cost import Parameters, betas
from quoth.prune.gate_training import GateTraining
from quoth.prune.penalty import make_penalty
from quoth.tasks.classification import GlueTask
from quoth.tasks.examples import Examples
from quoth.tasks.masking import Vocabulary
from quoth.tasks.pretraining import Pretraining
from quoth.tasks.span import SpanTask
from quoth.train import graphs
from quoth.train.distillation import Distillation, DistillationLoss
from quoth.train.fine_tuning import FineTuning
from quoth.train.frozen_heads import FrozenHeads
from quoth.train.graphs import ROUND, StepGraphs, choose_sizes, size_of
from quoth.train.loop import Loop
from quoth.train.resume import read_checkpoint, write_checkpoint
from quoth.train.settings import Frozen, Optimisation
from quoth.train.teacher_logits import TaughtFeed
from quoth.train.warm_up import HeadsAlone
from quoth.tune.adapters import Adapters
from quoth.tune.freeze import BitFit, Freeze
from quoth.tune.lora import LoRA
from quoth.windows import Batches
from quoth.windows.columns import Windows
from quoth.windows.packed import NOTHING

VOCAB, LONGEST = 97, 40
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")


def make_examples(count=48, labels="span", seed=0, longest=LONGEST):
    """Random windows of 3 to `longest` tokens; labels: "span", a number of classes, or "score"."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, longest + 1, count)
    lengths[0] = longest
    starts = np.append(0, np.cumsum(lengths))
    tokens, words = int(starts[-1]), np.concatenate([np.arange(n) for n in lengths]).astype(np.int32)
    windows = Windows(
        rng.integers(5, VOCAB, tokens).astype(np.int32),
        rng.integers(0, 2, tokens).astype(np.int32),
        np.zeros((tokens, 2), np.int32),
        words,
        starts,
        np.arange(count, dtype=np.int32),
        np.stack([np.zeros(count), lengths], 1).astype(np.int32),
    )
    if labels == "span":
        return Examples(windows, np.sort(rng.integers(0, lengths[:, None], (count, 2)), axis=1))
    if labels == "score":
        return Examples(windows, rng.uniform(0, 5, count))
    return Examples(windows, rng.integers(0, labels, count))


def make_task(kind, **settings):
    if kind == "span":
        return SpanTask(make_examples(**settings), [], None)
    if kind == "mlm":
        return Pretraining(make_examples(labels=2, **settings), Vocabulary(4, VOCAB, (0, 1, 2, 3, 4)))
    if kind == "score":
        return GlueTask("stsb", (), make_examples(labels="score", **settings))
    return GlueTask("mnli", ("a", "b", "c"), make_examples(labels=3, **settings))


HEADS = {
    "span": {"kind": "span"},
    "mlm": None,
    "classes": {"kind": "class", "labels": 3},
    "score": {"kind": "class", "labels": 1},
}


def make_model(kind="span", head=None, dropout=0.0, hidden=64, seed=0):
    torch.manual_seed(seed)
    shape = Shape.uniform(layers=2, hidden=hidden, heads=2, vocab=VOCAB)
    encoder = Encoder(shape, Style(dropout=dropout, attention_dropout=dropout))
    described = head or (mlm_table(shape, encoder.style) if kind == "mlm" else HEADS[kind])
    made = build_head(described, hidden, 2)
    model = Model(encoder, made, pooler=made.pooled)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" not in name:
                value.normal_(0.0, 0.1)
    return model


def size_for(lengths, indices, batch_size=6):
    """The size of a batch of these windows."""
    return size_of(lengths[indices], choose_sizes(Batches(lengths, seed=0, batch_size=batch_size)))


class TestSize:
    @given(st.lists(st.integers(1, 400), min_size=1, max_size=120), st.integers(1, 40), st.integers(0, 3))
    def test_every_batch_fits_one_and_inert_windows_are_short(self, lengths, batch_size, seed):
        batches = Batches(lengths, seed=seed, batch_size=batch_size)
        sizes = choose_sizes(batches)
        assert 1 <= len(sizes) <= 3
        for epoch in (0, 5):
            for index in range(batches.count()):
                mine = batches.lengths[batches.batch(epoch, index)]
                size = size_of(mine, sizes)
                inert, rest = size.windows - len(mine), size.tokens - mine.sum()
                assert size.tokens % ROUND == 0
                assert 1 <= inert <= rest <= inert * size.longest
                assert size.longest == max(2, max(lengths))

    def test_one_is_enough_where_batches_are_nearly_equal(self):
        lengths = np.random.default_rng(0).integers(30, 384, 4096)
        assert len(choose_sizes(Batches(lengths, seed=0, batch_size=128))) == 1
        assert len(choose_sizes(Batches(lengths, seed=0, batch_size=8))) > 1


class TestInertWindows:
    """A batch that is brought to a size, in double precision on the CPU."""

    @pytest.mark.parametrize("kind", list(HEADS))
    def test_the_batch_begins_with_the_same_windows(self, kind):
        task = make_task(kind)
        feed = task.feed(task.examples, torch.device("cpu"), 3)
        indices = np.array([5, 0, 7, 30])
        plain, labels = feed.batch(indices, 2)
        size = size_for(feed.lengths, indices)
        sized, more = feed.gather(feed.request(indices, 2, size).to(torch.device("cpu")))
        assert (sized.tokens, sized.windows, int(sized.count)) == (size.tokens, size.windows, 4)
        assert len(sized.ids) == size.tokens == int(sized.starts[-1])
        assert (sized.starts.diff() > 0).all()
        for name in ("ids", "positions", "types"):
            assert torch.equal(getattr(sized, name)[: plain.tokens], getattr(plain, name))
        assert torch.equal(sized.starts[:5], plain.starts)
        assert torch.equal(more[:4], labels)
        assert (more[4:] == NOTHING).all()
        assert torch.equal(sized.real_tokens().nonzero().squeeze(1), torch.arange(plain.tokens))

    @pytest.mark.parametrize("kind", list(HEADS))
    @pytest.mark.parametrize("loss", ["task", "logits", "states"])
    def test_loss_and_gradients_are_the_same(self, kind, loss):
        task, model = make_task(kind), make_model(kind).double()
        teacher = make_model(kind, seed=1).double().eval()
        weights = DistillationLoss(float(loss == "task"), float(loss == "logits"), float(loss == "states"), 1.5)
        function = Distillation(task, weights, Device(torch.device("cpu")), teacher)
        self.compare(task, model, lambda packed, labels: function(model, packed, labels))

    @pytest.mark.parametrize(
        "head",
        [
            {"kind": "cacnn", "width": 3},
            {"kind": "cacnn", "context": "simple"},
            "compress(8) > skip > linear",
            "pool(learned) > cnn(1xN, dropout=0) > linear",
            "pool(learned) > cnn(NxN, dropout=0) > linear",
            "attend(dot)",
            "attend(encoder)",
        ],
        ids=str,
    )
    def test_of_every_kind_of_head(self, head):
        task, model = make_task("span"), make_model("span", head).double()
        self.compare(task, model, lambda packed, labels: task.loss(model(packed), packed, labels))

    def compare(self, task, model, function):
        feed = task.feed(task.examples, torch.device("cpu"), 3)
        indices = np.array([5, 0, 7, 30, 31])
        found = []
        for size in (None, size_for(feed.lengths, indices)):
            model.zero_grad()
            packed, labels = feed.gather(feed.request(indices, 2, size).to(torch.device("cpu")))
            loss = function(packed, labels) / packed.divisor
            loss.backward()
            grads = [torch.zeros(1) if value.grad is None else value.grad.flatten() for value in model.parameters()]
            found.append((loss.detach(), torch.cat(grads)))
        (loss, grads), (sized_loss, sized_grads) = found
        assert torch.allclose(loss, sized_loss, rtol=1e-5)  # the tasks compute it in single precision
        assert (grads - sized_grads).norm() <= 1e-4 * grads.norm()


def objectives():
    """name → a function that makes (objective, settings), given an accelerator and `compile`."""

    def tuned(kind="span", tuning=None, **settings):
        def make(accelerator, how):
            task = make_task(kind, longest=130)
            model = make_model(kind, dropout=0.1)
            if tuning is not None:
                apply(model, tuning)
            found = Optimisation(epochs=20, batch_size=6, learning_rate=1e-3, compile=how, **settings)
            feed = task.feed(task.examples, accelerator.device, 0)
            return FineTuning(model, task, feed, found, 0, accelerator), found

        return make

    def distilled(accelerator, how):
        task, model = make_task("span", longest=130), make_model(dropout=0.1)
        device = Device.choose(accelerator.device)
        teacher = make_model(seed=1).to(device.place).eval()
        loss = Distillation(task, DistillationLoss(0.5, 1.0, 0.1, 2.0), device, teacher)
        found = Optimisation(epochs=20, batch_size=6, learning_rate=1e-3, compile=how)
        feed = task.feed(task.examples, accelerator.device, 0)
        return FineTuning(model, task, feed, found, 0, accelerator, lambda *batch: loss(model, *batch)), found

    def taught(accelerator, how):
        """The logits of a teacher were kept; a third of the windows has no label."""
        task, model = make_task("span", longest=130), make_model(dropout=0.1)
        labels = task.examples.labels.copy()
        labels[::3] = NOTHING
        examples = replace(task.examples, labels=labels)
        logits = np.random.default_rng(0).normal(0, 3, (2, len(examples.windows.ids))).astype(np.float16)
        logits[:, 1::4] = -np.inf
        logits[:, examples.windows.starts[:-1]] = 1
        feed = TaughtFeed(examples, accelerator.device, logits)
        loss = Distillation(task, DistillationLoss(0.5, 1.0, 0.0, 2.0), Device.choose(accelerator.device))
        found = Optimisation(epochs=20, batch_size=6, learning_rate=1e-3, compile=how)
        return FineTuning(model, task, feed, found, 0, accelerator, distillation=loss), found

    def gates(penalty):
        def make(accelerator, how):
            task, model = make_task("span", longest=130), make_model()
            found = Optimisation(epochs=20, batch_size=6, learning_rate=1e-2, max_grad_norm=0.0, compile=how)
            made = make_penalty(penalty, model.encoder.shape, "all", 0.3, betas(Parameters(), model.encoder.shape))
            device = Device.choose(accelerator.device)
            loss = Distillation(task, DistillationLoss(1.0, 0.0), device)
            feed = task.feed(task.examples, accelerator.device, 0)
            return GateTraining(model, made, loss, feed, found, 0, device), found

        return make

    def heads(accelerator, how):
        lines = {
            "lp": "pool(learned) > linear",
            "cnn": "cnn(1xN) > linear",
            "dot": "attend(dot)",
            "skip": "compress(8) > skip > linear",
            "drop": "pool(average) > cnn(1xN, dropout=0.5) > linear",
        }
        found = Frozen(heads=lines, epochs=20, batch_size=6, compile=how)
        task, device = make_task("span", longest=130), Device.choose(accelerator.device)
        feed = task.feed(task.examples, accelerator.device, 0)
        return FrozenHeads(make_model(), task, feed, found, 0, accelerator, device), found

    def warm(accelerator, how):
        task, model = make_task("mlm", longest=130), make_model("mlm").to(accelerator.device)
        found = Optimisation(epochs=20, batch_size=6, learning_rate=1e-3, compile=how)
        names = {name for name, _ in model.named_parameters() if name.startswith(("head.", "pooler."))}
        feed = task.feed(task.examples, accelerator.device, 0)
        return HeadsAlone(model, task, feed, names, found, Device.choose(accelerator.device)), found

    return {
        "full": tuned(),
        "mlm": tuned("mlm"),
        "classes": tuned("classes"),
        "score": tuned("score"),
        "freeze": tuned(tuning=Freeze(1)),
        "adapters": tuned(tuning=Adapters(16)),
        "lora": tuned(tuning=LoRA(4, 8.0, dropout=0.1)),
        "bitfit": tuned(tuning=BitFit()),
        "distillation": distilled,
        "taught": taught,
        "l1": gates("l1"),
        "l0": gates("l0"),
        "proximal": gates("proximal"),
        "heads": heads,
        "warm-up": warm,
    }


def make_loop(name, how):
    accelerator = Accelerator()
    objective, settings = objectives()[name](accelerator, how)
    return Loop(objective, objective.feed.lengths, settings, 0, accelerator)


def run(name, how, steps=24):
    """The loop after so many steps; the losses; everything trained."""
    loop, losses = make_loop(name, how), []
    for _ in range(steps):
        loop.advance()
        losses.append(list(loop.take_losses().values()))
    return loop, np.array(losses), {key: value.detach().clone() for key, value, _ in loop.trained()}


@gpu
@pytest.mark.cuda
class TestGraphs:
    @pytest.mark.parametrize("name", list(objectives()))
    def test_graphs_change_no_bit(self, name, monkeypatch):
        loop, losses, values = run(name, "graphs")
        assert loop.why_no_graphs is None, loop.why_no_graphs
        captured = [held for held in loop.graphs._held.values() if held.graphs]
        assert captured, "nothing was captured"
        monkeypatch.setattr(StepGraphs, "_capture", lambda *_: None)
        _, expected, others = run(name, "graphs")
        assert np.array_equal(losses, expected)
        for key, value in values.items():
            assert torch.equal(value, others[key]), key

    @pytest.mark.parametrize("name", list(objectives()))
    def test_without_graphs_it_is_nearly_the_same(self, name):
        """Other sums (the batch has inert tokens), and other masks of dropout in the embeddings: so the first loss."""
        _, losses, _ = run(name, "graphs", 8)
        loop, expected, _ = run(name, "off", 8)
        assert loop.graphs is None
        assert np.allclose(losses[0], expected[0], rtol=0.2), (losses[0], expected[0])
        assert np.allclose(losses.mean(0), expected.mean(0), rtol=0.2)

    @pytest.mark.parametrize("name", list(objectives()))
    @pytest.mark.parametrize("stopped", [1, 13])
    def test_a_run_resumes_to_the_same_bits(self, name, stopped, tmp_path):
        _, _, expected = run(name, "graphs", 24)
        loop, _, _ = run(name, "graphs", stopped)
        write_checkpoint(tmp_path, loop, {"data": "x"})
        loop = make_loop(name, "graphs")
        read_checkpoint(tmp_path, loop, {"data": "x"}, print)
        while loop.step < 24:
            loop.advance()
        for key, value, _ in loop.trained():
            assert torch.equal(value, expected[key]), key

    def test_a_failure_is_told_and_the_steps_go_on(self, monkeypatch):
        def fail(*_):
            raise RuntimeError("out of memory, say\nand more")

        monkeypatch.setattr(graphs, "captured", fail)
        loop, losses, values = run("full", "graphs")
        assert loop.why_no_graphs == "out of memory, say"
        monkeypatch.undo()
        _, expected, others = run("full", "graphs")
        assert np.array_equal(losses, expected)
        assert all(torch.equal(value, others[key]) for key, value in values.items())

    def test_an_operation_that_cannot_be_captured(self, monkeypatch):
        """It waits for the device in the middle of the capture."""
        real = SpanTask.loss

        def waits(self, output, packed, labels):
            assert float(output[0].sum()) == float(output[0].sum())
            return real(self, output, packed, labels)

        monkeypatch.setattr(SpanTask, "loss", waits)
        loop, losses, _ = run("full", "graphs")
        assert loop.why_no_graphs
        monkeypatch.undo()
        assert np.array_equal(losses, run("full", "graphs")[1])

    def test_half_precision_is_needed(self):
        accelerator = Accelerator()
        objective, settings = objectives()["full"](accelerator, "graphs")
        objective.device = Device(objective.device.place, half=False)
        loop = Loop(objective, objective.feed.lengths, settings, 0, accelerator)
        assert loop.graphs is None
        assert loop.why_no_graphs == "they need half precision"

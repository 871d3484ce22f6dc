"""Small batches as CUDA graphs. On any machine: what inert windows are and do. On a GPU: the graphs."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.heads import build_head
from quoth.model import apply
from quoth.model.model import Model
from quoth.runtime import inference_graphs
from quoth.runtime.inference_graphs import InferenceGraphs, bring_to, laid_out, size_of
from quoth.runtime.torch_runner import TorchRunner
from quoth.tune.lora import LoRA
from quoth.windows.packed import Packed, pack
from tiny import random_windows

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")
cuda = pytest.mark.cuda
VOCAB = 97
SHAPES = {
    "plain": Shape.uniform(layers=2, hidden=64, heads=2, vocab=VOCAB),
    "pruned": Shape(VOCAB, 512, 2, 36, 52, (LayerShape(3, 20, 12, 70), LayerShape(1, 50, 7, 33))),
}
HEADS = {
    "linear": {"kind": "span"},
    "all layers": "pool(learned) > linear",
    "convolution": {"kind": "cacnn"},
}


def make_model(shape="plain", head="linear", seed=0):
    torch.manual_seed(seed)
    encoder = Encoder(SHAPES[shape])
    model = Model(encoder, build_head(HEADS[head], encoder.shape.hidden, 2)).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(1.0 if "norm" in name and "weight" in name else 0.0, 0.15)
    return model


def make_batch(lengths, seed=0):
    return pack(*random_windows(lengths, seed=seed))


def padded(packed, most=512):
    """The batch brought to its size, as tensors of the host."""
    size = size_of(packed.lengths, most)
    flat = np.full(3 * size.tokens + size.windows + 2, -7, np.int32)
    bring_to(size, packed, flat)
    *arrays, count = laid_out(size, torch.from_numpy(flat))
    return Packed(*arrays, (), size=size, count=count)


lengths_of_windows = st.lists(st.integers(1, 512), min_size=1, max_size=40).map(tuple)


class TestSize:
    @given(lengths_of_windows)
    def test_there_is_room_for_all_and_little_more(self, lengths):
        size = size_of(lengths, 512)
        inert, rest = size.windows - len(lengths), size.tokens - sum(lengths)
        assert inert >= 1
        assert inert <= rest <= inert * size.longest
        assert max(lengths) <= size.longest <= 512
        assert size.tokens % 64 == 0
        assert rest <= inert + max(63, sum(lengths) / 4 + 16)
        assert size.windows & (size.windows - 1) == 0

    def test_there_are_few(self):
        assert len({size_of((n,), 512) for n in range(1, 513)}) <= 12

    @given(lengths_of_windows)
    def test_a_batch_begins_with_its_own_windows(self, lengths):
        packed = make_batch(lengths)
        found, total = padded(packed), sum(lengths)
        for name in ("ids", "positions", "types"):
            assert np.array_equal(getattr(found, name)[:total], getattr(packed, name))
        assert np.array_equal(found.starts[: len(lengths) + 1], packed.starts)
        every = found.starts.diff().numpy()
        assert every.min() >= 1
        assert every.max() <= found.size.longest
        assert found.starts[-1] == found.size.tokens == len(found.ids)
        assert len(every) == found.size.windows
        assert int(found.count) == len(lengths)
        expected = np.concatenate([np.arange(length) for length in every])
        assert np.array_equal(found.positions, expected)
        assert found.ids[total:].abs().max() == 0


@pytest.mark.parametrize("head", list(HEADS))
def test_inert_windows_change_no_logit(head):
    model = make_model(head=head)
    packed = make_batch((5, 90, 33, 1))
    with torch.no_grad():
        expected = torch.stack(model(packed.map(torch.from_numpy)))
        found = torch.stack(model(padded(packed)))
    torch.testing.assert_close(found[:, : len(packed.ids)], expected, rtol=1e-4, atol=1e-4)


def test_on_a_cpu_there_are_none():
    assert TorchRunner(make_model(), "cpu").graphs is None


def logits(runner, packed):
    return np.stack(runner(packed))


@cuda
@gpu
class TestGraphs:
    @pytest.mark.parametrize("shape", list(SHAPES))
    @pytest.mark.parametrize("head", list(HEADS))
    def test_no_bit_changes(self, shape, head):
        """The first call of a size is eager, the second captures, the third replays with other windows between."""
        runner = TorchRunner(make_model(shape, head), "cuda")
        packed, other = make_batch((100, 60, 7)), make_batch((90, 61, 17), seed=1)
        assert size_of(packed.lengths, 512) == size_of(other.lengths, 512)
        first, second = logits(runner, packed), logits(runner, packed)
        between = logits(runner, other)
        third = logits(runner, packed)
        assert runner.graphs.failure is None
        assert np.isfinite(first).all()
        assert np.array_equal(first, second)
        assert np.array_equal(first, third)
        assert not np.array_equal(first[:, :7], between[:, :7])
        runner.graphs = None
        alone = logits(runner, packed)  # without inert windows: other sizes of products
        assert np.linalg.norm(alone - first) < 0.02 * np.linalg.norm(alone)
        exact = logits(TorchRunner(runner.model, "cuda", "fp32"), packed)
        assert np.linalg.norm(exact - first) < 0.03 * np.linalg.norm(exact)

    def test_of_a_tuned_model(self):
        """Its encoder is captured as it is."""
        model = make_model()
        apply(model, LoRA(rank=4))
        runner = TorchRunner(model, "cuda")
        packed = make_batch((100, 60, 7))
        first = logits(runner, packed)
        assert np.array_equal(first, logits(runner, packed))
        assert runner.graphs.failure is None

    def test_the_least_recently_used_goes(self, monkeypatch):
        monkeypatch.setattr(inference_graphs, "MOST_GRAPHS", 2)
        runner = TorchRunner(make_model(), "cuda")
        batches = [make_batch((length,)) for length in (30, 100, 200)]
        first = [logits(runner, packed) for packed in batches]
        for _ in range(3):
            for packed, expected in zip(batches, first):
                for _ in range(3):
                    assert np.array_equal(logits(runner, packed), expected)
                assert len(runner.graphs._held) == 2

    def test_large_batches_are_run_as_they_are(self):
        runner = TorchRunner(make_model(), "cuda")
        packed = make_batch((512,) * 17)
        assert not runner.graphs.takes(packed)
        logits(runner, packed)
        assert not runner.graphs._held

    def test_a_failure_is_told_once(self, monkeypatch):
        def fail(*_):
            raise RuntimeError("out of memory, say\nand more")

        runner, packed = TorchRunner(make_model(), "cuda"), make_batch((100, 60, 7))
        first = logits(runner, packed)
        monkeypatch.setattr(inference_graphs, "captured", fail)
        with pytest.warns(UserWarning, match="out of memory, say"):
            assert np.array_equal(logits(runner, packed), first)
        assert not runner.graphs.takes(packed)
        assert np.isfinite(logits(runner, packed)).all()

    def test_an_operation_that_cannot_be_captured(self):
        def waits(batch):
            return batch.ids[None].float() * float(batch.ids.sum())

        graphs = InferenceGraphs(waits, torch.device("cuda"), 512)
        packed = make_batch((100, 60, 7))
        first = graphs(packed)
        with pytest.warns(UserWarning, match="kernel by kernel"):
            assert np.array_equal(graphs(packed), first)
        assert graphs.failure
        assert torch.rand(3, device="cuda").isfinite().all()

    def test_from_several_threads(self):
        runner = TorchRunner(make_model(), "cuda")
        batches = [make_batch((100, 60, 7), seed) for seed in range(4)]
        expected = [logits(runner, packed) for packed in batches]
        wrong = []

        def ask(packed, truth):
            for _ in range(20):
                if not np.array_equal(logits(runner, packed), truth):
                    wrong.append(packed)

        threads = [threading.Thread(target=ask, args=pair) for pair in zip(batches, expected)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

"""Chains: sizes, what they read, life in a model folder, and how they behave on a device."""

import re
import weakref
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from quoth import QuothError
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.encoder.style import Style
from quoth.heads import build_head
from quoth.heads.linear import SpanHead
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save, save_hugging_face
from quoth.windows.packed import pack
from tiny import batch, random_windows

LENGTHS = (1, 9, 2, 40, 3, 17)
LINES = [
    "linear",
    "pool(learned) > linear",
    "pool(average) > linear",
    "last(3) > pool(learned) > compress(20) > skip > linear",
    "compress(20) > linear",
    "compress(16, each) > skip > linear",
    "compress(20) > pool(learned) > linear",
    "(compress(20) + pool(learned) > compress(12)) > linear",
    "cnn(1xN) > linear",
    "pool(learned) > compress(20) > cnn(1xN, dilation=2, dropout=0) > linear",
    "pool(learned) > cnn(NxN) > linear",
    "attend(weighted)",
    "attend(dot)",
    "attend(multiplicative)",
    "attend(encoder)",
]
DEEP = ["pool(learned) > inception > linear", "xception(short) > linear"]


def table(line, labels=None, pooled=False):
    return {"kind": "chain", "line": line, **({} if labels is None else {"labels": labels, "pooled": pooled})}


def size(line, hidden=1024, layers=24, **classes):
    with torch.device("meta"):
        return sum(value.numel() for value in build_head(table(line, **classes), hidden, layers).parameters())


def random_states(count, lengths=LENGTHS, hidden=24, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(sum(lengths), hidden, generator=generator) for _ in range(count)]


def packed_of(lengths):
    return pack([[0] * n for n in lengths]).map(torch.from_numpy)


def made(line, hidden=24, layers=3, **classes):
    """A head in which every tensor is wide enough to matter; filters and norms as drawn."""
    torch.manual_seed(0)
    head = build_head(table(line, **classes), hidden, layers)
    with torch.no_grad():
        for name, value in head.named_parameters():
            if value.ndim < 4 and "norm" not in name:
                value.add_(torch.randn(value.shape) * 0.2)
    return head.eval()


class TestSizes:
    """The numbers of BERTVision at BERT-large: 25 states of 1024; 26 channels for classes."""

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("linear", 2_050),
            ("pool(learned) > linear", 2_076),
            ("pool(average) > linear", 2_050),
            ("compress(386) > linear", 414_952),
            ("compress(64) > linear", 68_802),
            ("compress(386, each) > linear", 9_910_552),
            ("compress(64, each) > linear", 1_643_202),
            ("compress(386) > skip > linear", 414_952 + 2_048),
            ("compress(64) > skip > linear", 68_802 + 2_048),
            ("compress(386, each) > skip > linear", 9_910_552 + 2_048),
            ("compress(64, each) > skip > linear", 1_643_202 + 2_048),
            ("pool(learned) > compress(386) > linear", 398_498 - 2_048),
            ("pool(learned) > compress(386) > skip > linear", 398_498),
            ("compress(386) > pool(learned) > linear", 395_650 + 26 + 774),
            ("(compress(386) + pool(learned) > compress(386)) > linear", 811_400),
        ],
    )
    def test_spans(self, line, expected):
        assert size(line) == expected

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("pool(learned) > linear", 2_077),
            ("pool(learned) > compress(386) > skip > linear", 398_499),
            ("pool(average) > compress(386) > skip > linear", 398_472),
            # the authors' 267,010, 269,058 and 20,716,634 without what they count of running statistics
            ("xception(short) > linear", 267_010 - 2_944),
            ("xception(short) > skip > linear", 269_058 - 2_944),
            ("xception(full) > linear", 20_716_634 - 54_528),
        ],
    )
    def test_classes(self, line, expected):
        assert size(line, labels=2, pooled=True) == expected

    @pytest.mark.parametrize(
        ("line", "share"),
        [
            ("cnn(1xN) > linear", 0.099),
            ("cnn(1xN, dilation=2) > linear", 0.099),
            ("cnn(1xN, dropout=0) > linear", 0.099),
            ("pool(learned) > cnn(1xN) > linear", 0.093),
            ("pool(average) > cnn(1xN) > linear", 0.093),
            ("pool(learned) > compress(386) > cnn(1xN) > linear", 0.207),
            ("pool(learned) > compress(386) > cnn(NxN) > linear", 0.332),
            ("pool(learned) > compress(386) > inception > linear", 1.994),
            ("pool(learned) > compress(386) > xception > linear", 1.970),
        ],
    )
    def test_convolutions_are_near_their_share_of_bert_large(self, line, share):
        assert 100 * size(line) / 335_143_938 == pytest.approx(share, rel=0.05)

    def test_the_tables_of_the_documentation_are_true(self):
        text = (Path(__file__).parents[2] / "docs/heads.md").read_text(encoding="utf-8")
        spans, classes = (
            text.partition("## The heads of BERTVision")[2]
            .partition("## Layer attention")[0]
            .split("| classification,")
        )
        rows = 0
        for part, settings in ((spans, {}), (classes, {"labels": 2, "pooled": True})):
            for line, count in re.findall(r"\| `([^`]+)`[^|]*\| ([\d,]+) \|", part):
                assert size(line, **settings) == int(count.replace(",", "")), line
                rows += 1
        assert rows == 23 + 6

    @pytest.mark.parametrize(("labels", "queries"), [(None, 2), (5, 5)])
    @pytest.mark.parametrize(
        ("how", "own"),
        [
            ("dot", lambda queries, L, H: 0),
            ("weighted", lambda queries, L, H: queries * (L + 1)),
            ("multiplicative", lambda queries, L, H: H * H),
            # q, k, v, o and their biases but the key's, two norms, the feed-forward part of 4·H
            ("encoder", lambda queries, L, H: 4 * H * H + 3 * H + 4 * H + 8 * H * H + 5 * H),
        ],
    )
    def test_what_layer_attention_adds_to_a_linear_head(self, how, own, labels, queries):
        for L, H in ((12, 768), (3, 50)):
            linear = size("linear", H, L, labels=labels)
            assert linear == queries * (H + 1)
            assert size(f"attend({how})", H, L, labels=labels) == linear + own(queries, L, H)


class TestReads:
    @pytest.mark.parametrize(
        ("line", "spans", "pooled"),
        [
            ("linear", (3,), (3,)),
            ("layer(1) > linear", (1,), (1, 3)),
            ("layer(1) > compress(4) > skip > linear", (1, 3), (1, 3)),
            ("last(2) > pool(average) > linear", (2, 3), (2, 3)),
            ("pool(learned) > linear", (0, 1, 2, 3), (0, 1, 2, 3)),
            ("(compress(4) + pool(average)) > linear", (0, 1, 2, 3), (0, 1, 2, 3)),
            ("layer(0) > (compress(4) + skip) > linear", (0, 3), (0, 3)),
            ("attend(dot)", (1, 2, 3), (1, 2, 3)),
            ("layers(all) > attend(dot)", (0, 1, 2, 3), (0, 1, 2, 3)),
        ],
    )
    def test_only_what_is_needed(self, line, spans, pooled):
        """The pooler's input is the last of a class head's states, so that one is always there."""
        assert build_head(line, 6, 3).reads == spans
        assert build_head(table(line, 2, True), 6, 3).reads == pooled

    def test_layers_above_are_not_computed(self):
        model = tiny_model(build_head("layer(1) > compress(4) > linear", 24, 3))
        ran = []
        for number, layer in enumerate(model.encoder.layers, 1):
            layer.register_forward_hook(lambda *_, number=number: ran.append(number))
        model(batch(*random_windows((5, 3))))
        assert ran == [1]

    def test_a_missing_state_is_an_error(self):
        with pytest.raises(QuothError, match=r"head: pool\(learned\) > linear reads 4 states, not 3"):
            build_head("pool(learned) > linear", 24, 3)(random_states(3), packed_of(LENGTHS))


def tiny_model(head, pooler=False):
    torch.manual_seed(0)
    shape = Shape.uniform(layers=3, hidden=24, heads=3, vocab=97)
    return Model(Encoder(shape, Style(dropout=0.0, attention_dropout=0.0)), head, pooler=pooler).eval()


class TestModels:
    @torch.no_grad()
    def test_a_class_head_sees_all_layers_of_the_first_token_and_the_pooler_last(self):
        """compress > skip > linear by hand from each window encoded alone."""
        model = tiny_model(made("compress(5) > skip > linear", labels=3, pooled=True), pooler=True)
        ids, types = random_windows(LENGTHS)
        found = model(batch(ids, types))
        compress, _, linear = model.head.steps
        for i, t, logits in zip(ids, types, found):
            states = [state[0] for state in model.encoder(batch([i], [t]), range(4))]
            channels = [*states, torch.tanh(model.pooler.weight @ states[-1] + model.pooler.bias)]
            squeezed = [F.gelu(compress.weight @ c + compress.bias, approximate="tanh") for c in channels]
            expected = linear.weight @ torch.cat([channels[-1], *squeezed]) + linear.bias
            assert (logits - expected).abs().max() < 1e-5

    @torch.no_grad()
    def test_linear_is_the_span_head(self):
        chain, plain = build_head("linear", 24, 3), SpanHead(24)
        plain.linear.load_state_dict({"weight": chain.steps[0].weight, "bias": chain.steps[0].bias})
        packed = batch(*random_windows(LENGTHS))
        for found, expected in zip(tiny_model(chain)(packed), tiny_model(plain)(packed)):
            assert torch.equal(found, expected)

    @pytest.mark.parametrize(("labels", "pooled"), [(None, False), (3, True)])
    @pytest.mark.parametrize("line", LINES)
    @torch.no_grad()
    def test_saved_and_loaded_it_answers_the_same(self, line, labels, pooled, tmp_path):
        head = made(line, labels=labels, pooled=pooled)
        again = build_head(head.to_json(), 24, 3).eval()
        assert again.to_json() == head.to_json()
        again.load_state_dict(head.state_dict())
        model = tiny_model(head, pooled)
        save(model, tmp_path / "model")
        loaded = load(tmp_path / "model")
        assert loaded.head.to_json() == head.to_json()
        packed = batch(*random_windows(LENGTHS))
        expected = model(packed)
        model.head = again
        for other in (loaded(packed), model(packed)):
            assert all(torch.equal(a, b) for a, b in zip(other, expected))

    def test_transformers_has_no_class_for_it(self, tmp_path):
        with pytest.raises(QuothError, match="transformers has no class for a head of kind 'chain'"):
            save_hugging_face(tiny_model(build_head("attend(dot)", 24, 3)), tmp_path / "hugging-face")


class TestWindows:
    @pytest.mark.parametrize("line", [*LINES, *DEEP])
    @torch.no_grad()
    def test_a_window_does_not_depend_on_its_neighbours(self, line):
        head = made(line)
        packed = packed_of(LENGTHS)
        states, others = (random_states(len(head.reads), seed=seed) for seed in (1, 2))
        logits = torch.stack(head(states, packed), 1)
        ends = torch.tensor(LENGTHS).cumsum(0).tolist()
        for begin, end in zip([0, *ends], ends):
            for beside in (others, [other * float("nan") for other in others]):
                mixed = [torch.cat([b[:begin], s[begin:end], b[end:]]) for s, b in zip(states, beside)]
                found = torch.stack(head(mixed, packed), 1)[begin:end]
                assert (found - logits[begin:end]).abs().max() < 1e-5
            alone = torch.stack(head([s[begin:end] for s in states], packed_of((end - begin,))), 1)
            assert (alone - logits[begin:end]).abs().max() < 1e-4

    def test_maps_that_are_not_kept_change_nothing(self, monkeypatch):
        head = made(DEEP[1])
        states = random_states(len(head.reads))
        results = []
        for many in (10**6, 0):
            monkeypatch.setattr("quoth.heads.image.MANY", many)
            logits = torch.stack(head(states, packed_of(LENGTHS)))
            results.append([logits, *torch.autograd.grad(logits.square().sum(), list(head.parameters()))])
        assert all(torch.equal(a, b) for a, b in zip(*results))

    @pytest.mark.parametrize("line", ["pool(learned) > cnn(NxN) > linear", *DEEP])
    @torch.no_grad()
    def test_convolutions_do_look_at_the_tokens_beside(self, line):
        head = made(line)
        states = random_states(len(head.reads), (12,))
        before = torch.stack(head(states, packed_of((12,))), 1)
        for state in states:
            state[6] += 1
        changed = (torch.stack(head(states, packed_of((12,))), 1) - before).abs().amax(1) > 1e-6
        assert changed[[5, 6, 7]].all()
        assert not changed[[1, 11]].any() or "NxN" not in line  # its 7×7 and 3×8 reach 4 to each side

    @pytest.mark.parametrize("word", ["cnn(1xN", "cnn(NxN"])
    def test_dropout_while_training_only(self, word):
        states = random_states(4)
        for ending, random in (("", True), (", dropout=0", False)):
            head = made(f"{word}{ending}) > linear").train()
            first, second = (head(states, packed_of(LENGTHS))[0] for _ in range(2))
            assert torch.equal(first, second) != random
            head.eval()
            assert torch.equal(*(head(states, packed_of(LENGTHS))[0] for _ in range(2)))


class TestFreshWeights:
    def test_learned_pooling_begins_as_the_mean(self):
        states = random_states(4)
        heads = [build_head(f"pool({how}) > linear", 24, 3) for how in ("learned", "average")]
        heads[1].steps[-1].load_state_dict(heads[0].steps[-1].state_dict())
        for found, expected in zip(*(head(states, packed_of(LENGTHS)) for head in heads)):
            assert (found - expected).abs().max() < 1e-7

    def test_small_and_cut_at_two_sigma(self):
        torch.manual_seed(0)
        head = build_head("compress(64) > linear", 96, 3)
        for name, value in head.named_parameters():
            if "bias" in name:
                assert not value.any()
            else:
                assert value.abs().max() <= 2e-3
                assert 0.7e-3 < value.std() < 1e-3  # 0.88e-3: that of a normal cut at 2σ

    @pytest.mark.parametrize("line", [*LINES, *DEEP])
    def test_every_weight_is_trained(self, line):
        torch.manual_seed(0)
        head = build_head(line, 24, 3)
        start, end = head(random_states(len(head.reads)), packed_of(LENGTHS))
        (start.logsumexp(0) + 2 * end.logsumexp(0)).backward()
        assert all(value.grad is not None and value.grad.abs().max() > 0 for value in head.parameters())


def half(head, states, packed, device="cpu"):
    """Logits and gradients of states and weights in fp32 and under autocast in bf16."""
    results = []
    for enabled in (False, True):
        with torch.autocast(device, torch.bfloat16, enabled=enabled):
            start, end = head([state.bfloat16() if enabled else state for state in states], packed)
        loss = start.float().square().mean() + end.float().square().mean()
        results.append([start, end, *torch.autograd.grad(loss, [*states, *head.parameters()])])
    return results


def assert_near(found, expected, tolerance):
    assert torch.isfinite(found).all()
    assert (found.float() - expected).norm() < tolerance * expected.norm() + 1e-6


class TestDevices:
    @pytest.mark.parametrize("line", [*LINES, DEEP[1]])
    def test_half_precision_under_autocast(self, line):
        head = made(line, hidden=48)
        states = [state.requires_grad_() for state in random_states(len(head.reads), hidden=48)]
        exact, rough = half(head, states, packed_of(LENGTHS))
        for found, expected in zip(rough[:2], exact[:2]):
            assert_near(found, expected, 0.03)
        assert_near(*(torch.cat([value.flatten() for value in results[2:]]) for results in (rough, exact)), 0.1)

    @pytest.mark.parametrize("line", [*LINES, DEEP[1]])
    def test_deterministic_forward_and_backward(self, line):
        """Bit-identical again and again, with no operation that torch knows to be otherwise."""
        head = made(line)
        states = [state.requires_grad_() for state in random_states(len(head.reads))]
        torch.use_deterministic_algorithms(True)
        try:
            results = []
            for _ in range(2):
                start, end = head(states, packed_of(LENGTHS))
                results.append([start, end, *torch.autograd.grad((start * end).sum(), [*states, *head.parameters()])])
        finally:
            torch.use_deterministic_algorithms(False)
        assert all(torch.equal(a, b) for a, b in zip(*results))

    @pytest.mark.parametrize("line", [*LINES, DEEP[1]])
    def test_no_value_is_read_from_the_device(self, line):
        """Fake tensors hold no values: whoever asked for one (`.item()`, a mask as index, a size) would fail."""
        head = made(line).train()
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            packed = packed_of(LENGTHS).map(mode.from_tensor)
            start, end = head([mode.from_tensor(state) for state in random_states(len(head.reads))], packed)
            assert start.shape == end.shape == (sum(LENGTHS),)
            gradients = torch.autograd.grad((start * end).sum(), list(head.parameters()))
            assert [value.shape for value in gradients] == [value.shape for value in head.parameters()]
            with pytest.raises(DataDependentOutputException):
                (start * end).sum().item()

    @pytest.mark.parametrize(
        ("line", "limit"),
        [
            ("pool(learned) > linear", 0.7),
            ("pool(average) > linear", 0.7),
            ("attend(weighted)", 0.7),
            ("attend(dot)", 0.7),
            ("attend(multiplicative)", 0.7),
            ("attend(encoder)", 3),
            ("compress(386) > skip > linear", 2.5),
            ("compress(386, each) > skip > linear", 2.5),
            ("cnn(1xN) > linear", 2.5),
            ("pool(learned) > compress(386) > cnn(NxN) > linear", 5),
            ("pool(learned) > compress(386) > xception > linear", 16),
        ],
    )
    def test_memory_of_a_large_batch(self, line, limit):
        """GB at the peak of a step on 50,000 tokens of 13 states of 384 in bf16 (0.5 GB), beside the states."""
        head = build_head(line, 384, 12).train()
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            packed = packed_of((200,) * 250).map(mode.from_tensor)
            states = [torch.empty(50_000, 384, dtype=torch.bfloat16) for _ in head.reads]
            with Meter() as meter:
                with torch.autocast("cpu", torch.bfloat16):
                    start, end = head(states, packed)
                torch.autograd.grad((start.float() * end.float()).sum(), list(head.parameters()))
        assert meter.peak < limit * 1e9

    @pytest.mark.cuda
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")
    @pytest.mark.parametrize("line", [*LINES, *DEEP])
    def test_on_a_gpu(self, line):
        head = made(line, hidden=48)
        states = [state.requires_grad_() for state in random_states(len(head.reads), hidden=48)]
        host = half(head, states, packed_of(LENGTHS))[0]
        there = [state.detach().cuda().requires_grad_() for state in states]
        packed = packed_of(LENGTHS).map(lambda array: array.cuda())
        head.cuda()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with torch.backends.cudnn.flags(allow_tf32=False):
                exact, rough = half(head, there, packed, "cuda")
        finally:
            torch.cuda.set_sync_debug_mode("default")
        for found, expected in zip(exact, host):
            assert_near(found.cpu(), expected, 2e-3)
        for found, expected in zip(rough[:2], exact[:2]):
            assert_near(found, expected, 0.03)


class Meter(TorchDispatchMode):
    """How many bytes of what was made while it watches live at once, at most."""

    def __init__(self):
        super().__init__()
        self.alive, self.now, self.peak = {}, 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, torch.Tensor) and value.untyped_storage()._cdata not in self.alive:
                storage = value.untyped_storage()
                self.alive[storage._cdata] = storage.nbytes()
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._free, storage._cdata)
        return out

    def _free(self, key):
        self.now -= self.alive.pop(key, 0)

"""The context-aware CNN against the formulas, written as loops over windows and tokens of unpacked states."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from quoth import QuothError
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import Shape
from quoth.heads import build_head
from quoth.heads.cacnn import ContextCNN
from quoth.model.loading import load
from quoth.model.model import Model
from quoth.model.saving import save, save_hugging_face
from quoth.windows.packed import pack
from tiny import batch, random_windows

LENGTHS = (1, 7, 2, 70, 3, 33, 32, 1)
HIDDEN = 6


def wide(head, seed=0):
    """The head with every tensor random and wide, biases too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in head.parameters():
            value.normal_(0.0, 0.5, generator=generator)
    return head


def random_states(lengths, hidden=HIDDEN, dtype=torch.float64, seed=1):
    return torch.randn(sum(lengths), hidden, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def packed_of(lengths):
    return pack([[0] * n for n in lengths]).map(torch.from_numpy)


def row(x, t):
    """Row t, zeros outside."""
    return x[t] if 0 <= t < len(x) else torch.zeros_like(x[0])


def loop_window(head, x):
    """Start and end logits of one window, x: (n, h), token by token with all maps Z."""
    n, hidden = x.shape
    width, maps, half = head.width, head.maps, head.width // 2
    features = []
    for t in range(n):
        y = head.first.bias
        for p in range(width):
            y = y + head.first.weight[:, :, p] @ row(x, t + p - half)
        features.append(torch.relu(y))
    filters = torch.zeros(maps, width, hidden, dtype=x.dtype)
    if head.context == "vectorised":
        context = torch.stack(features).amax(0)
        along = torch.zeros(maps * width, len(context), dtype=x.dtype)
        for k in range(len(context)):
            value = head.second.bias
            for p in range(width):
                if 0 <= k + p - half < len(context):
                    value = value + head.second.weight[:, 0, p] * context[k + p - half]
            along[:, k] = value
        for j in range(maps):
            for p in range(width):
                for h in range(hidden):
                    filters[j, p, h] = along[j * width + p, h % len(context)]
    else:
        for p in range(width):
            mine = [features[t] for t in range(n) if t * width // n == p]
            if mine:
                filters[:, p] = torch.stack(mine).amax(0).view(maps, hidden)
    starts, ends = [], []
    for t in range(n):
        z = torch.zeros(maps, hidden, dtype=x.dtype)
        for p in range(width):
            z = z + filters[:, p] * row(x, t + p - half)
        first, second = (head.weight * z)[: maps // 2], (head.weight * z)[maps // 2 :]
        starts.append(first.sum() + head.bias[0])
        ends.append(second.sum() + head.bias[1])
    return torch.stack(starts), torch.stack(ends)


def loop(head, x, lengths):
    windows = [loop_window(head, window) for window in x.split(list(lengths))]
    return torch.cat([start for start, _ in windows]), torch.cat([end for _, end in windows])


def check(head, x, lengths, tolerance):
    """Logits and all gradients of the head and of the loop."""
    x = x.requires_grad_()
    weight = random_states(lengths, 2, x.dtype, seed=2)
    results = []
    for compute in (lambda: head([x], packed_of(lengths)), lambda: loop(head, x, lengths)):
        start, end = compute()
        assert start.shape == end.shape == (sum(lengths),)
        loss = (start * weight[:, 0] + end * weight[:, 1]).sum()
        results.append([start, end, *torch.autograd.grad(loss, [x, *head.parameters()])])
    for found, expected in zip(*results):
        assert found.dtype == x.dtype
        scale = max(1.0, float(expected.detach().abs().max()))
        assert (found - expected).abs().max() < tolerance * scale


SETTINGS = [
    *({"context": "simple", "width": w, "maps": m} for w in (1, 3, 5) for m in (2, 4)),
    *(
        {"context": "vectorised", "filters": f, "width": w, "maps": m}
        for f in (None, 1, 3, 4, 10)
        for w in (1, 3, 5)
        for m in (2, 4)
    ),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: "-".join(str(v) for v in s.values()))
def test_equals_a_loop_over_windows_and_tokens(setting):
    lengths = (1, 7, 2, 40, 3)
    head = wide(ContextCNN(HIDDEN, **setting))
    check(head.double(), random_states(lengths), lengths, 1e-9)
    check(head.float(), random_states(lengths, dtype=torch.float32), lengths, 1e-5)


@pytest.mark.parametrize("setting", SETTINGS[5:36:15], ids=str)
def test_equals_a_loop_on_windows_around_the_size_of_a_tile(setting):
    check(wide(ContextCNN(HIDDEN, **setting)).double(), random_states(LENGTHS), LENGTHS, 1e-9)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.sampled_from(SETTINGS), st.integers(0, 99))
def test_any_lengths_equal_a_loop(lengths, setting, seed):
    check(wide(ContextCNN(HIDDEN, **setting), seed).double(), random_states(lengths, seed=seed), lengths, 1e-9)


@pytest.mark.parametrize("context", ["simple", "vectorised"])
def test_equal_maxima_share_their_gradient(context):
    """Every token alike: all of a segment are its maximum, and gradients of both signs are shared evenly."""
    lengths = (9, 6, 1)
    states = random_states((1,) * len(lengths)).repeat_interleave(torch.tensor(lengths), 0)
    check(wide(ContextCNN(HIDDEN, context, width=1)).double(), states, lengths, 1e-9)
    check(wide(ContextCNN(HIDDEN, context, width=3)).double(), states, lengths, 1e-9)


@pytest.mark.parametrize("setting", SETTINGS[5:36:6], ids=str)
def test_a_window_does_not_depend_on_its_neighbours(setting):
    head = wide(ContextCNN(HIDDEN, **setting))
    packed = packed_of(LENGTHS)
    states, others = (random_states(LENGTHS, dtype=torch.float32, seed=seed).split(LENGTHS) for seed in (1, 2))
    with torch.no_grad():
        logits = [torch.stack(pair, 1) for pair in zip(*(v.split(LENGTHS) for v in head([torch.cat(states)], packed)))]
        for window, expected in enumerate(logits):
            for beside in (others, [other * float("nan") for other in others]):
                mixed = torch.cat([*beside[:window], states[window], *beside[window + 1 :]])
                start, end = (value.split(LENGTHS)[window] for value in head([mixed], packed))
                assert torch.equal(torch.stack([start, end], 1), expected)
            alone = torch.stack(head([states[window]], packed_of(LENGTHS[window : window + 1])), 1)
            assert (alone - expected).abs().max() < 1e-5 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"context": "simple", "width": 3}, 4 * 384 * 384 * 3 + 4 * 384 + 4 * 384 + 2),
        ({"context": "simple", "maps": 2}, 2 * 384 * 384 * 5 + 2 * 384 + 2 * 384 + 2),
        ({"context": "vectorised"}, 384 * 384 * 5 + 384 + (4 * 5) * 5 + 4 * 5 + 4 * 384 + 2),
        ({"filters": 100, "width": 3, "maps": 8}, 100 * 384 * 3 + 100 + (8 * 3) * 3 + 8 * 3 + 8 * 384 + 2),
        ({"filters": 1, "width": 1, "maps": 2}, 384 + 1 + 2 + 2 + 2 * 384 + 2),
    ],
)
def test_counts(setting, expected):
    with torch.device("meta"):
        head = ContextCNN(384, **setting)
    assert sum(value.numel() for value in head.parameters()) == expected


def test_fresh_weights_are_small_and_every_one_is_trained():
    for context in ("simple", "vectorised"):
        torch.manual_seed(0)
        head = ContextCNN(64, context)
        start, end = head([random_states(LENGTHS, 64, torch.float32)], packed_of(LENGTHS))
        assert max(start.abs().max(), end.abs().max()) < 2
        (start.square().sum() + end.square().sum()).backward()
        assert all(value.grad.abs().max() > 0 for value in head.parameters())
        assert float(head.first.weight.detach().abs().max()) <= 0.04
        assert float(head.first.bias.detach().abs().max()) == 0


def tiny_model(head, seed=0):
    torch.manual_seed(seed)
    return Model(Encoder(Shape.uniform(layers=2, hidden=24, heads=3, vocab=97)), head).eval()


@pytest.mark.parametrize(
    "table",
    [
        {"kind": "cacnn"},
        {"kind": "cacnn", "context": "simple", "width": 3},
        {"kind": "cacnn", "context": "vectorised", "filters": 7, "width": 1, "maps": 6},
    ],
)
def test_saved_and_loaded_it_answers_the_same(table, tmp_path):
    head = build_head(table, 24, 2)
    again = build_head(head.to_json(), 24, 2)
    assert {**head.to_json(), **table} == head.to_json() == again.to_json()
    assert [(n, v.shape) for n, v in head.named_parameters()] == [(n, v.shape) for n, v in again.named_parameters()]

    model = tiny_model(wide(head))
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded.head, ContextCNN)
    packed = batch(*random_windows(LENGTHS))
    with torch.no_grad():
        for found, expected in zip(loaded(packed), model(packed)):
            assert torch.equal(found, expected)
    with pytest.raises(QuothError, match="transformers has no class for a head of kind 'cacnn'") as error:
        save_hugging_face(model, tmp_path / "hugging-face")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "hugging-face").exists()


@pytest.mark.parametrize("context", ["simple", "vectorised"])
def test_overfits_a_few_windows(context):
    lengths = (20, 31, 5, 12)
    torch.manual_seed(0)
    head = ContextCNN(24, context, width=3)
    states = random_states(lengths, 24, torch.float32)
    packed = packed_of(lengths)
    optimiser = torch.optim.Adam(head.parameters(), 0.01)
    losses = []
    for _ in range(150):
        loss = torch.zeros(())
        for logits, targets in zip(head([states], packed), ((3, 30, 0, 7), (5, 30, 4, 11))):
            for window, target in zip(logits.split(lengths), targets):
                loss = loss + torch.nn.functional.cross_entropy(window, torch.tensor(target))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.05 * losses[0], losses[::30]


@pytest.mark.parametrize("context", ["simple", "vectorised"])
def test_deterministic_forward_and_backward(context):
    """Bit-identical again and again, with no operation that torch knows to be otherwise."""
    head = wide(ContextCNN(24, context))
    states = random_states(LENGTHS, 24, torch.float32).requires_grad_()
    torch.use_deterministic_algorithms(True)
    try:
        results = []
        for _ in range(3):
            start, end = head([states], packed_of(LENGTHS))
            loss = (start * end).sum()
            results.append([start, end, *torch.autograd.grad(loss, [states, *head.parameters()])])
    finally:
        torch.use_deterministic_algorithms(False)
    for again in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(again, results[0]))


def half(head, states, packed, device="cpu"):
    """Logits and gradients in fp32 and under autocast in bf16."""
    results = []
    for enabled in (False, True):
        with torch.autocast(device, torch.bfloat16, enabled=enabled):
            start, end = head([states.bfloat16() if enabled else states], packed)
        assert start.dtype == torch.float32
        loss = start.float().logsumexp(0) + end.float().logsumexp(0)
        results.append([start, end, *torch.autograd.grad(loss, [states, *head.parameters()])])
    return results


def assert_near(found, expected, tolerance):
    assert torch.isfinite(found).all()
    assert found.dtype == expected.dtype
    assert (found - expected).norm() < tolerance * expected.norm() + 1e-6


@pytest.mark.parametrize("setting", SETTINGS[5:36:10], ids=str)
def test_half_precision_under_autocast(setting):
    torch.manual_seed(0)
    head = ContextCNN(48, **setting)
    exact, rough = half(head, random_states(LENGTHS, 48, torch.float32).requires_grad_(), packed_of(LENGTHS))
    for found, expected in zip(rough[:2], exact[:2]):
        assert_near(found, expected, 0.03)
    assert_near(*(torch.cat([value.flatten() for value in results[2:]]) for results in (rough, exact)), 0.1)


@pytest.mark.parametrize("context", ["simple", "vectorised"])
def test_forward_and_backward_do_not_ask_the_device(context):
    """Fake tensors hold no values: whoever asked for one (`.item()`, a mask as index, a size from data) would fail."""
    head = ContextCNN(24, context)
    states = random_states(LENGTHS, 24, torch.float32).requires_grad_()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        packed = packed_of(LENGTHS).map(mode.from_tensor)
        start, end = head([mode.from_tensor(states)], packed)
        assert start.shape == end.shape == (sum(LENGTHS),)
        gradients = torch.autograd.grad((start * end).sum(), list(head.parameters()))
        assert [value.shape for value in gradients] == [value.shape for value in head.parameters()]
        with pytest.raises(DataDependentOutputException):
            (start * end).sum().item()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")
@pytest.mark.parametrize("context", ["simple", "vectorised"])
def test_on_a_gpu(context):
    torch.manual_seed(0)
    head = ContextCNN(48, context).cuda()
    packed = packed_of(LENGTHS).map(lambda array: array.cuda())
    states = random_states(LENGTHS, 48, torch.float32).cuda().requires_grad_()
    torch.cuda.set_sync_debug_mode("error")
    try:
        exact, rough = half(head, states, packed, "cuda")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    host = half(head.cpu(), states.detach().cpu().requires_grad_(), packed_of(LENGTHS))[0]
    for found, expected in zip(exact, host):
        assert_near(found.cpu(), expected, 1e-2)  # TF32 may be on
    for found, expected in zip(rough[:2], exact[:2]):
        assert_near(found, expected, 0.03)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"context": "vectorized"}, "context 'vectorized'.*'vectorised' or 'simple'"),
        ({"context": "simple", "filters": 3}, "filters with context = 'vectorised' only"),
        ({"filters": 0}, "filters must be .* not 0"),
        ({"filters": 2.5}, "cacnn: filters is 2.5; a whole number is wanted"),
        ({"width": 4}, "width must be an odd number .* not 4"),
        ({"width": -1}, "width must be an odd number .* not -1"),
        ({"width": "3"}, "cacnn: width is '3'; a whole number is wanted"),
        ({"width": True}, "cacnn: width is True; a whole number is wanted"),
        ({"maps": 3}, "maps must be an even number.* not 3"),
        ({"maps": 0}, "maps must be an even number.* not 0"),
        ({"kernel": 3}, "cacnn: unknown key kernel; did you mean"),
    ],
)
def test_bad_settings(setting, message):
    with pytest.raises(QuothError, match=message) as error:
        build_head({"kind": "cacnn", **setting}, 24, 2)
    assert "\n" not in str(error.value)

"""Heads on frozen states on a GPU, in bf16 with their kernels, against float64 on the host."""

import copy

import numpy as np
import pytest
import torch

from quoth.heads import build_head
from quoth.heads.shared import Together
from quoth.heads.step import stack
from quoth.tasks.span import span_loss
from quoth.windows.packed import pack

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine"),
]
LAYERS, LENGTHS = 4, (7, 384, 1, 130, 65)
LINES = [
    "pool(learned) > linear",
    "pool(average) > linear",
    "last(2) > pool(learned) > skip > linear",
    "compress(64) > linear",
    "compress(386) > skip > linear",
    "compress(13, each) > linear",
    "compress(386, each) > skip > linear",
    "pool(learned) > compress(21) > linear",
    "(compress(30) + pool(learned) > compress(9)) > linear",
    "compress(20) > pool(learned) > linear",
    "cnn(1xN, dropout=0) > linear",
    "cnn(1xN, dilation=2, dropout=0) > linear",
    "pool(average) > compress(40) > cnn(1xN, dropout=0) > linear",
    "attend(weighted)",
    "attend(dot)",
    "attend(multiplicative)",
    "attend(encoder)",
]


def packed():
    rng = np.random.default_rng(0)
    batch = pack([rng.integers(5, 90, n) for n in LENGTHS], [np.zeros(n, int) for n in LENGTHS])
    return batch.map(lambda array: torch.from_numpy(np.ascontiguousarray(array)))


def answers():
    rng = np.random.default_rng(1)
    return torch.from_numpy(np.sort(rng.integers(0, np.array(LENGTHS)[:, None], (len(LENGTHS), 2)), axis=1))


def near(found, expected, part):
    scale = expected.abs().max().clamp(min=1e-9)
    worst = (found.double().cpu() - expected).abs().max() / scale
    assert worst < part, float(worst)


def wide(head):
    """Every tensor random, so that no gradient is small for another reason than its formula."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in head.named_parameters():
            if "norm.weight" in name:
                continue
            fan = value[0].numel() if value.ndim > 1 else 16
            value.copy_((1.0 if "scale" in name else 0.0) + torch.randn(value.shape, generator=generator) / fan**0.5)
    return head


def gradients(head, states, batch, where):
    """One backward pass in bf16: the logits. states: (L, T, h)."""
    with torch.autocast(where, torch.bfloat16):
        found = head(states, batch)
    span_loss(*found, batch, answers().to(where, non_blocking=True)).backward()
    return torch.stack([logits.detach() for logits in found])


def distance(values, truths):
    """How far these tensors are from the true ones, beside their size.

    0 where the truth is 0: what is added to all tokens' logits alike, such as the last bias, moves no softmax.
    """
    pairs = zip(values, truths)
    return [float((a.double().cpu() - b).norm() / b.norm()) if b.norm() > 1e-6 else 0.0 for a, b in pairs]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("hidden", [48, 384])
def test_frozen_states(line, hidden):
    """Logits and gradients are as near to the truth as plain bf16 on the host; relu and gelu turn some of it round."""
    head = wide(build_head(line, hidden, LAYERS)).train()
    generator = torch.Generator().manual_seed(2)
    states = [torch.randn(sum(LENGTHS), hidden, generator=generator).bfloat16() for _ in range(LAYERS + 1)]
    stacked, first, last = stack(states), head.reads[0], head.reads[-1] + 1
    true = copy.deepcopy(head).double()
    start, end = true([state.double() for state in states[first:last]], packed())
    span_loss(start, end, packed(), answers()).backward()
    plain, there = copy.deepcopy(head), head.cuda()
    on_host = gradients(plain, stacked[first:last], packed(), "cpu")
    batch, moved = packed().map(lambda array: array.cuda()), stacked.transpose(0, 1).cuda().transpose(0, 1)
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = gradients(there, moved[first:last], batch, "cuda")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    truths = [torch.stack([start, end]).detach(), *(value.grad for value in true.parameters())]
    here = distance([on_host, *(value.grad for value in plain.parameters())], truths)
    far = distance([found, *(value.grad for value in there.parameters())], truths)
    names = ["logits", *(name for name, _ in head.named_parameters())]
    assert {n: f for n, f, h in zip(names, far, here) if f > 1.5 * h + 0.02} == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_span_loss(dtype):
    generator = torch.Generator().manual_seed(3)
    logits = (4 * torch.randn(sum(LENGTHS), 2, generator=generator)).to(dtype)
    host = logits.double().requires_grad_()
    expected = span_loss(*host.unbind(-1), packed(), answers())
    (3 * expected).backward()
    there = logits.cuda().requires_grad_()
    found = span_loss(*there.unbind(-1), packed().map(lambda array: array.cuda()), answers().cuda())
    (3 * found).backward()
    near(found.detach(), expected.detach(), 1e-5)
    near(there.grad, host.grad, 1e-5 if dtype == torch.float32 else 5e-3)


def together(lines, hidden):
    """All heads on the same states, as frozen heads are trained: of each the logits and its gradients."""
    generator = torch.Generator().manual_seed(2)
    states = [torch.randn(sum(LENGTHS), hidden, generator=generator).bfloat16() for _ in range(LAYERS + 1)]
    heads = [wide(build_head(line, hidden, LAYERS)).train() for line in lines]
    truths = []
    for head in heads:
        true = copy.deepcopy(head).double()
        start, end = true([states[layer].double() for layer in head.reads], packed())
        span_loss(start, end, packed(), answers()).backward()
        truths.append([torch.stack([start, end]).detach(), *(value.grad for value in true.parameters())])
    batch, moved = packed().map(lambda array: array.cuda()), stack([state.cuda() for state in states])
    heads = [head.cuda() for head in heads]
    places, labels, found = [slice(head.reads[0], head.reads[-1] + 1) for head in heads], answers().cuda(), []
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.autocast("cuda", torch.bfloat16):
            shared = Together(heads, places, moved)
        for head, place in zip(heads, places):
            with torch.autocast("cuda", torch.bfloat16):
                logits = head(moved[place], batch, shared.given)
            span_loss(*logits, batch, labels).backward()
            found.append([torch.stack([value.detach() for value in logits])])
        shared.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return (
        heads,
        [[*logits, *(value.grad for value in head.parameters())] for logits, head in zip(found, heads)],
        truths,
    )


@pytest.mark.parametrize("hidden", [64, 384])
def test_heads_that_share_what_they_read(hidden):
    """As near to the truth as heads alone; and in every run the same bits.

    Where the sign of what a relu gets is rounded away, a token's whole gradient is: of 5 windows that is much.
    """
    heads, found, truths = together(LINES, hidden)
    wrong = {}
    for line, head, values, true in zip(LINES, heads, found, truths):
        names = ["logits", *(name for name, _ in head.named_parameters())]
        far = zip(names, distance(values, true))
        most = 0.4 if "cnn" in line else 0.06
        wrong |= {f"{line}: {name}": part for name, part in far if part > (0.03 if name == "logits" else most)}
    assert wrong == {}
    again = together(LINES, hidden)[1]
    assert all(torch.equal(a, b) for mine, other in zip(found, again) for a, b in zip(mine, other))

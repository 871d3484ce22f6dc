"""Every head can be trained to answer 32 questions (Silva, figure 8; and BERTVision's heads no less)."""

import pytest
import torch
import torch.nn.functional as F

from quoth.heads import build_head
from quoth.windows.packed import pack

QUESTIONS = 32
# line, size of the states, learning rate
LIGHT = [
    ("linear", 96, 0.03),
    ("pool(learned) > linear", 96, 0.03),
    ("pool(average) > linear", 96, 0.1),
    ("compress(64) > linear", 96, 0.01),
    ("compress(64) > skip > linear", 96, 0.01),
    ("compress(64, each) > linear", 96, 0.01),
    ("compress(64, each) > skip > linear", 96, 0.01),
    ("compress(386) > skip > linear", 96, 0.01),
    ("compress(386, each) > linear", 96, 0.01),
    ("pool(learned) > compress(386) > skip > linear", 96, 0.01),
    ("pool(average) > compress(386) > skip > linear", 96, 0.01),
    ("compress(64) > pool(learned) > linear", 96, 0.01),
    ("(compress(386) + pool(learned) > compress(386)) > linear", 96, 0.01),
    ("cnn(1xN) > linear", 96, 0.003),
    ("cnn(1xN, dilation=2) > linear", 96, 0.003),
    ("cnn(1xN, dropout=0) > linear", 96, 0.003),
    ("pool(learned) > cnn(1xN) > linear", 96, 0.003),
    ("pool(average) > cnn(1xN) > linear", 96, 0.003),
    ("pool(learned) > compress(386) > cnn(1xN) > linear", 96, 0.003),
    ("attend(weighted)", 96, 0.01),
    ("attend(dot)", 96, 0.01),
    ("attend(multiplicative)", 96, 0.01),
    ("attend(encoder)", 96, 0.003),
]
HEAVY = [
    ("pool(learned) > compress(32) > cnn(NxN) > linear", 48, 0.003),
    ("inception > linear", 4, 8e-4),
    ("xception > linear", 4, 8e-4),
]
CLASSES = [
    ("xception(short) > linear", 24, 0.003),
    ("xception(short) > skip > linear", 24, 0.003),
    ("xception(full) > linear", 6, 4e-4),
]


def slow(cases):
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def questions(hidden, states, seed=3):
    """Windows of 2 or 3 tokens, random states, the numbers of the answers' first and last tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 4, (QUESTIONS,), generator=generator)
    answers = (torch.rand(2, QUESTIONS, generator=generator) * lengths).long()
    rows = [torch.randn(int(lengths.sum()), hidden, generator=generator) for _ in range(states)]
    return rows, pack([[0] * int(n) for n in lengths]).map(torch.from_numpy), answers


def span_loss(head, states, packed, answers):
    loss = torch.zeros(())
    for logits, targets in zip(head(states, packed), answers):
        for window, target in zip(logits.split(packed.lengths), targets):
            loss = loss + F.cross_entropy(window, target) / (2 * QUESTIONS)
    return loss


def fits(head, loss, rate, steps=300):
    optimiser = torch.optim.Adam(head.parameters(), rate)
    for _ in range(steps):
        now = loss()
        if float(now.detach()) < 0.05:
            return True
        optimiser.zero_grad()
        now.backward()
        optimiser.step()
    return False


@pytest.mark.parametrize(("line", "hidden", "rate"), [*LIGHT, *slow(HEAVY)])
def test_spans(line, hidden, rate):
    torch.manual_seed(0)
    head = build_head(line, hidden, 3)
    states, packed, answers = questions(hidden, len(head.reads))
    assert fits(head, lambda: span_loss(head, states, packed, answers), rate)


@pytest.mark.parametrize(("line", "hidden", "rate"), [*LIGHT, *slow(CLASSES)])
def test_classes(line, hidden, rate):
    torch.manual_seed(0)
    head = build_head({"kind": "chain", "line": line, "labels": 3, "pooled": True}, hidden, 3)
    generator = torch.Generator().manual_seed(3)
    first = [torch.randn(QUESTIONS, hidden, generator=generator) for _ in range(len(head.reads) + 1)]
    labels = torch.randint(0, 3, (QUESTIONS,), generator=generator)
    assert fits(head, lambda: F.cross_entropy(head(first), labels), rate)

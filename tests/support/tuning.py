"""Tiny bases on disk, models tuned on them, and one real step of training."""

import pytest
import torch
import torch.nn.functional as F

from quoth.heads.linear import ClassHead, SpanHead
from quoth.model import apply
from quoth.model.loading import load
from tiny import CONFIGS, batch, hugging_face, random_windows


def packed_batch(lengths=(7, 30, 12), seed=0):
    return batch(*random_windows(lengths, seed=seed))


def span_loss(model, packed):
    start, end = model(packed)
    losses = []
    for window, (s, e) in enumerate(zip(start.split(list(packed.lengths)), end.split(list(packed.lengths)))):
        losses.append(F.cross_entropy(s, torch.tensor(window % len(s))) + F.cross_entropy(e, torch.tensor(len(e) - 1)))
    return sum(losses) / len(losses)


def class_loss(model, packed):
    logits = model(packed)
    return F.cross_entropy(logits, torch.arange(len(logits)) % logits.shape[1])


@pytest.fixture(scope="session")
def bases(tmp_path_factory):
    """Hugging Face folders of tiny encoders with a pooler, by family."""
    root = tmp_path_factory.mktemp("bases")
    for family in CONFIGS:
        hugging_face(family).save_pretrained(root / family)
    return root


@pytest.fixture
def tune(bases):
    """tune(family, tuning, steps): a tiny base with a fresh span (or class) head, tuned for some steps; dropout off."""

    def make(family, tuning, steps=2, head="span", seed=0, source=None):
        torch.manual_seed(seed)
        model = load(source or bases / family)
        hidden = model.encoder.shape.hidden
        model.head = SpanHead(hidden) if head == "span" else ClassHead(hidden, 3, pooled=True)
        apply(model, tuning)
        train(model, steps, seed)
        return model

    return make


def train(model, steps=1, seed=0):
    """AdamW without decay, so that only a gradient moves a weight; in eval mode, so without dropout."""
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0)
    loss = span_loss if model.head.task == "span" else class_loss
    for step in range(steps):
        optimiser.zero_grad()
        loss(model, packed_batch(seed=100 * seed + step)).backward()
        optimiser.step()


@pytest.fixture
def step():
    """One step of training on a model."""
    return train


@pytest.fixture
def packed():
    return packed_batch()

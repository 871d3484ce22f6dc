"""Gates trained on random windows, for tests: what `quoth.prune.schedule` does in a round, without folders."""

import copy

import numpy as np
import torch
from accelerate import Accelerator

from quoth.encoder.device import Device
from quoth.prune.cost import Parameters, betas
from quoth.prune.gate_training import GateTraining
from quoth.prune.penalty import make_penalty
from quoth.prune.recipe import GateSettings
from quoth.tasks import GlueTask, SpanTask
from quoth.tasks.examples import Examples, Feed
from quoth.train.distillation import Distillation
from quoth.train.loop import Loop
from quoth.windows.columns import Windows

CPU = torch.device("cpu")


def make_windows(count, vocab, types=2, longest=24, seed=0):
    """Windows of random tokens."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, longest + 1, count)
    starts = np.append(0, np.cumsum(lengths))
    total = int(starts[-1])
    return Windows(
        rng.integers(0, vocab, total).astype(np.int32),
        rng.integers(0, types, total).astype(np.int32),
        np.zeros((total, 2), np.int32),
        np.zeros(total, np.int32),
        starts,
        np.arange(count, dtype=np.int32),
        np.stack([np.ones(count), lengths], 1).astype(np.int32),
    )


def make_feed(model, count=256, seed=0, longest=24):
    """Random windows with random spans, or classes, as answers."""
    windows = make_windows(count, model.encoder.shape.vocab, seed=seed, longest=longest)
    rng = np.random.default_rng(seed + 1)
    if model.head.task == "class":
        return Feed(Examples(windows, rng.integers(0, model.head.linear.out_features, count)), CPU)
    answers = np.sort(rng.integers(0, windows.lengths[:, None], (count, 2)), 1)
    return Feed(Examples(windows, answers), CPU)


def learn(model, feed, kinds="all", cost=None, **settings):
    """Train gates to the end of their steps, by distillation if nothing else is set: the penalty, and the loop."""
    distilled = {"task_weight": 0.0, "logits_weight": 1.0}
    made = GateSettings(**{"batch_size": 32, "precision": "fp32", **distilled, **settings})
    shape = model.encoder.shape
    price = betas(cost or Parameters(), shape, kinds)
    penalty = make_penalty(made.penalty, shape, kinds, made.gamma, price)
    optimisation = made.optimisation()
    device = Device.choose("cpu", optimisation.named_precision)
    task = SpanTask(None, [], None) if model.head.task == "span" else GlueTask("MRPC", ("0", "1"), None)
    loss = Distillation(task, made.loss, device, copy.deepcopy(model))
    objective = GateTraining(model, penalty, loss, feed, optimisation, 0, device)
    loop = Loop(objective, feed.lengths, optimisation, 0, Accelerator(cpu=True), made.steps)
    while loop.step < loop.steps:
        loop.advance()
    return penalty, loop

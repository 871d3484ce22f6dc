"""The heads of pre-training where an encoder lacks them: made afresh, and fitted on the frozen encoder until flat.

Pre-trained encoders are often shipped without MLM head, NSP head and pooler. What fresh ones say means nothing, and
their first gradients would harm the encoder (or its gates); so they learn first, and alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from quoth.encoder.device import choose
from quoth.errors import QuothError
from quoth.heads.mlm import MlmHead, mlm_table
from quoth.model.model import Model
from quoth.tasks.masking import MaskedFeed
from quoth.tasks.pretrain import PretrainEvaluation
from quoth.train.loop import make_batches, precision_of, seed_of, task_loss
from quoth.train.optimiser import make_optimiser, rate_at
from quoth.train.settings import Optimisation

SETTINGS = Optimisation(rate=1e-3, schedule="constant", warmup=0.0)


@dataclass(frozen=True)
class Fit:
    """How heads were fitted.

    steps: how many it took; losses: of the held-out text, before the first step and at every look; every: steps between
    two looks; flat: whether the loss had become flat, and not the steps come to their end
    """

    steps: int
    losses: tuple[float, ...]
    every: int
    flat: bool

    def line(self) -> str:
        """For people."""
        how = "flat" if self.flat else "not yet flat"
        return f"heads: {self.steps} steps, held-out loss {self.losses[0]:.4f} to {self.losses[-1]:.4f}, {how}"


def add_heads(model: Model, seed: int = 0, *, following: bool = True) -> tuple[str, ...]:
    """Give a model what it lacks of MLM head, NSP head and pooler. Returns the names of what was drawn afresh.

    What it has of them stays, another kind of head goes. following: whether NSP, with the pooler it reads, is wanted
    """
    encoder, old = model.encoder, model.head
    torch.manual_seed(seed_of(seed))
    settings = mlm_table(encoder.shape, encoder.style, following=following)
    settings.pop("kind")
    head = MlmHead(encoder.shape.hidden, **settings)
    kept = {}
    if isinstance(old, MlmHead):
        wanted = {name: value.shape for name, value in head.state_dict().items()}
        kept = {name: value for name, value in old.state_dict().items() if wanted.get(name) == value.shape}
        head.load_state_dict(kept, strict=False)
    fresh = [f"head.{name}" for name, _ in head.named_parameters() if name not in kept]
    if old is None or fresh or old.to_json() != head.to_json():
        model.head = head.to(encoder.embeddings.words.weight)
    if following and model.pooler is None:
        model.pooler = nn.Linear(encoder.shape.hidden, encoder.shape.hidden)
        nn.init.normal_(model.pooler.weight, std=0.02)
        nn.init.zeros_(model.pooler.bias)
        model.pooler.to(encoder.embeddings.words.weight)
        fresh += ["pooler.weight", "pooler.bias"]
    return tuple(fresh)


def fit_heads(
    model: Model,
    feed: MaskedFeed,
    evaluation: PretrainEvaluation,
    names: Collection[str],
    *,
    settings: Optimisation = SETTINGS,
    seed: int = 0,
    every: int = 100,
    looks: int = 3,
    least: float = 0.01,
    most: int = 5000,
    tell: Callable[[str], None] | None = None,
) -> Fit:
    """Train the parameters `names` (of head and pooler, as `add_heads` returns them) and nothing else until flat.

    Every so many steps the held-out loss is looked at. It is flat when the best of the last `looks` of them is not
    better than the best before by a part `least` of it; after `most` steps it ends anyway. The encoder is frozen and
    without dropout. In one process, on the device of `feed`; the same arguments give the same heads. What learns
    afterwards is what learnt before (`requires_grad`), and the model is left in evaluation mode.
    """
    _check(model, names)
    place, half = choose(str(feed.device), precision_of(settings))
    device, precision = str(place), "bf16" if half else "fp32"
    model.to(place).eval()
    before = {name: value.requires_grad for name, value in model.named_parameters()}
    losses = [evaluation(model, device, precision)[1]["loss"]]
    if not names:
        return Fit(0, tuple(losses), every, flat=True)
    batches = make_batches(feed.lengths, settings, seed, 1)
    step = 0
    try:
        for name, value in model.named_parameters():
            value.requires_grad_(name in names)
        optimiser = make_optimiser(model.named_parameters(), settings)
        while step < most and not _flat(losses, looks, least):
            for _ in range(min(every, most - step)):
                for group in optimiser.param_groups:
                    group["lr"] = rate_at(step, most, settings)
                _advance(
                    model, feed, batches.batch(*divmod(step, batches.count())), step, optimiser, half, settings.clip
                )
                step += 1
            losses.append(evaluation(model, device, precision)[1]["loss"])
            if tell:
                tell(f"heads: step {step}, held-out loss {losses[-1]:.4f}")
    finally:
        for name, value in model.named_parameters():
            value.requires_grad_(before[name])
    return Fit(step, tuple(losses), every, _flat(losses, looks, least))


def _advance(
    model: Model, feed: MaskedFeed, indices: Any, step: int, optimiser: torch.optim.Optimizer, half: bool, clip: float
) -> None:
    """One step of the heads on the states of the frozen encoder."""
    packed, labels = feed.batch(indices, step)
    cast: Any = torch.autocast(feed.device.type, torch.bfloat16) if half else nullcontext()
    with cast:
        with torch.no_grad():
            states = model.encoder(packed, model.head.reads)
        found = model.read(model.head, states, packed)
    (task_loss(found, packed, labels) / len(indices)).backward()
    if clip:
        nn.utils.clip_grad_norm_([value for value in model.parameters() if value.requires_grad], clip)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def _flat(losses: list[float], looks: int, least: float) -> bool:
    """Whether the best of the last `looks` losses gains less than a part `least` on the best before."""
    return len(losses) > looks and min(losses[-looks:]) > (1 - least) * min(losses[:-looks])


def _check(model: Model, names: Collection[str]) -> None:
    if model.head is None or model.head.task != "mlm":
        raise QuothError("this model has no head of pre-training; add_heads gives it one")
    known = {name for name, _ in model.named_parameters() if name.startswith(("head.", "pooler."))}
    wrong = sorted(set(names) - known)
    if wrong:
        raise QuothError(f"{wrong[0]}: is no parameter of this model's head or pooler")

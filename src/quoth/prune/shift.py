"""`norm_shift`: what taking LayerNorm's statistics over the kept units alone does to a model's outputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from quoth.encoder.axes import Alpha
from quoth.model import Model
from quoth.prune.gates import Gates, Statistics, gated, kept_by
from quoth.tasks.task import all_logits
from quoth.windows import Packed


@dataclass(frozen=True)
class Shift:
    """How far outputs moved: the most, the mean, and for comparison the mean size of the outputs themselves."""

    most: float
    mean: float
    size: float


@torch.no_grad()
def norm_shift(model: Model, gates: Gates | Alpha, packed: Packed[Tensor]) -> Shift:
    """Outputs with statistics over the units with α_h ≠ 0 against those over all units; nothing else differs.

    The outputs are the logits; of a model without a head, the last states at the kept units. Dropout is off.
    """
    full, kept = (_outputs(model, gates, packed, statistics) for statistics in ("full", "kept"))
    apart = (full - kept).abs()
    return Shift(apart.max().item(), apart.mean().item(), kept.abs().mean().item())


def _outputs(model: Model, gates: Gates | Alpha, packed: Packed[Tensor], statistics: Statistics) -> Tensor:
    training = model.training
    model.eval()
    try:
        with gated(model, gates, statistics):
            if model.head is None:
                state: Tensor = model.encoder(packed)[0]
                kept = kept_by(gates).get("h")
                return (state if kept is None else state[:, kept]).double()
            return all_logits(model(packed)).double()
    finally:
        model.train(training)

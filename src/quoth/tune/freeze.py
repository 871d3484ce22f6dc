"""Tuning methods that insert nothing and choose among the encoder's own weights.

    Full    every weight, embeddings and pooler included (Devlin et al. 2019, §4)
    Freeze  layers L−k+1 … L and every LayerNorm (the models Lk of Hulburd 2020, "Exploring BERT Parameter Efficiency on
            the Stanford Question Answering Dataset v2.0")
    BitFit  every b of W·x + b and every LayerNorm's bias, about one weight in a thousand (Ben Zaken et al. 2022,
            "BitFit: Simple Parameter-efficient Fine-tuning")

The head is always trained. With Freeze every LayerNorm is trained, so gradients flow to the bottom, and freezing half
of the layers cannot save more than a sixth of the time. With norms = "above" only the LayerNorms of the tuned layers
are trained: the frozen part builds no graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from quoth.encoder import Encoder
from quoth.encoder.shape import check_whole
from quoth.errors import QuothError
from quoth.tune.tuning import Norms, Tuning, check_one_of, register_tuning


@register_tuning
@dataclass(frozen=True)
class Full(Tuning):
    """Everything is trained. The pooler counts, though no gradient reaches it from a head that does not read it."""

    kind: ClassVar[str] = "full"
    trains_pooler: ClassVar[bool] = True

    def trainable(self, encoder: Encoder) -> set[str]:
        """All of the encoder."""
        return {name for name, _ in encoder.named_parameters()}


@register_tuning
@dataclass(frozen=True)
class Freeze(Tuning):
    """The last `layers` layers are trained, and LayerNorms: all, or only those of these layers ("above")."""

    layers: int
    norms: Norms = "all"
    kind: ClassVar[str] = "freeze"

    def __post_init__(self) -> None:
        check_whole("tuning: layers", self.layers, 0)
        check_one_of("norms", self.norms, ("all", "above"))

    def install(self, encoder: Encoder) -> None:
        """Nothing to install; refuse a number of layers that the encoder does not have."""
        check_layers(self.layers, encoder)

    def trainable(self, encoder: Encoder) -> set[str]:
        """The last layers, LayerNorms and all, and with norms = "all" the other LayerNorms."""
        check_layers(self.layers, encoder)
        stored = len(encoder.layers)  # one if the layers are tied: then it is all of them or none
        first = stored - min(self.layers, stored)
        tuned = tuple(f"layers.{number}." for number in range(first, stored))
        names = {name for name, _ in encoder.named_parameters() if name.startswith(tuned)}
        return names | norm_names(encoder) if self.norms == "all" else names


@register_tuning
@dataclass(frozen=True)
class BitFit(Tuning):
    """All biases of the encoder are trained, those of LayerNorm too."""

    kind: ClassVar[str] = "bitfit"

    def trainable(self, encoder: Encoder) -> set[str]:
        """All biases of the encoder."""
        return {name for name, _ in encoder.named_parameters() if name.endswith(".bias")}


def norm_names(encoder: Encoder) -> set[str]:
    """Weight and bias of every LayerNorm of the encoder."""
    norms = [name for name, module in encoder.named_modules() if isinstance(module, nn.LayerNorm)]
    return {f"{name}.{part}" for name in norms for part in ("weight", "bias")}


def check_layers(layers: int, encoder: Encoder) -> None:
    """Refuse a number of layers to tune that this encoder cannot have."""
    count = len(encoder.shape.layers)
    if layers > count:
        raise QuothError(f"tuning: layers is {layers}, but this encoder has {count} layers; choose 0 to {count}")
    if encoder.shape.tied and layers not in (0, count):
        raise QuothError(
            f"tuning: layers is {layers}, but the {count} layers of this encoder share their weights; "
            f"choose 0 or {count}"
        )

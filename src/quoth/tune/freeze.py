"""Freezing: train the last k layers (the models Lk of Hulburd 2020, "Exploring BERT Parameter Efficiency
on the Stanford Question Answering Dataset v2.0").

    trained:  layers L−k+1 … L,  every LayerNorm of the encoder,  the head

Every LayerNorm is trained, so gradients flow to the bottom, and freezing half of the layers cannot save more than a
sixth of the time. With norms = "above" only the LayerNorms of the tuned layers are trained: the frozen part builds no
graph.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from torch import nn

from quoth.encoder import Encoder
from quoth.errors import QuothError
from quoth.tune.tuning import Norms, check_one_of, check_whole, register_tuning


@register_tuning
@dataclass(frozen=True)
class Freeze:
    """The last `layers` layers are trained, and LayerNorms: all, or only those of these layers ("above")."""

    layers: int
    norms: Norms = "all"
    kind: ClassVar[str] = "freeze"
    trains_pooler: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole("layers", self.layers, 0)
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

    def to_json(self) -> dict[str, Any]:
        """For `build_tuning`."""
        return {"kind": self.kind, **asdict(self)}


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

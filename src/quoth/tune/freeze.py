"""Freezing: train the last k layers (the models Lk of Hulburd 2020, "Exploring BERT Parameter Efficiency
on the Stanford Question Answering Dataset v2.0").

    learns:  layers L−k+1 … L,  every LayerNorm of the encoder,  the head

Every LayerNorm learns, so gradients flow to the bottom, and freezing half of the layers cannot save more than a sixth
of the time. With norms = "above" only the LayerNorms of the tuned layers learn: the frozen part builds no graph.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from torch import nn

from quoth.encoder.model import Model
from quoth.errors import QuothError
from quoth.tune.tuning import Norms, check_one_of, check_whole


@dataclass(frozen=True)
class Freeze:
    """The last `layers` layers learn, and LayerNorms: all, or only those of these layers ("above")."""

    layers: int
    norms: Norms = "all"
    kind: ClassVar[str] = "freeze"

    def __post_init__(self) -> None:
        check_whole("layers", self.layers, 0)
        check_one_of("norms", self.norms, ("all", "above"))

    def install(self, model: Model) -> None:
        """Nothing to install; refuse a number of layers that the encoder does not have."""
        check_layers(self.layers, model)

    def remove(self, model: Model) -> None:
        """Nothing to remove."""

    def learns(self, model: Model) -> set[str]:
        """The last layers, LayerNorms and all, and with norms = "all" the other LayerNorms."""
        check_layers(self.layers, model)
        stored = len(model.encoder.layers)  # one if the layers are tied: then it is all of them or none
        first = stored - min(self.layers, stored)
        tuned = tuple(f"encoder.layers.{number}." for number in range(first, stored))
        names = {name for name, _ in model.named_parameters() if name.startswith(tuned)}
        return names | norm_names(model) if self.norms == "all" else names

    def to_json(self) -> dict[str, Any]:
        """For `build_tuning`."""
        return {"kind": self.kind, **asdict(self)}


def norm_names(model: Model) -> set[str]:
    """Weight and bias of every LayerNorm of the encoder."""
    norms = [name for name, module in model.encoder.named_modules() if isinstance(module, nn.LayerNorm)]
    return {f"encoder.{name}.{part}" for name in norms for part in ("weight", "bias")}


def check_layers(layers: int, model: Model) -> None:
    """Refuse a number of layers to tune that this encoder cannot have."""
    count = len(model.encoder.shape.layers)
    if layers > count:
        raise QuothError(f"tuning: layers is {layers}, but this encoder has {count} layers; choose 0 to {count}")
    if model.encoder.shape.tied and layers not in (0, count):
        raise QuothError(
            f"tuning: layers is {layers}, but the {count} layers of this encoder share their weights; "
            f"choose 0 or {count}"
        )

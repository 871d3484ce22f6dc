"""BitFit: only biases are trained (Ben Zaken et al. 2022, "BitFit: Simple Parameter-efficient Fine-tuning").

    trained:  every b of W·x + b in the encoder,  every LayerNorm's bias,  the head

That is about one weight in a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from quoth.encoder import Encoder
from quoth.tune.tuning import register_tuning


@register_tuning
@dataclass(frozen=True)
class BitFit:
    """All biases of the encoder are trained, those of LayerNorm too."""

    kind: ClassVar[str] = "bitfit"
    trains_pooler: ClassVar[bool] = False

    def install(self, encoder: Encoder) -> None:
        """Nothing to install."""

    def trainable(self, encoder: Encoder) -> set[str]:
        """All biases of the encoder."""
        return {name for name, _ in encoder.named_parameters() if name.endswith(".bias")}

    def to_json(self) -> dict[str, Any]:
        """For `build_tuning`."""
        return {"kind": self.kind}

"""BitFit: only biases learn (Ben Zaken et al. 2022, "BitFit: Simple Parameter-efficient Fine-tuning").

    learns:  every b of W·x + b in the encoder,  every LayerNorm's bias,  the head

That is about one weight in a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from quoth.encoder.model import Model


@dataclass(frozen=True)
class BitFit:
    """All biases of the encoder learn, LayerNorm's too."""

    kind: ClassVar[str] = "bitfit"

    def install(self, model: Model) -> None:
        """Nothing to install."""

    def remove(self, model: Model) -> None:
        """Nothing to remove."""

    def learns(self, model: Model) -> set[str]:
        """All biases of the encoder."""
        names = (name for name, _ in model.named_parameters())
        return {name for name in names if name.startswith("encoder.") and name.endswith(".bias")}

    def to_json(self) -> dict[str, Any]:
        """For `build_tuning`."""
        return {"kind": self.kind}

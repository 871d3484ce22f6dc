"""Full fine-tuning (Devlin et al. 2019, §4): every weight is trained, embeddings and pooler included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from quoth.encoder import Encoder
from quoth.tune.tuning import register_tuning


@register_tuning
@dataclass(frozen=True)
class Full:
    """Everything is trained. The pooler counts, though no gradient reaches it from a head that does not read it."""

    kind: ClassVar[str] = "full"
    trains_pooler: ClassVar[bool] = True

    def install(self, encoder: Encoder) -> None:
        """Nothing to install."""

    def trainable(self, encoder: Encoder) -> set[str]:
        """All of the encoder."""
        return {name for name, _ in encoder.named_parameters()}

    def to_json(self) -> dict[str, Any]:
        """For `build_tuning`."""
        return {"kind": self.kind}

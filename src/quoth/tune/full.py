"""Full fine-tuning (Devlin et al. 2019, §4): every weight learns, embeddings and pooler included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from quoth.encoder.model import Model


@dataclass(frozen=True)
class Full:
    """Everything learns. The pooler counts, though no gradient reaches it from a head that does not read it."""

    kind: ClassVar[str] = "full"

    def install(self, model: Model) -> None:
        """Nothing to install."""

    def remove(self, model: Model) -> None:
        """Nothing to remove."""

    def learns(self, model: Model) -> set[str]:
        """All of encoder and pooler."""
        return {name for name, _ in model.named_parameters() if not name.startswith("head.")}

    def to_json(self) -> dict[str, Any]:
        """For `build_tuning`."""
        return {"kind": self.kind}

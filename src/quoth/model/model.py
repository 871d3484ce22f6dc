"""`Model`: an encoder, perhaps with its pooler and a head; `load` and `save` bring it from and to folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from quoth.encoder import Encoder
from quoth.encoder.families import family_of
from quoth.errors import QuothError
from quoth.heads import Head
from quoth.heads.head import Output, States
from quoth.model.checkpoint import Base
from quoth.tune import Tuning
from quoth.windows import Packed


@dataclass(frozen=True)
class Origin:
    """Where a model came from, for what is kept when it is saved again."""

    source: str = ""
    config: dict[str, Any] | None = None
    tokenizer: tuple[Path, ...] = ()
    unused: tuple[str, ...] = ()


class Model(nn.Module):
    """An encoder, perhaps its family's pooler (dense h → h and tanh on the first token), perhaps a head.

    tuning and base are set by `quoth.model.apply` and by `load`: how the model is trained, and on which weights;
    base is None where the model has none and is saved whole.
    """

    def __init__(
        self,
        encoder: Encoder,
        head: Head | None = None,
        *,
        family: str = "bert",
        pooler: bool = False,
        origin: Origin | None = None,
    ) -> None:
        super().__init__()
        self.family = family_of(family, "model")
        self.encoder = encoder
        self.pooler = nn.Linear(encoder.shape.hidden, encoder.shape.hidden) if pooler else None
        self.head: Any = head  # a `Head`, or None
        self.origin = origin or Origin()
        self.tuning: Tuning | None = None
        self.windows: dict[str, int] | None = None  # the max_length, step and max_query_length that it was trained with
        self.base: Base | None = None

    def forward(self, packed: Packed[Tensor]) -> Output:
        """Logits of a batch, by task: start (T,), end (T,); or (n, labels); or words (m, vocab), nsp (n, 2)."""
        if self.head is None:
            raise QuothError("this model has no head: use model.encoder for states, or train a head")
        return self.read(self.head, self.encoder(packed, self.head.reads), packed)

    def read(self, head: Head, states: States, packed: Packed[Tensor]) -> Output:
        """What a head, this model's or another, makes of the states of the layers that it reads."""
        if head.task == "span":
            return head(states, packed)
        places = packed.starts[:-1].long()
        if head.task == "mlm":
            table = self.encoder.embeddings.words.weight
            pooled = self._pool(states[-1][places]) if head.pooled else None
            return head(states, packed, table, pooled)
        first = [state[places] for state in states]
        if head.pooled and self.pooler is not None:
            first.append(self._pool(first[-1]))
        return head(first)

    def _pool(self, first: Tensor) -> Tensor:
        """The pooler's output for first tokens: (n, h) → (n, h)."""
        if self.pooler is None:
            raise QuothError("this model's head reads a pooler, which the model does not have")
        return torch.tanh(self.pooler(first))

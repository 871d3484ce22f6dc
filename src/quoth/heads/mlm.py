"""The head of pre-training (Devlin et al. 2019, §3.1): masked language modelling (MLM), next sentence prediction (NSP).

    MLM:  W·LayerNorm(gelu(D·hₖ + d)) + b    for each masked token k of the last layer, W the word embeddings
    NSP:  F·tanh(pooler(h_CLS)) + f

W is the encoder's own (tied), and so not a part of the head. Where a projection leads from embeddings of size e to h,
D leads back from h to e, as in ALBERT.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quoth.encoder import Shape, Style
from quoth.encoder.axes import FREE, HIDDEN, Axes
from quoth.encoder.steps import ACTIVATIONS, activate, initialise
from quoth.errors import QuothError
from quoth.heads.head import PretrainingOutput, States, Task, register_head
from quoth.windows import Packed
from quoth.windows.packed import Masked


@register_head
class MlmHead(nn.Module):
    """Logits of masked tokens (MLM) and, with `nsp`, of whether B follows A (NSP).

    vocab: rows of the word embeddings; embedding: their columns where a projection leads from them to the hidden size,
    None where they are the hidden size itself; activation, eps: those of the encoder

    The dense layer and its norm are `dense`, `norm` (h → h) or, with a projection, `down`, `down_norm` (h → e): a cut
    of the hidden size changes both sides of the first, one side of the second.
    """

    kind: ClassVar[str] = "mlm"
    task: Task = "mlm"
    axes: ClassVar[Axes] = {  # the decoder's weights are the encoder's, and its bias runs over the vocabulary
        "dense.weight": (HIDDEN, HIDDEN),
        "dense.bias": (HIDDEN,),
        "norm.weight": (HIDDEN,),
        "norm.bias": (HIDDEN,),
        "down.weight": (FREE, HIDDEN),
        "nsp.weight": (FREE, HIDDEN),
    }
    reads: tuple[int, ...] = (-1,)
    reads_words = True  # the table of the words; where that is factorised, `factorised` makes the head that fits

    def __init__(
        self,
        hidden: int,
        vocab: int,
        embedding: int | None = None,
        *,
        activation: str = "gelu",
        eps: float = 1e-12,
        nsp: bool = True,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise QuothError(f"head: activation {activation!r} is unknown; one of {', '.join(ACTIVATIONS)} is wanted")
        self.dense = nn.Linear(hidden, hidden) if embedding is None else None
        self.norm = nn.LayerNorm(hidden, eps) if embedding is None else None
        self.down = nn.Linear(hidden, embedding) if embedding is not None else None
        self.down_norm = nn.LayerNorm(embedding, eps) if embedding is not None else None
        self.bias = nn.Parameter(torch.zeros(vocab))
        self.nsp = nn.Linear(hidden, 2) if nsp else None
        self.pooled = nsp
        self.activation = activation
        self._settings: dict[str, Any] = {"vocab": vocab, "embedding": embedding, "activation": activation, "eps": eps}
        self.apply(initialise)

    @property
    def transformers_class(self) -> str:
        """With NSP it is another one."""
        return "ForPreTraining" if self.pooled else "ForMaskedLM"

    def forward(
        self, states: States, packed: Packed[Tensor], table: Tensor, pooled: Tensor | None = None
    ) -> PretrainingOutput:
        """One state of (T, h), the word embeddings (vocab, e), the pooler's output (n, h) → (m, vocab), (n, 2).

        m are the places of a `Masked` batch, 15 % of the tokens, since a product with all words is much work; of any
        other batch all T tokens.
        """
        x = states[-1]
        if isinstance(packed, Masked):
            x = x[packed.places]
        dense: Any = self.dense if self.dense is not None else self.down
        norm: Any = self.norm if self.norm is not None else self.down_norm
        words = _decode(norm(activate(dense(x), self.activation)), table, self.bias)
        return PretrainingOutput(words, self.nsp(pooled) if self.nsp is not None else None)

    @torch.no_grad()
    def factorised(self, down: Tensor) -> MlmHead:
        """The same over a factorised table of the words: with ALBERT's dense layer and norm, from h to e.

        down: (e, h), which makes of a state what the rows of the new table are to be multiplied with. The words' biases
        and NSP stay. No layer of e computes what one of h did: D' = down·D is where training begins.
        """
        assert self.dense is not None
        vocab, activation, eps = (self._settings[name] for name in ("vocab", "activation", "eps"))
        made = MlmHead(self.dense.in_features, vocab, len(down), activation=activation, eps=eps, nsp=self.pooled)
        made.to(self.dense.weight)
        assert made.down is not None
        down = down.to(self.dense.weight)
        made.down.weight.copy_(down @ self.dense.weight)
        made.down.bias.copy_(down @ self.dense.bias)
        made.bias.copy_(self.bias)
        if made.nsp is not None and self.nsp is not None:
            made.nsp.load_state_dict(self.nsp.state_dict())
        return made

    def to_json(self) -> dict[str, Any]:
        """What a model folder says of this head; see `build_head`."""
        return {"kind": "mlm", **self._settings, "nsp": self.pooled}


def mlm_table(shape: Shape, style: Style, *, nsp: bool = True) -> dict[str, Any]:
    """The table from which `build_head` makes the head that fits an encoder."""
    return {
        "kind": "mlm",
        "vocab": shape.vocab,
        "embedding": shape.embedding if shape.projection else None,
        "activation": style.activation,
        "eps": style.eps,
        "nsp": nsp,
    }


def _decode(x: Tensor, table: Tensor, bias: Tensor) -> Tensor:
    """W·x + b. x: (m, e), table: (vocab, e) → (m, vocab)."""
    extra = -len(table) % 8
    if not extra or not x.is_cuda:
        return F.linear(x, table, bias)
    # BERT's 30,522 words make rows that no fast matrix product of a GPU writes; six more do.
    return F.linear(x, F.pad(table, (0, 0, 0, extra)), F.pad(bias, (0, extra)))[:, : len(table)]

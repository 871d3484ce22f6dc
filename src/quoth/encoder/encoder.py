"""`Encoder`: a BERT-family encoder of any `Shape`, on packed batches.

    h₀ = projection(dropout(LayerNorm(word + position + type)))
    z  = LayerNorm(hₗ + dropout(P·attention(hₗ)))
    hₗ₊₁ = LayerNorm(z + dropout(G·activation(D·z)))

A pruned, a tied and a plain encoder are the same class: they differ in their `Shape` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from quoth.encoder.attention import Attention, Plan, make_plan
from quoth.encoder.relative import distances_on
from quoth.encoder.shape import LayerShape, Shape
from quoth.encoder.steps import ACTIVATIONS, initialise, layer_norm, linear_activate, linear_add_norm
from quoth.encoder.style import Style
from quoth.errors import QuothError
from quoth.windows import Packed


class Embeddings(nn.Module):
    """Word, position and type embeddings, summed, normalised and brought to the hidden size."""

    def __init__(self, shape: Shape, style: Style) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.vocab, shape.embedding)
        self.positions = nn.Embedding(shape.positions, shape.embedding)
        self.types = nn.Embedding(shape.types, shape.embedding) if shape.types else None
        self.norm = nn.LayerNorm(shape.embedding, style.eps)
        self.projection = nn.Linear(shape.embedding, shape.hidden) if shape.projection else nn.Identity()
        self.style = style

    def forward(self, packed: Packed[Tensor]) -> Tensor:
        """Embed a batch → (T, h)."""
        x = self.words(packed.ids) + self.positions(packed.positions + self.style.first_position)
        if self.types is not None:
            x = x + self.types(packed.types)
        x = F.dropout(layer_norm(self.norm, x), self.style.dropout, self.training)
        return self.projection(x)  # type: ignore[no-any-return]


class Layer(nn.Module):
    """One transformer layer, LayerNorm after each residual sum. Khetan & Karnin 2020 name P, D, G."""

    def __init__(self, hidden: int, shape: LayerShape, style: Style, buckets: int = 0) -> None:
        """buckets: of relative positions, if the layer has biases of its own for them."""
        super().__init__()
        self.attention = Attention(hidden, shape, style.attention_dropout, buckets)
        self.attention_norm = nn.LayerNorm(hidden, style.eps)
        self.up = nn.Linear(hidden, shape.ffn)
        self.down = nn.Linear(shape.ffn, hidden)
        self.ffn_norm = nn.LayerNorm(hidden, style.eps)
        self.attention_adapter: Any = None  # `quoth.tune` may put an `Inserted` here
        self.ffn_adapter: Any = None
        self.style = style

    def forward(self, x: Tensor, plan: Plan) -> Tensor:
        """x: (T, h) → (T, h)."""
        p = self.style.dropout if self.training else 0.0
        mixed = self.attention(x, plan)
        x = linear_add_norm(self.attention.output, mixed, x, self.attention_norm, p, self.attention_adapter)
        wide = linear_activate(self.up, x, self.style.activation)
        return linear_add_norm(self.down, wide, x, self.ffn_norm, p, self.ffn_adapter)


class Encoder(nn.Module):
    """An encoder of any `Shape`.

    With `checkpointing` set, a training step keeps only each layer's input and computes the rest again on the way
    back: less memory, about a third more time.
    """

    def __init__(self, shape: Shape, style: Style | None = None) -> None:
        super().__init__()
        style = style or Style()
        if style.activation not in ACTIVATIONS:
            raise QuothError(f"activation {style.activation!r} is not supported; known: {', '.join(ACTIVATIONS)}")
        self.shape = shape
        self.style = style
        self.checkpointing = False
        self.embeddings = Embeddings(shape, style)
        buckets, own = shape.relative_buckets, shape.relative_per_layer
        self.relative = nn.Embedding(buckets, shape.layers[0].heads) if buckets and not own else None
        self.layers = nn.ModuleList(
            Layer(shape.hidden, layer, style, buckets if own else 0) for layer in shape.stored_layers
        )
        self.apply(initialise)

    @property
    def longest_window(self) -> int:
        """How many tokens a window may have: the rows of the position table that windows use."""
        return self.shape.positions - self.style.first_position

    def forward(self, packed: Packed[Tensor], layers: Sequence[int] = (-1,)) -> tuple[Tensor, ...]:
        """Compute the states of a batch.

        layers: which states to return, 0 being the embeddings and −1 the last layer; layers above the highest one
        asked for are not computed, and other states are freed on the way.
        Returns one (T, h) tensor for each, in the order asked.
        """
        wanted = [self.layer_number(layer) for layer in layers]
        plan = self._plan(packed)
        x = self.embeddings(packed).to(self._dtype(packed))
        kept = {0: x} if 0 in wanted else {}
        for number in range(1, max(wanted) + 1):
            layer = self.layers[0 if self.shape.tied else number - 1]
            if self.checkpointing and torch.is_grad_enabled():
                x = checkpoint(layer, x, plan, use_reentrant=False)
            else:
                x = layer(x, plan)
            if number in wanted:
                kept[number] = x
        return tuple(kept[number] for number in wanted)

    @torch.compiler.disable  # looks at the lengths, which a compiled graph would otherwise be bound to
    def _plan(self, packed: Packed[Tensor]) -> Plan:
        self.check(packed)
        largest = max(max(layer.key, layer.value) for layer in self.shape.layers)
        return self.with_relative(make_plan(packed, self._dtype(packed), largest))

    def with_relative(self, plan: Plan) -> Plan:
        """The plan with the biases of relative positions, if there are any."""
        if not self.shape.relative_buckets:
            return plan
        distances = distances_on(plan.starts.device, self.longest_window, self.shape.relative_buckets)
        return replace(plan, distances=distances, relative=self.relative.weight if self.relative is not None else None)

    def check(self, packed: Packed[Tensor]) -> None:
        """Refuse windows that the tables cannot embed, before any work is done.

        Ids are looked at where that is free, on the host; ids already on a GPU are not, since asking would stall it.
        Of a batch that was brought to a size the host knows no lengths: its data were checked before.
        """
        if packed.size is not None:
            return
        if not packed.lengths:
            raise QuothError("the batch has no windows")
        if min(packed.lengths) < 1:
            raise QuothError(f"window {packed.lengths.index(0)} is empty; a window has at least one token")
        if packed.longest > self.longest_window:
            window = packed.lengths.index(packed.longest)
            raise QuothError(
                f"window {window} has {packed.longest} tokens, but the position table of this encoder ends at "
                f"{self.longest_window}; make windows of at most {self.longest_window} tokens"
            )
        if packed.ids.device.type == "cpu":
            _check_range("token id", packed.ids, self.shape.vocab, "the vocabulary")
            if self.shape.types:
                _check_range("token type", packed.types, self.shape.types, "the type table")

    def layer_number(self, layer: int) -> int:
        """The number of a layer from 0, the embeddings, on; refused if there is none such."""
        count = len(self.shape.layers)
        if not -count - 1 <= layer <= count:
            raise QuothError(f"layer {layer} does not exist: this encoder has layers 0 (embeddings) to {count}")
        return layer % (count + 1)

    def _dtype(self, packed: Packed[Tensor]) -> torch.dtype:
        """The type of the states: autocast's where it is on, else that of the weights."""
        device = packed.ids.device.type
        if torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device)
        return self.embeddings.words.weight.dtype


def _check_range(what: str, values: Tensor, limit: int, table: str) -> None:
    low, high = values.aminmax()
    wrong = int(low) if low < 0 else int(high)
    if not 0 <= wrong < limit:
        raise QuothError(f"{what} {wrong} is outside {table}, which has {limit} entries")

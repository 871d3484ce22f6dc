"""`InferenceEncoder`: an encoder's weights as inference on a GPU wants them, brought into that form once.

Weights are kept in half precision, queries, keys and values in one matrix, and every size is padded with zero weights
to a multiple of 8: key, value and feed-forward sizes, and the hidden size, so that a pruned encoder runs on the fast
matrix products too. LayerNorm takes its statistics over the real units. The results are those of `Encoder` under
autocast, to the bit where nothing is padded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quoth.encoder.attention import FLASH_LIMIT, Attention, Plan
from quoth.encoder.device import Device
from quoth.encoder.encoder import Encoder, Layer
from quoth.encoder.shape import LayerShape
from quoth.encoder.steps import activate, have_kernels
from quoth.errors import QuothError
from quoth.windows import Packed


def is_fast(encoder: Encoder, device: Device) -> bool:
    """Whether an encoder runs on our kernels alone there, and does what its classes say: then it can be captured."""
    largest = max(max(layer.key, layer.value) for layer in encoder.shape.layers)
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in encoder.modules())
    kernels = device.half and have_kernels(encoder.embeddings.words.weight)
    return kernels and largest <= FLASH_LIMIT and not hooked


def for_inference(encoder: Encoder, device: Device) -> Encoder | InferenceEncoder:
    """The fastest form of an encoder on a device: its weights of now in another form, or where that cannot be, itself.

    It can on CUDA in half precision, if every part is a plain one: no adapter, no LoRA.
    """
    able = is_fast(encoder, device) and _is_plain(encoder)
    if device.fp8:
        if not able or encoder.shape.relative_buckets:
            raise QuothError(
                "precision fp8 needs a plain encoder, without adapters, LoRA and relative position biases; choose bf16"
            )
        from quoth.encoder.fp8 import Fp8Encoder  # which is an `InferenceEncoder`

        return Fp8Encoder(encoder)
    return InferenceEncoder(encoder, torch.bfloat16) if able else encoder


def _is_plain(encoder: Encoder) -> bool:
    plain = (Layer, Attention, nn.Linear, nn.LayerNorm, nn.Embedding)
    adapters = [part for layer in encoder.layers for part in (layer.attention_adapter, layer.ffn_adapter)]
    modules = [module for layer in encoder.layers for module in layer.modules()]
    return all(part is None for part in adapters) and all(type(module) in plain for module in modules)


@dataclass(frozen=True)
class ReadyLayer:
    """The weights of a layer, sizes padded: a heads of k and v, h units of the states, f of the feed-forward part.

    qkv: (a·(2k + v), h), output: (h, a·v), up: (f, h), down: (h, f), each with its bias
    norms: gain, offset: (h,), ε
    relative: (buckets, a), the layer's own biases of relative positions, if it has them
    """

    shape: LayerShape
    key: int
    value: int
    qkv: tuple[Tensor, Tensor]
    output: tuple[Tensor, Tensor]
    attention_norm: tuple[Tensor, Tensor, float]
    up: tuple[Tensor, Tensor]
    down: tuple[Tensor, Tensor]
    ffn_norm: tuple[Tensor, Tensor, float]
    relative: Tensor | None

    @property
    def scale(self) -> float:
        """Of the scores: 1/√k."""
        return 1 / math.sqrt(self.shape.key)


class InferenceEncoder:
    """An encoder made ready: called as `Encoder` is, without gradients, with the embeddings of the encoder itself."""

    STEP = 8  # sizes are padded to a multiple of it: rows of 16 bytes

    def __init__(self, encoder: Encoder, dtype: torch.dtype) -> None:
        self.encoder = encoder
        self.dtype = dtype
        self.hidden = encoder.shape.hidden
        self.width = padded(self.hidden, self.STEP)
        with torch.no_grad():
            self.layers = self._ready([ready_layer(cast(Layer, layer), self.STEP) for layer in encoder.layers])

    def __call__(self, packed: Packed[Tensor], layers: Sequence[int] = (-1,)) -> tuple[Tensor, ...]:
        """The states of a batch, one (T, h) tensor for each of `layers`, as `Encoder` gives them."""
        self.encoder.check(packed)
        wanted = [self.encoder.layer_number(layer) for layer in layers]
        plan = self.encoder.with_relative(Plan(packed.starts.to(torch.int32), packed.longest))
        x = self.encoder.embeddings(packed).to(self.dtype)
        if self.width != self.hidden:
            x = F.pad(x, (0, self.width - self.hidden))
        kept = {0: self._real(x)} if 0 in wanted else {}
        beside = self._beside(x)
        for number in range(1, max(wanted) + 1):
            layer = self.layers[0 if self.encoder.shape.tied else number - 1]
            x, beside = self._layer(layer, x, beside, plan)
            if number in wanted:
                kept[number] = self._real(x)
        return tuple(kept[number] for number in wanted)

    def _real(self, x: Tensor) -> Tensor:
        """Without the units that were added. (T, w) → (T, h)."""
        return x if self.width == self.hidden else x[:, : self.hidden].contiguous()

    def _ready(self, layers: list[ReadyLayer]) -> list[Any]:
        """The layers with their matrices in half precision; biases and norms stay as they are, but for that of qkv."""

        def half(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return pair[0].to(self.dtype), pair[1]

        return [
            replace(
                layer,
                qkv=(layer.qkv[0].to(self.dtype), layer.qkv[1].to(self.dtype)),
                output=half(layer.output),
                up=half(layer.up),
                down=half(layer.down),
            )
            for layer in layers
        ]

    def _beside(self, x: Tensor) -> Any:
        """What goes from layer to layer beside the states: nothing."""

    def _layer(self, layer: Any, x: Tensor, beside: Any, plan: Plan) -> tuple[Tensor, Any]:
        """A `ReadyLayer`. x: (T, w) → (T, w)."""
        from quoth.encoder.kernels.flash import flash_attention  # Triton is optional
        from quoth.encoder.kernels.inference import add_norm

        ready: ReadyLayer = layer
        sizes = (plan.longest, ready.shape.heads, ready.key, ready.value, ready.scale)
        relative = plan.relative if ready.relative is None else ready.relative
        mixed = flash_attention(F.linear(x, *ready.qkv), plan.starts, *sizes, 0.0, relative, plan.distances)
        weight, bias = ready.output
        x = add_norm(F.linear(mixed, weight), bias, x, *ready.attention_norm, self.hidden)
        wide = self._activate(F.linear(x, ready.up[0]), ready.up[1])
        weight, bias = ready.down
        return add_norm(F.linear(wide, weight), bias, x, *ready.ffn_norm, self.hidden), None

    def _activate(self, x: Tensor, bias: Tensor) -> Tensor:
        """The activation of x + bias. (T, f) → (T, f)."""
        activation = self.encoder.style.activation
        if activation == "relu":
            return activate(x + bias, activation).to(x.dtype)
        from quoth.encoder.kernels.gelu import bias_gelu  # Triton is optional

        return bias_gelu(x, bias, activation == "gelu_tanh")


def ready_layer(layer: Layer, step: int) -> ReadyLayer:
    """A copy of the weights of a layer, every size padded to a multiple of `step`."""
    attention, shape = layer.attention, layer.attention.shape
    width = padded(layer.down.out_features, step)
    heads, key, value, ffn = shape.heads, *(padded(size, step) for size in (shape.key, shape.value, shape.ffn))
    parts = [(attention.query, shape.key, key), (attention.key, shape.key, key), (attention.value, shape.value, value)]
    weights = [_pad_heads(linear.weight.view(heads, size, -1), to, width) for linear, size, to in parts]
    biases = [F.pad(linear.bias.view(heads, size), (0, to - size)).view(-1) for linear, size, to in parts]
    output = F.pad(attention.output.weight.view(-1, heads, shape.value), (0, value - shape.value)).flatten(1)
    return ReadyLayer(
        shape,
        key,
        value,
        (torch.cat(weights), torch.cat(biases)),
        (_pad(output, width, heads * value), _pad_row(attention.output.bias, width)),
        _pad_norm(layer.attention_norm, width),
        (_pad(layer.up.weight, ffn, width), _pad_row(layer.up.bias, ffn)),
        (_pad(layer.down.weight, width, ffn), _pad_row(layer.down.bias, width)),
        _pad_norm(layer.ffn_norm, width),
        attention.relative.weight if attention.relative is not None else None,
    )


def padded(size: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-size // step) * step


def _pad_heads(weight: Tensor, size: int, width: int) -> Tensor:
    """(a, k, h) → (a·size, width), zero rows after each head's."""
    return F.pad(weight, (0, width - weight.shape[2], 0, size - weight.shape[1])).flatten(0, 1)


def _pad(weight: Tensor, rows: int, columns: int) -> Tensor:
    return F.pad(weight, (0, columns - weight.shape[1], 0, rows - weight.shape[0]))


def _pad_row(values: Tensor, size: int) -> Tensor:
    return F.pad(values, (0, size - len(values)))


def _pad_norm(norm: nn.LayerNorm, width: int) -> tuple[Tensor, Tensor, float]:
    return _pad_row(norm.weight, width), _pad_row(norm.bias, width), norm.eps

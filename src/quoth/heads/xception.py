"""Xception over (tokens, features), modified: the token axis kept, and three sizes.

Jiang, Benge & King 2022, "BERTVision", §2.4 and their code, after Chollet 2017, "Xception: Deep Learning with
Depthwise Separable Convolutions", figure 5:

    stem     3×3 in steps of 3 features, 3×3 (in steps of 2 in the size for spans)
    block    x ↦ pool(sep(relu(sep(relu(x))))) + 1×1(x), both in steps of 2 features
    middle   x ↦ x + sep(relu(sep(relu(sep(relu(x))))))
    tail     relu(sep(x))                                   then the mean over the features

sep: a 3×3 filter of each channel's own, then 1×1; ChannelNorm after each of them and each other convolution; pools
take the mean. Filters are 1×3 for classes, as the authors had them.

    xception          LP and compress(386) before it make the paper's 1.970 % of BERT-large (sizes ours: two middles)
    xception(short)   264,066 parameters with `linear` on 26 channels; the authors count 2,944 running statistics more
    xception(full)    Xception whole; 20,662,106, and 54,528 statistics
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from quoth.encoder.graph import Graph
from quoth.heads.graph import Maps, channel_norm, convolve, relu
from quoth.heads.image import ChannelNorm, Deep, Halve, Image, Unit, filters
from quoth.heads.line import Argument
from quoth.heads.step import Form, register_step


@dataclass(frozen=True)
class Size:
    """Channels: of the two convolutions of the stem, of the two seps of each block (None is a middle), of the tail.

    step: of the second convolution of the stem
    """

    stem: tuple[int, int]
    blocks: tuple[tuple[int, int] | None, ...]
    tail: tuple[int, ...] = ()
    step: int = 1


ENTRY = ((128, 128), (256, 256), (728, 728))
SIZES = {
    "modified": Size((32, 64), (*ENTRY, *[None] * 2, (728, 1024)), step=2),
    "short": Size((64, 128), ((256, 512),)),
    "full": Size((32, 64), (*ENTRY, *[None] * 8, (728, 1024)), (1536, 2048)),
}


class Xception(Deep):
    """`xception`, `xception(short)` or `xception(full)`."""

    def __init__(self, form: Form, size: str) -> None:
        super().__init__()
        chosen = SIZES[size]
        one, two = chosen.stem
        parts: list[nn.Module] = [
            Unit(form, form.layers or 1, one, (3, 3), 3),
            Unit(form, one, two, (3, 3), chosen.step),
        ]
        channels = two
        for sizes in chosen.blocks:
            parts.append(Middle(form, channels) if sizes is None else Block(form, channels, *sizes))
            channels = channels if sizes is None else sizes[1]
        for outputs in chosen.tail:
            parts.append(Tail(form, channels, outputs))
            channels = outputs
        self.parts = nn.ModuleList(parts)
        self.form = replace(form, layers=None, width=channels)


class Separable(nn.Module):
    """3×3 of each channel alone, then 1×1 over the channels, then ChannelNorm."""

    def __init__(self, form: Form, inputs: int, outputs: int) -> None:
        super().__init__()
        self.depthwise = filters(form, inputs, inputs, (3, 3), groups=inputs)
        self.pointwise = filters(form, inputs, outputs, (1, 1))
        self.norm = ChannelNorm(outputs)

    def forward(self, x: Tensor, image: Image) -> Tensor:
        """(1, inputs, rows, f) → (1, outputs, rows, f), zeros between windows."""
        return image.between(self.norm(self.pointwise(self.depthwise(x))))

    def to_onnx(self, g: Graph, x: Maps) -> Maps:
        """As `forward`, window by window."""
        return channel_norm(g, self.norm, convolve(g, self.pointwise, convolve(g, self.depthwise, x)))


class Block(nn.Module):
    """Two separable convolutions and a pool, beside a 1×1 that leaps over them."""

    def __init__(self, form: Form, inputs: int, middle: int, outputs: int) -> None:
        super().__init__()
        self.first = Separable(form, inputs, middle)
        self.second = Separable(form, middle, outputs)
        self.pool = Halve()
        self.leap = filters(form, inputs, outputs, (1, 1), 2)
        self.norm = ChannelNorm(outputs)

    def forward(self, x: Tensor, image: Image) -> Tensor:
        """(1, inputs, rows, f) → (1, outputs, rows, f / 2)."""
        y = self.second(F.relu(self.first(F.relu(x), image)), image)
        halved: Tensor = self.pool(y, image)
        return halved + image.between(self.norm(self.leap(x)))

    def to_onnx(self, g: Graph, x: Maps) -> Maps:
        """As `forward`, window by window."""
        y = self.second.to_onnx(g, relu(g, self.first.to_onnx(g, relu(g, x))))
        leap = channel_norm(g, self.norm, convolve(g, self.leap, x))
        return replace(leap, name=g("Add", self.pool.to_onnx(g, y).name, leap.name))


class Middle(nn.Module):
    """Three separable convolutions, added to their input."""

    def __init__(self, form: Form, channels: int) -> None:
        super().__init__()
        self.three = nn.ModuleList(Separable(form, channels, channels) for _ in range(3))

    def forward(self, x: Tensor, image: Image) -> Tensor:
        """(1, channels, rows, f) → the same form."""
        y = x
        for separable in self.three:
            y = separable(F.relu(y), image)
        return x + y

    def to_onnx(self, g: Graph, x: Maps) -> Maps:
        """As `forward`, window by window."""
        y = x
        separable: Any
        for separable in self.three:
            y = separable.to_onnx(g, relu(g, y))
        return replace(y, name=g("Add", x.name, y.name))


class Tail(nn.Module):
    """A separable convolution and relu."""

    def __init__(self, form: Form, inputs: int, outputs: int) -> None:
        super().__init__()
        self.separable = Separable(form, inputs, outputs)

    def forward(self, x: Tensor, image: Image) -> Tensor:
        """(1, inputs, rows, f) → (1, outputs, rows, f)."""
        return F.relu(self.separable(x, image))

    def to_onnx(self, g: Graph, x: Maps) -> Maps:
        """As `forward`, window by window."""
        return relu(g, self.separable.to_onnx(g, x))


register_step("xception", {"size": Argument(tuple(SIZES), "modified")}, Xception)

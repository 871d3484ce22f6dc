"""A packed batch as an image of tokens × features, and the pieces that convolutional networks are made of.

All windows stand below one another in one image, rows of zeros between them, so that a filter that looks over the edge
of a window sees zeros there, as with padding, and never a neighbour. What a step writes between windows is set to
zero again before the next filter looks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from quoth.encoder.graph import Graph
from quoth.heads.graph import GraphHere, GraphValue, Maps, channel_norm, convolve, make_maps, relu
from quoth.heads.step import Form, Here
from quoth.windows import Packed

GAP = 3  # rows of zeros between windows: as far as the highest filter, 7×7, looks
ROWS = 1024  # on CUDA images are a multiple of it high, so that cuDNN meets few heights: it plans for each anew
MANY = 4096  # tokens, of which a deep network does not keep all maps on a host
MAPS = 2**20  # bytes a token that all maps of Xception take, about


@dataclass(frozen=True)
class Image:
    """All windows of a batch.

    pixels: (1, channels, rows, features)
    place: (T,), the row of each token, and tokens_at: (rows, 1), whether a row is a token's; None for
    classes, whose rows are first tokens: no filter looks from one to another
    """

    pixels: Tensor
    place: Tensor | None
    tokens_at: Tensor | None

    def between(self, x: Tensor) -> Tensor:
        """Zeros between the windows again. x: (1, channels, rows, features) → the same."""
        return x if self.tokens_at is None else torch.where(self.tokens_at, x, 0.0)  # masked_fill moves channels

    def tokens(self, x: Tensor) -> Tensor:
        """(1, channels, rows, features) → (T, features, channels)."""
        x = x[0].permute(1, 2, 0)
        return x if self.place is None else x.index_select(0, self.place)


def make_image(x: Tensor, packed: Packed[Tensor] | None) -> Image:
    """(layers, T, f) or (T, f) → an image with the layers, or one, as channels."""
    x = x if x.ndim == 3 else x.unsqueeze(0)
    if packed is None:
        return Image(_channels_last(x), None, None)
    place = torch.arange(packed.tokens, device=x.device) + GAP * packed.window_of_token()
    rows = packed.tokens + GAP * (packed.windows - 1)
    rows = -(-rows // ROWS) * ROWS if x.is_cuda else rows
    tokens_at = torch.zeros(rows, 1, dtype=torch.bool, device=x.device).index_fill(0, place, True)
    pixels = x.new_zeros(x.shape[0], rows, x.shape[2]).index_copy(1, place, x)
    return Image(_channels_last(pixels), place, tokens_at)


def _channels_last(pixels: Tensor) -> Tensor:
    """(channels, rows, features) → (1, channels, rows, features), a pixel's channels side by side in memory.

    So all convolutions give them, and ChannelNorm and the matrix products of 1×1 filters want them.
    """
    return pixels.permute(1, 2, 0).contiguous().permute(2, 0, 1).unsqueeze(0)


class Deep(nn.Module):
    """A deep network: lists of parts, all parts one after the other, then the mean over the features.

    When trained on so many tokens that all maps might not fit, a megabyte a token, only the inputs of parts are kept;
    the rest is computed again in the backward pass.
    """

    def _parts(self) -> list[Any]:
        return [part for parts in self.children() for part in cast(nn.ModuleList, parts)]

    def forward(self, x: Tensor, here: Here) -> Tensor:
        """(layers, T, f) or (T, f) → (T, channels of the last part)."""
        image = make_image(x, here.packed)
        y = image.pixels
        many = torch.cuda.mem_get_info(x.device)[0] // (2 * MAPS) if x.is_cuda else MANY
        again = torch.is_grad_enabled() and x.shape[-2] > many
        for part in self._parts():
            y = checkpoint(part, y, image, use_reentrant=False, preserve_rng_state=False) if again else part(y, image)
        return image.tokens(y).mean(1)

    def to_onnx(self, g: Graph, x: GraphValue, here: GraphHere) -> GraphValue:
        """(layers, T, f) or (T, f) → (T, channels of the last part)."""
        y = make_maps(g, x, here)
        for part in self._parts():
            y = part.to_onnx(g, y)
        mean = g("ReduceMean", y.name, g.integers(3), keepdims=0)  # (B, channels, L)
        return GraphValue(g.reshape(g("Transpose", mean, perm=[0, 2, 1]), -1, y.channels), None, y.channels)


def filters(
    form: Form, inputs: int, outputs: int, size: tuple[int, int], step: int = 1, *, groups: int = 1, bias: bool = False
) -> nn.Conv2d:
    """Filters of (tokens, features), for classes (1, features), padded where their size is odd.

    step: along the features; along the tokens it is 1
    """
    tokens = 1 if form.task == "class" else size[0]
    around = (tokens // 2, size[1] // 2 if size[1] % 2 else 0)
    conv = nn.Conv2d(inputs, outputs, (tokens, size[1]), (1, step), around, groups=groups, bias=bias)
    draw_filters(conv)
    return conv


def draw_filters(layer: nn.Linear | nn.Conv2d) -> None:
    """He et al. 2015: normal with σ² = 2 / (inputs of a filter); biases 0.

    With the σ = 1e-3 of the other steps, three convolutions in a row would leave nothing of their input.
    """
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


class ChannelNorm(nn.LayerNorm):
    """Each pixel's channels normalised: (1, channels, rows, features) → the same.

    In the place of batch normalisation, which would take its mean over the tokens of all windows of a batch.
    """

    def forward(self, x: Tensor) -> Tensor:
        """As the class says."""
        weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
        with torch.autocast(x.device.type, enabled=False):  # which would keep the whole image in fp32
            y = F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, weight, bias, self.eps)
        return y.permute(0, 3, 1, 2)


class Unit(nn.Module):
    """A convolution, ChannelNorm, relu."""

    def __init__(self, form: Form, inputs: int, outputs: int, size: tuple[int, int], step: int = 1) -> None:
        super().__init__()
        self.conv = filters(form, inputs, outputs, size, step)
        self.norm = ChannelNorm(outputs)

    def forward(self, x: Tensor, image: Image) -> Tensor:
        """(1, inputs, rows, f) → (1, outputs, rows, f / step)."""
        return F.relu(image.between(self.norm(self.conv(x))))

    def to_onnx(self, g: Graph, x: Maps) -> Maps:
        """As `forward`, window by window."""
        return relu(g, channel_norm(g, self.norm, convolve(g, self.conv, x)))


class Halve(nn.Module):
    """The mean of three features, at every second one."""

    def forward(self, x: Tensor, image: Image) -> Tensor:
        """(1, channels, rows, f) → (1, channels, rows, f / 2)."""
        places = -(-x.shape[3] // 2)
        x = F.pad(x, (1, 2 * places - x.shape[3]))  # each place has three; on CUDA F.avg_pool2d was a third of a step
        return (x[..., :-1:2][..., :places] + x[..., 1::2][..., :places] + x[..., 2::2][..., :places]) / 3

    def to_onnx(self, g: Graph, x: Maps) -> Maps:
        """As `forward`, window by window."""
        settings = {"kernel_shape": [1, 3], "strides": [1, 2], "pads": [0, 1, 0, x.width % 2], "count_include_pad": 1}
        return replace(x, name=g("AveragePool", x.name, **settings), width=-(-x.width // 2))

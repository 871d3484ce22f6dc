"""`Shape`: every size of an encoder, as data. Nothing else in Quoth derives one size from another.

The letters are those of Khetan & Karnin 2020, "schuBERT: Optimizing Elements of BERT", table 3: hidden h, and for layer
i heads aᵢ, key size kᵢ, value size vᵢ, feed-forward size fᵢ. `hidden` need not be a multiple of `heads`, and k may
differ from v.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quoth.config import fill, shown
from quoth.errors import QuothError
from quoth.files import read_json

LAYERS = 1000  # at most, and sizes below: more is a mistake, or meant to fill the memory
ROWS, SIZE = 10**7, 10**6  # of a table, and of anything else


@dataclass(frozen=True)
class LayerShape:
    """The sizes of one layer: a heads of key size k and value size v, and f feed-forward units."""

    heads: int
    key: int
    value: int
    ffn: int

    def attention_parameters(self, hidden: int) -> int:
        """Q and K: h·a·k each, V: h·a·v, P: a·v·h, with their biases."""
        keys, values = self.heads * self.key, self.heads * self.value
        return 2 * (hidden + 1) * keys + (hidden + 1) * values + (values + 1) * hidden

    def ffn_parameters(self, hidden: int) -> int:
        """D: h·f and G: f·h, with their biases."""
        return (hidden + 1) * self.ffn + (self.ffn + 1) * hidden

    def flops(self, hidden: int, length: int) -> int:
        """Floating-point operations a token, forward, in a window of `length`: 2 a multiply-add.

        Matrix products only (norms, biases, softmax and activations are left out, as is usual):
        2·(2hak + 2hav + 2hf) + 2·length·a·(k + v).
        """
        keys, values = self.heads * self.key, self.heads * self.value
        products = 2 * hidden * (2 * keys + 2 * values + 2 * self.ffn)
        return products + 2 * length * (keys + values)


@dataclass(frozen=True)
class Shape:
    """All sizes of an encoder.

    `tied` says that all layers share one set of weights (ALBERT); then every layer has the same sizes.
    `projection` says that a linear map leads from embedding size to hidden size: always where these differ,
    by choice where they do not.
    `relative_buckets` is the number of buckets of relative position biases (MPNet: 32), 0 where there are none. All
    layers share one table of them, (buckets, a), or have one each if `relative_per_layer`.
    """

    vocab: int
    positions: int
    types: int
    embedding: int
    hidden: int
    layers: tuple[LayerShape, ...]
    tied: bool = False
    projection: bool = False
    relative_buckets: int = 0
    relative_per_layer: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(self, "projection", self.projection or self.embedding != self.hidden)
        for name in ("vocab", "positions", "types", "embedding", "hidden"):
            most = ROWS if name in ("vocab", "positions", "types") else SIZE
            check_whole(f"shape: {name}", getattr(self, name), least=0 if name == "types" else 1, most=most)
        if not self.layers:
            raise QuothError("shape: layers is empty; an encoder has at least one layer")
        check_whole("shape: the number of layers", len(self.layers), least=1, most=LAYERS)
        for number, layer in enumerate(self.layers):
            for name, value in asdict(layer).items():
                check_whole(f"shape: layers[{number}].{name}", value, least=1, most=SIZE)
        if self.tied and len(set(self.layers)) > 1:
            raise QuothError("shape: tied layers share their weights, so all of them must have the same sizes")
        self._check_relative()

    def _check_relative(self) -> None:
        buckets = self.relative_buckets
        check_whole("shape: relative_buckets", buckets, least=0)
        object.__setattr__(self, "relative_per_layer", bool(self.relative_per_layer and buckets))
        if buckets % 4 or buckets > 256:
            raise QuothError(f"shape: relative_buckets is {buckets}; it must be a multiple of 4 up to 256, 0 for none")
        if buckets and not self.relative_per_layer and len({layer.heads for layer in self.layers}) > 1:
            raise QuothError(
                "shape: layers that share their relative biases have the same number of heads; set relative_per_layer"
            )

    @classmethod
    def uniform(
        cls,
        *,
        layers: int,
        hidden: int,
        heads: int,
        ffn: int | None = None,
        vocab: int = 30522,
        positions: int = 512,
        types: int = 2,
        embedding: int | None = None,
        tied: bool = False,
    ) -> Shape:
        """All layers alike, k = v = h / a and f = 4h, as BERT has it; by default BERT's uncased vocabulary."""
        if hidden % heads:
            raise QuothError(f"shape: hidden {hidden} is not a multiple of heads {heads}; give LayerShape instead")
        layer = LayerShape(heads, hidden // heads, hidden // heads, ffn or 4 * hidden)
        return cls(vocab, positions, types, embedding or hidden, hidden, (layer,) * layers, tied)

    @property
    def stored_layers(self) -> tuple[LayerShape, ...]:
        """The layers that have weights of their own: one if tied, else all."""
        return self.layers[:1] if self.tied else self.layers

    def parameters(self) -> dict[str, int]:
        """Parameters by part; their sum is the encoder's total, without pooler or head."""
        table = self.vocab + self.positions + self.types
        layers = self.stored_layers
        return {
            "embeddings": table * self.embedding + 2 * self.embedding,
            "projection": (self.embedding + 1) * self.hidden if self.projection else 0,
            "attention": sum(layer.attention_parameters(self.hidden) for layer in layers),
            "ffn": sum(layer.ffn_parameters(self.hidden) for layer in layers),
            "norms": 4 * self.hidden * len(layers),
            "relative": self.relative_buckets * sum(layer.heads for layer in self._tables),
        }

    @property
    def _tables(self) -> tuple[LayerShape, ...]:
        """The layers that have relative biases of their own; the first one where all share them."""
        return self.stored_layers if self.relative_per_layer else self.layers[:1]

    def total(self) -> int:
        """All parameters of embeddings and layers."""
        return sum(self.parameters().values())

    def flops(self, length: int) -> int:
        """Forward floating-point operations a token in a window of `length` tokens; a tied layer counts each time."""
        projection = 2 * self.embedding * self.hidden if self.projection else 0
        return projection + sum(layer.flops(self.hidden, length) for layer in self.layers)

    def to_json(self) -> dict[str, Any]:
        """The shape as plain JSON; `from_json` reads it back."""
        value = asdict(self)
        value["layers"] = [asdict(layer) for layer in self.layers]
        if self.projection == (self.embedding != self.hidden):
            del value["projection"]
        if not self.relative_buckets:
            del value["relative_buckets"], value["relative_per_layer"]
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any], source: str = "shape") -> Shape:
        """Read a shape from JSON, naming the key that is missing, unknown or not a size."""
        if not isinstance(value, Mapping):
            raise QuothError(f"{source}: a shape is a JSON object, not {type(value).__name__}")
        layers = value.get("layers", [])
        if not isinstance(layers, list) or not all(isinstance(layer, Mapping) for layer in layers):
            raise QuothError(f"{source}: layers is a list of objects with heads, key, value, ffn")
        for number, layer in enumerate(layers):
            fill(LayerShape, layer, f"{source}: layers[{number}]")  # once alone, for a message with its number
        try:
            return fill(cls, value, source)
        except QuothError as error:
            if str(error).startswith(source):
                raise
            raise QuothError(f"{source}: {str(error).removeprefix('shape: ')}") from None  # a size, which knows no file


@dataclass(frozen=True)
class ShapeFile:
    """What a shape file says: a family's name and the sizes."""

    family: str
    shape: Shape


def read_shape(path: str | Path) -> ShapeFile:
    """Read `{"family": "bert", "vocab": …, "layers": [{"heads": …, "key": …, "value": …, "ffn": …}, …]}`."""
    value = read_json(path)
    if not isinstance(value, dict) or "layers" not in value:
        raise QuothError(f"{path}: not a shape file (a JSON object with vocab, hidden, layers …)")
    family = value.pop("family", "bert")
    return ShapeFile(str(family), Shape.from_json(value, str(path)))


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Refuse a value that is not a whole number of at least `least` and at most `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise QuothError(f"{name} is {shown(value)}; it must be a whole number of at least {least}")
    if most is not None and value > most:
        raise QuothError(f"{name} is {shown(value)}; it must be at most {most:,}")

"""A family is data: reversible name rules, and which config key holds which size.

A rule pairs a module's name in Quoth with its name in Hugging Face's layout; `{i}` stands for a layer's number, and
`.weight` / `.bias` follow on both sides. The same list serves loading and saving.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quoth.config import shown
from quoth.encoder.shape import LAYERS, ROWS, LayerShape, Shape, check_whole
from quoth.encoder.style import Style
from quoth.errors import QuothError

Rules = tuple[tuple[str, str], ...]
SPAN: Rules = (("head.linear", "qa_outputs"),)

# Sizes and settings of style that a config holds, under BERT's keys; a family lists only what it calls otherwise.
KEYS = {
    "vocab": "vocab_size",
    "positions": "max_position_embeddings",
    "types": "type_vocab_size",
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
    "activation": "hidden_act",
    "eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}

BUCKETS = "relative_attention_num_buckets"
TRANSFORMERS_BUCKETS = 32

# Names from before transformers 3, which many checkpoints on the hub still carry.
LEGACY = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))


@dataclass(frozen=True)
class Family:
    """One family of encoders.

    name: its `model_type`; classes: the stem of its class names in transformers
    rules: of everything below the family's prefix (`bert.`): encoder and, where there is one, pooler
    heads: the rules of each kind of head that its checkpoints can be read and written with
    class_activation: of the classification head's own dense layer, None where that head reads the pooler
    keys: config keys that differ from BERT's, None for what this family does not have
    defaults: of style, where the config leaves them out
    factorised: whether the config has an embedding size of its own; tied: whether layers share their weights
    position_offset: whether positions start after the padding id; first_position: where they start whatever that is
    relative: whether it has relative position biases
    module: the name of the encoder inside transformers' classes with a head, if it is not the family's
    """

    name: str
    classes: str
    rules: Rules
    heads: Mapping[str, Rules]
    class_activation: str | None = None
    keys: Mapping[str, str | None] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    factorised: bool = False
    tied: bool = False
    always_projects: bool = False
    position_offset: bool = False
    first_position: int = 0
    relative: bool = False
    module: str = ""

    @property
    def prefix(self) -> str:
        """What stands before the encoder's names in a checkpoint that has a head."""
        return f"{self.module or self.name}."

    def key(self, name: str) -> str | None:
        """The config key of a size or of a setting of style."""
        return self.keys.get(name, KEYS[name])

    def to_quoth(self, name: str) -> str | None:
        """Quoth's name of a tensor in Hugging Face's layout, with or without the prefix; None if it has none."""
        for old, new in LEGACY:
            name = name.replace(old, new)
        for rules in (self.rules, *self.heads.values()):
            bare = name.removeprefix(self.prefix) if rules is self.rules else name
            for ours, theirs in rules:
                found = translate(bare, theirs, ours)
                if found:
                    return found
        return None

    def to_hugging_face(self, name: str, head: str | None) -> str:
        """Hugging Face's name of one of our tensors, in a checkpoint with this kind of head."""
        for ours, theirs in self.rules:
            found = translate(name, ours, theirs)
            if found:
                return self.prefix + found if head else found
        for ours, theirs in self.heads.get(head or "span", ()):
            found = translate(name, ours, theirs)
            if found:
                return found
        raise QuothError(f"{name} has no place in a Hugging Face checkpoint of family {self.name}")

    def shape(self, config: Mapping[str, Any]) -> Shape:
        """The sizes that a Hugging Face config gives."""
        sizes = {name: self._size(config, name) for name in ("vocab", "positions", "hidden", "layers", "heads", "ffn")}
        hidden, heads = sizes["hidden"], sizes["heads"]
        if hidden % heads:
            raise QuothError(f"{self.key('hidden')} {hidden} is not a multiple of {self.key('heads')} {heads}")
        layer = LayerShape(heads, hidden // heads, hidden // heads, sizes["ffn"])
        return Shape(
            vocab=sizes["vocab"],
            positions=sizes["positions"],
            types=self._size(config, "types") if self.key("types") else 0,
            embedding=(config.get("embedding_size") or hidden) if self.factorised else hidden,
            hidden=hidden,
            layers=(layer,) * sizes["layers"],
            tied=self.tied,
            projection=self.always_projects,
            relative_buckets=_buckets(config) if self.relative else 0,
        )

    def style(self, config: Mapping[str, Any]) -> Style:
        """The style that a Hugging Face config gives."""
        values: dict[str, Any] = {}
        for name in ("activation", "eps", "dropout", "attention_dropout"):
            key, default = self.key(name), self.defaults.get(name, getattr(Style, name))
            values[name] = config.get(key, default) if key else default
        if values["activation"] not in list(ACTIVATIONS):  # a list, since a config may hold what has no hash
            known = ", ".join(ACTIVATIONS)
            raise QuothError(f"{self.key('activation')} {shown(values['activation'])} is not supported; known: {known}")
        values["activation"] = ACTIVATIONS[values["activation"]]
        first = self.first_position
        if self.position_offset:
            padding = config.get("pad_token_id", 1)
            check_whole("pad_token_id", padding, least=0, most=ROWS)
            first = padding + 1
        return Style.from_json({"first_position": first, **values}, "config")

    def config(self, shape: Shape, style: Style) -> dict[str, Any]:
        """A Hugging Face config of this shape, or an error that says why there can be none."""
        self.check_expressible(shape)
        layer = shape.layers[0]
        names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
        values = {
            "vocab": shape.vocab,
            "positions": shape.positions,
            "types": shape.types,
            "hidden": shape.hidden,
            "layers": len(shape.layers),
            "heads": layer.heads,
            "ffn": layer.ffn,
            "activation": names[style.activation],
            "eps": style.eps,
            "dropout": style.dropout,
            "attention_dropout": style.attention_dropout,
        }
        config = {self.key(name): value for name, value in values.items() if self.key(name)}
        if self.factorised:
            config["embedding_size"] = shape.embedding
        if self.position_offset:
            config["pad_token_id"] = style.first_position - 1
        if self.relative:
            config[BUCKETS] = shape.relative_buckets
        return {"model_type": self.name, **{str(key): value for key, value in config.items()}}

    def check_expressible(self, shape: Shape) -> None:
        """Refuse a shape that transformers' class for this family cannot hold, saying why."""
        layer = shape.layers[0]
        reasons = [
            (len(set(shape.layers)) > 1, "its layers differ in size"),
            (layer.key != layer.value, f"key size {layer.key} differs from value size {layer.value}"),
            (
                layer.heads * layer.key != shape.hidden,
                f"heads × key = {layer.heads} × {layer.key} is not hidden = {shape.hidden}",
            ),
            (
                shape.embedding != shape.hidden and not self.factorised,
                f"embedding {shape.embedding} differs from hidden {shape.hidden}",
            ),
            (shape.tied != self.tied, "its layers are tied" if shape.tied else "its layers are not tied"),
            (bool(shape.types) != bool(self.key("types")), f"it has {shape.types} token types"),
            (
                shape.projection != (self.always_projects or shape.embedding != shape.hidden),
                "it has a projection after the embeddings",
            ),
            (shape.relative_per_layer, "each of its layers has relative position biases of its own"),
            (
                shape.relative_buckets != (TRANSFORMERS_BUCKETS if self.relative else 0),
                f"it has {shape.relative_buckets or 'no'} buckets of relative position biases",
            ),
        ]
        for wrong, reason in reasons:
            if wrong:
                raise QuothError(
                    f"cannot be saved as a Hugging Face {self.classes} model: {reason}; save it as a Quoth folder"
                )

    def _size(self, config: Mapping[str, Any], name: str) -> int:
        key = self.key(name)
        value = config.get(str(key), 2 if name == "types" else None)
        if isinstance(value, bool) or not isinstance(value, int):
            raise QuothError(f"{key} is {'missing' if value is None else shown(value)}; it must be a number")
        if name == "layers":
            check_whole(str(key), value, least=1, most=LAYERS)  # before a list of that many is made
        if name == "heads":
            check_whole(str(key), value, least=1)  # before something is divided by it
        return value


def _buckets(config: Mapping[str, Any]) -> int:
    """The buckets of relative positions; transformers' MPNet computes with 32 of them, whatever the config says."""
    found = config.get(BUCKETS, TRANSFORMERS_BUCKETS)
    if found != TRANSFORMERS_BUCKETS:
        raise QuothError(f"{BUCKETS} = {found!r} is not supported, only {TRANSFORMERS_BUCKETS}")
    return TRANSFORMERS_BUCKETS


def translate(name: str, pattern: str, template: str) -> str | None:
    """`name` rewritten from `pattern` to `template`, or None if it does not match.

    >>> translate("layer.3.output.bias", "layer.{i}.output", "layers.{i}.down")
    'layers.3.down.bias'
    """
    expression = re.escape(pattern).replace(r"\{i\}", r"(?P<i>\d+)") + r"\.(?P<end>weight|bias)"
    match = re.fullmatch(expression, name)
    if not match:
        return None
    parts = match.groupdict()
    return template.replace("{i}", parts.get("i", "")) + "." + parts["end"]

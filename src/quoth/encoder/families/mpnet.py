"""MPNet (Song et al. 2020): no token types, positions from 2, relative position biases that all layers share."""

from quoth.encoder.families.bert import EMBEDDINGS
from quoth.encoder.families.family import SPAN, Family

FAMILY = Family(
    name="mpnet",
    classes="MPNet",
    rules=(
        *(rule for rule in EMBEDDINGS if rule[0] != "encoder.embeddings.types"),
        ("encoder.relative", "encoder.relative_attention_bias"),
        ("encoder.layers.{i}.attention.query", "encoder.layer.{i}.attention.attn.q"),
        ("encoder.layers.{i}.attention.key", "encoder.layer.{i}.attention.attn.k"),
        ("encoder.layers.{i}.attention.value", "encoder.layer.{i}.attention.attn.v"),
        ("encoder.layers.{i}.attention.output", "encoder.layer.{i}.attention.attn.o"),
        ("encoder.layers.{i}.attention_norm", "encoder.layer.{i}.attention.LayerNorm"),
        ("encoder.layers.{i}.up", "encoder.layer.{i}.intermediate.dense"),
        ("encoder.layers.{i}.down", "encoder.layer.{i}.output.dense"),
        ("encoder.layers.{i}.ffn_norm", "encoder.layer.{i}.output.LayerNorm"),
        ("pooler", "pooler.dense"),
    ),
    heads={"span": SPAN, "class": (("head.dense", "classifier.dense"), ("head.linear", "classifier.out_proj"))},
    class_activation="tanh",
    keys={"types": None},
    first_position=2,
    relative=True,
)

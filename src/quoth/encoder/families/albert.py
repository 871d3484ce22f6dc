"""ALBERT (Lan et al. 2020): one layer's weights for all layers; small embeddings that are always projected up."""

from quoth.encoder.families.bert import EMBEDDINGS
from quoth.encoder.families.family import SPAN, Family

_LAYER = "encoder.albert_layer_groups.0.albert_layers.0"

FAMILY = Family(
    name="albert",
    classes="Albert",
    rules=(
        *EMBEDDINGS,
        ("encoder.embeddings.projection", "encoder.embedding_hidden_mapping_in"),
        ("encoder.layers.0.attention.query", f"{_LAYER}.attention.query"),
        ("encoder.layers.0.attention.key", f"{_LAYER}.attention.key"),
        ("encoder.layers.0.attention.value", f"{_LAYER}.attention.value"),
        ("encoder.layers.0.attention.output", f"{_LAYER}.attention.dense"),
        ("encoder.layers.0.attention_norm", f"{_LAYER}.attention.LayerNorm"),
        ("encoder.layers.0.up", f"{_LAYER}.ffn"),
        ("encoder.layers.0.down", f"{_LAYER}.ffn_output"),
        ("encoder.layers.0.ffn_norm", f"{_LAYER}.full_layer_layer_norm"),
        ("pooler", "pooler"),
    ),
    heads={
        "span": SPAN,
        "class": (("head.linear", "classifier"),),
        "mlm": (
            ("head.down", "predictions.dense"),
            ("head.down_norm", "predictions.LayerNorm"),
            ("head", "predictions"),  # its bias; the weights of its decoder are the word embeddings
        ),
    },
    defaults={"activation": "gelu_new", "dropout": 0.0, "attention_dropout": 0.0},
    factorised=True,
    tied=True,
    always_projects=True,
)

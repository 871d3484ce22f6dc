"""DistilBERT (Sanh et al. 2019): no token types, no pooler, names and config keys of its own."""

from quoth.encoder.families.bert import EMBEDDINGS
from quoth.encoder.families.family import SPAN, Family

FAMILY = Family(
    name="distilbert",
    classes="DistilBert",
    rules=(
        *(rule for rule in EMBEDDINGS if rule[0] != "encoder.embeddings.types"),
        ("encoder.layers.{i}.attention.query", "transformer.layer.{i}.attention.q_lin"),
        ("encoder.layers.{i}.attention.key", "transformer.layer.{i}.attention.k_lin"),
        ("encoder.layers.{i}.attention.value", "transformer.layer.{i}.attention.v_lin"),
        ("encoder.layers.{i}.attention.output", "transformer.layer.{i}.attention.out_lin"),
        ("encoder.layers.{i}.attention_norm", "transformer.layer.{i}.sa_layer_norm"),
        ("encoder.layers.{i}.up", "transformer.layer.{i}.ffn.lin1"),
        ("encoder.layers.{i}.down", "transformer.layer.{i}.ffn.lin2"),
        ("encoder.layers.{i}.ffn_norm", "transformer.layer.{i}.output_layer_norm"),
    ),
    heads={"span": SPAN, "class": (("head.dense", "pre_classifier"), ("head.linear", "classifier"))},
    class_activation="relu",
    keys={
        "types": None,
        "hidden": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "ffn": "hidden_dim",
        "activation": "activation",
        "eps": None,
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
    },
)

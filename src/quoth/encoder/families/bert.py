"""BERT (Devlin et al. 2019)."""

from quoth.encoder.families.family import SPAN, Family, Rules

EMBEDDINGS: Rules = (
    ("encoder.embeddings.words", "embeddings.word_embeddings"),
    ("encoder.embeddings.positions", "embeddings.position_embeddings"),
    ("encoder.embeddings.types", "embeddings.token_type_embeddings"),
    ("encoder.embeddings.norm", "embeddings.LayerNorm"),
)
LAYERS: Rules = (
    ("encoder.layers.{i}.attention.query", "encoder.layer.{i}.attention.self.query"),
    ("encoder.layers.{i}.attention.key", "encoder.layer.{i}.attention.self.key"),
    ("encoder.layers.{i}.attention.value", "encoder.layer.{i}.attention.self.value"),
    ("encoder.layers.{i}.attention.output", "encoder.layer.{i}.attention.output.dense"),
    ("encoder.layers.{i}.attention_norm", "encoder.layer.{i}.attention.output.LayerNorm"),
    ("encoder.layers.{i}.up", "encoder.layer.{i}.intermediate.dense"),
    ("encoder.layers.{i}.down", "encoder.layer.{i}.output.dense"),
    ("encoder.layers.{i}.ffn_norm", "encoder.layer.{i}.output.LayerNorm"),
)

FAMILY = Family(
    name="bert",
    classes="Bert",
    rules=(*EMBEDDINGS, *LAYERS, ("pooler", "pooler.dense")),
    heads={
        "span": SPAN,
        "class": (("head.linear", "classifier"),),
        "mlm": (
            ("head.dense", "cls.predictions.transform.dense"),
            ("head.norm", "cls.predictions.transform.LayerNorm"),
            ("head", "cls.predictions"),  # its bias; the weights of its decoder are the word embeddings
            ("head.nsp", "cls.seq_relationship"),
        ),
    },
)

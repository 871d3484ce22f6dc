"""ELECTRA (Clark et al. 2020): BERT's names; embeddings may be smaller than the hidden size; no pooler."""

from quoth.encoder.families.bert import EMBEDDINGS, LAYERS
from quoth.encoder.families.family import SPAN, Family

FAMILY = Family(
    name="electra",
    classes="Electra",
    rules=(*EMBEDDINGS, ("encoder.embeddings.projection", "embeddings_project"), *LAYERS),
    heads={"span": SPAN, "class": (("head.dense", "classifier.dense"), ("head.linear", "classifier.out_proj"))},
    class_activation="gelu",
    factorised=True,
)

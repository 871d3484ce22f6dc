"""RoBERTa (Liu et al. 2019): BERT's names; positions start after the padding id; its class head has a dense layer."""

from quoth.encoder.families.bert import EMBEDDINGS, LAYERS
from quoth.encoder.families.family import SPAN, Family

FAMILY = Family(
    name="roberta",
    classes="Roberta",
    rules=(*EMBEDDINGS, *LAYERS, ("pooler", "pooler.dense")),
    heads={"span": SPAN, "class": (("head.dense", "classifier.dense"), ("head.linear", "classifier.out_proj"))},
    class_activation="tanh",
    position_offset=True,
)

"""CamemBERT (Martin et al. 2020): RoBERTa for French, under the names of RoBERTa; its tokenizer is a Unigram one."""

from dataclasses import replace

from quoth.encoder.families import roberta

FAMILY = replace(roberta.FAMILY, name="camembert", classes="Camembert", module="roberta")

"""XLM-RoBERTa (Conneau et al. 2020): RoBERTa, under the names of RoBERTa; its tokenizer is a Unigram one."""

from dataclasses import replace

from quoth.encoder.families import roberta

FAMILY = replace(roberta.FAMILY, name="xlm-roberta", classes="XLMRoberta", module="roberta")

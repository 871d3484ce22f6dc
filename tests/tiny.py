"""Tiny models and batches that tests of several packages share."""

import copy

import numpy as np
import torch
import transformers

from quoth.windows.packed import pack

SMALL = {
    "vocab_size": 97,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 40,
}
CONFIGS = {
    "bert": transformers.BertConfig(**SMALL),
    "albert": transformers.AlbertConfig(**SMALL, embedding_size=10),
    "roberta": transformers.RobertaConfig(**SMALL, max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5),
    "distilbert": transformers.DistilBertConfig(vocab_size=97, dim=24, n_layers=3, n_heads=3, hidden_dim=40),
    "electra": transformers.ElectraConfig(**SMALL, embedding_size=10),
    "mpnet": transformers.MPNetConfig(**SMALL, max_position_embeddings=514, layer_norm_eps=1e-5),
    "xlm-roberta": transformers.XLMRobertaConfig(**SMALL, max_position_embeddings=514, type_vocab_size=1),
    "camembert": transformers.CamembertConfig(**SMALL, max_position_embeddings=514, type_vocab_size=1),
}
STEMS = {
    "bert": "Bert",
    "albert": "Albert",
    "roberta": "Roberta",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "mpnet": "MPNet",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
}
WITHOUT_TYPES = ("distilbert", "mpnet")
LENGTHS = (1, 512, 2, 37, 130, 128, 38, 512, 300, 5, 41)


def hugging_face(family: str, kind: str = "Model", seed: int = 0):
    """A tiny model of transformers with *every* tensor random and wide (σ = 0.3), biases and LayerNorms too."""
    config = copy.deepcopy(CONFIGS[family])
    if kind == "ForSequenceClassification":
        config.num_labels = 5
    model = getattr(transformers, STEMS[family] + kind)(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in model.named_parameters():
            gain = "norm" in name.lower() and name.endswith("weight")
            value.normal_(1.0 if gain else 0.0, 0.3, generator=generator)
    return model


def inputs_of(family, ids, types):
    """One window as transformers' class of a family takes it."""
    given = {"input_ids": torch.tensor(ids)[None]}
    return given if family in WITHOUT_TYPES else {**given, "token_type_ids": torch.tensor(types)[None]}


def random_windows(lengths=LENGTHS, vocab=97, types=2, seed=0):
    """Token ids and types of windows of these lengths. Ids 0 and 1 stay out: RoBERTa reads 1 as padding."""
    rng = np.random.default_rng(seed)
    ids = [rng.integers(2, vocab, n) for n in lengths]
    return ids, [rng.integers(0, max(types, 1), n) for n in lengths]


def batch(ids, types):
    return pack(ids, types).map(torch.from_numpy)


def split(states, lengths):
    """A packed (T, h) tensor as one tensor a window."""
    return states.split(list(lengths))

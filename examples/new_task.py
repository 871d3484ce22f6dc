"""A new task in one file: declared, trained on a few reviews, scored.

The task "sentiment" reads a file with lines `label<TAB>text`; the rest is what every classification shares.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from quoth.data import Report, Sentences
from quoth.encoder import Encoder, Shape
from quoth.model import Model, save
from quoth.tasks import Examples, register_task
from quoth.tasks.classification import Classification
from quoth.train import make_recipe, train
from quoth.windows.sentences import make_pairs

# ruff: noqa: D101, D102, D103


def read_reviews(path, tokenizer, data):
    labels, texts = zip(*(line.split("\t") for line in Path(path).read_text().splitlines()))
    numbers = np.array([("bad", "good").index(label) for label in labels])
    sentences = Sentences("sentiment", list(texts), None, numbers, ("bad", "good"), Report(str(path)))
    return Examples(make_pairs(sentences, tokenizer, max_length=data.max_length), numbers)


@register_task
@dataclass(frozen=True)
class SentimentTask(Classification):
    name = "sentiment"  # data.task of a recipe

    @classmethod
    def prepare(cls, data, tokenizer, model, seed, max_answer_tokens):
        task = cls("sentiment", ("bad", "good"), read_reviews(data.train[0], tokenizer, data))
        return replace(task, evaluation=read_reviews(data.evaluate, tokenizer, data)) if data.evaluate else task

    def quality(self, logits):
        return {"acc": 100 * float((logits.argmax(1) == self.evaluation.labels).mean())}


# A tiny BERT with random weights, a tokenizer, and four reviews.
folder = Path(tempfile.mkdtemp())
rows = "good\ta warm and clever film\nbad\ta dull and noisy film\ngood\tclever and warm\nbad\tnoisy , dull\n"
(folder / "reviews.tsv").write_text(rows)
save(Model(Encoder(Shape.uniform(layers=2, hidden=32, heads=2, vocab=60))), folder / "base")
tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
tokenizer.train_from_iterator([rows], trainers.WordLevelTrainer(special_tokens=special, show_progress=False))
tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
tokenizer.save(str(folder / "base/tokenizer.json"))

data = {"task": "sentiment", "train": str(folder / "reviews.tsv"), "evaluate": str(folder / "reviews.tsv")}
settings = {"head": {"kind": "class", "labels": 2}, "optimisation": {"epochs": 30, "learning_rate": 3e-3}}
metrics = train(make_recipe({"model": str(folder / "base"), "data": data, **settings}), folder / "run")
print(f"accuracy {metrics.quality['acc']:.0f} % on {len(rows.splitlines())} reviews")

"""A new head in one file: declared, trained on two questions, exported to ONNX and pruned.

The head has a hidden layer between the states and the logits: (start, end) = B·relu(A·h + a) + b.
"""
# ruff: noqa: D101, D102, RUF012

import shutil
import tempfile
from pathlib import Path

import torch
from torch import nn

from quoth.embedded import embedded_folder
from quoth.encoder import Encoder, Shape
from quoth.encoder.axes import FREE, HIDDEN
from quoth.export.export import export
from quoth.heads import SpanOutput, register_head
from quoth.model import Model, load, save
from quoth.prune import cut
from quoth.train import make_recipe, train


@register_head
class TwoLayerHead(nn.Module):
    kind, task = "two-layer", "span"
    reads, pooled = (-1,), False  # the last layer, and not the pooler
    axes = {"first.weight": (FREE, HIDDEN)}  # what pruning cuts with the hidden size

    def __init__(self, hidden: int, size: int = 8):  # `size` is a setting: a key of its table in a recipe
        super().__init__()
        self.first, self.second = nn.Linear(hidden, size), nn.Linear(size, 2)

    def forward(self, states, packed=None):  # (T, h) for each layer that it reads → start (T,), end (T,)
        return SpanOutput(*self.second(self.first(states[-1]).relu()).unbind(-1))

    def to_json(self):
        return {"kind": self.kind, "size": self.first.out_features}

    def to_onnx(self, g, states, size):  # the same as nodes of a graph → (T, 2)
        return g.dense(g.activate(g.dense(states[-1], self.first), "relu"), self.second)


# A tiny BERT with random weights, and two questions.
folder, passage = Path(tempfile.mkdtemp()), "The mill was built by Hale. Marble was carried to Genoa."
rows = [f"Who built the mill?,{passage},Hale", f"Where was marble carried?,{passage},Genoa"]
(folder / "data.csv").write_text("\n".join(["question,context,answer", *rows]))
save(Model(Encoder(Shape.uniform(layers=2, hidden=32, heads=2))), folder / "base")
shutil.copy(embedded_folder() / "tokenizer.json", folder / "base")

data = {"train": str(folder / "data.csv"), "evaluate": str(folder / "data.csv")}
settings = {"head": {"kind": "two-layer", "size": 16}, "optimisation": {"epochs": 30, "learning_rate": 3e-3}}
train(make_recipe({"model": str(folder / "base"), "data": data, **settings}), folder / "run")
exported = export(folder / "run/model", folder / "onnx")
pruned = cut(load(folder / "run/model"), {"h": torch.arange(32) < 24})
print(f"ONNX logits within {exported.difference:.0e} of torch's; hidden size {pruned.encoder.shape.hidden} after a cut")

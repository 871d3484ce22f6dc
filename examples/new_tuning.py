"""A new tuning method in one file: a trained vector is added to the output of every feed-forward block, x ↦ x + o."""
# ruff: noqa: D101, D102

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import nn

from quoth.embedded import embedded_folder
from quoth.encoder import Encoder, Shape
from quoth.export.export import export
from quoth.model import Model, save
from quoth.train import make_recipe, train
from quoth.tune import register_tuning


class Offset(nn.Module):
    inserted = "offsets"  # in messages: "this model has offsets already"

    def __init__(self, hidden):
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(hidden))

    def apart(self, product, bias, p):  # what goes into the residual sum: x (T, h), what is added to it, a vector (h,)
        return nn.functional.dropout(product if bias is None else product + bias, p), None, self.offset

    def to_onnx(self, g, x):
        return g("Add", x, g.constant(self.offset))


@register_tuning
@dataclass(frozen=True)  # its fields would be its settings, the keys of its table in a recipe
class Offsets:
    kind: ClassVar[str] = "offsets"
    trains_pooler: ClassVar[bool] = False

    def install(self, encoder):
        for layer in encoder.layers:
            layer.ffn_adapter = Offset(encoder.shape.hidden)

    def trainable(self, encoder):
        return {name for name, _ in encoder.named_parameters() if name.endswith(".offset")}

    def to_json(self):
        return {"kind": self.kind}


folder = Path(tempfile.mkdtemp())
save(Model(Encoder(Shape.uniform(layers=2, hidden=32, heads=2))), folder / "base")  # a tiny BERT with random weights
shutil.copy(embedded_folder() / "tokenizer.json", folder / "base")
(folder / "data.csv").write_text("question,context,answer\nWho built it?,It was built by Hale.,Hale\n")
table = {"model": str(folder / "base"), "data": {"train": str(folder / "data.csv")}, "tuning": {"kind": "offsets"}}
metrics = train(make_recipe(table), folder / "run")
exported = export(folder / "run/model", folder / "onnx")
print(f"{metrics.trainable_parameters} parameters trained; ONNX logits within {exported.difference:.0e} of torch's")

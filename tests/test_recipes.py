"""Every recipe that ships can be read, and its tuning and heads fit the model that it names."""

from pathlib import Path

import pytest
import torch

from laconic.encoder import Encoder, LayerShape, Model, Shape
from laconic.heads import build_head
from laconic.train import read_recipe
from laconic.tune import apply, build_tuning

RECIPES = sorted((Path(__file__).parent.parent / "recipes").rglob("*.toml"))
SHAPES = {
    "bert-base-cased": Shape.uniform(layers=12, hidden=768, heads=12, vocab=28996),
    "bert-large-uncased": Shape.uniform(layers=24, hidden=1024, heads=16, vocab=30522),
    "albert-base-v2": Shape(30000, 512, 2, 128, 768, (LayerShape(12, 64, 64, 3072),) * 12, tied=True),
}
# Trainable parameters of paper 1, tables 1 and 2.
PUBLISHED = {
    "l0": 39_938,
    "l1": 7_124_738,
    "l3": 21_294_338,
    "l6": 42_548_738,
    "l12": 108_311_810,
    "l0-a64": 2_419_202,
    "l0-a768": 28_388_354,
    "l12-a64": 110_691_074,
}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recipe_fits_its_model(path):
    recipe = read_recipe(path)
    shape = SHAPES[recipe.model]
    sizes = (shape.hidden, len(shape.layers))
    with torch.device("meta"):
        model = Model(Encoder(shape), build_head(recipe.head, *sizes), pooler=True)
        apply(model, build_tuning(recipe.tuning))
        for line in recipe.frozen.heads.values():
            assert build_head(line, *sizes).task == "span"
    learning = sum(value.numel() for value in model.parameters() if value.requires_grad)
    assert learning == PUBLISHED.get(path.stem, learning)
    assert 0 < learning <= sum(value.numel() for value in model.parameters())


def test_every_row_of_the_tables_has_a_recipe():
    assert PUBLISHED.keys() <= {path.stem for path in RECIPES if path.parent.name == "hulburd"}

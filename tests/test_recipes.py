"""Every recipe that ships is found by its name and can be read; its tuning and heads fit the model that it names."""

import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from quoth.data.glue import read_glue
from quoth.encoder.encoder import Encoder
from quoth.encoder.shape import LayerShape, Shape
from quoth.errors import QuothError
from quoth.experiments.build_recipe import read_build_recipe
from quoth.heads import build_head
from quoth.heads.mlm import mlm_table
from quoth.model import apply
from quoth.model.model import Model
from quoth.prune.cost import Parameters
from quoth.prune.plan import plan_rounds
from quoth.prune.recipe import read_prune_recipe
from quoth.recipes import find_recipe, recipe_names
from quoth.train.recipe import read_recipe
from quoth.tune import build_tuning

PRUNING, EMBEDDED = find_recipe("prune"), find_recipe("embedded")
TRAINED = [name for name in recipe_names() if name not in ("prune", "embedded") and not name.startswith("schubert/")]
RECIPES = [find_recipe(name) for name in TRAINED]  # tests of schubert/… are in test_schubert_recipes.py
SHAPES = {
    "bert-base-cased": Shape.uniform(layers=12, hidden=768, heads=12, vocab=28996),
    "bert-base-uncased": Shape.uniform(layers=12, hidden=768, heads=12, vocab=30522),
    "bert-large-uncased": Shape.uniform(layers=24, hidden=1024, heads=16, vocab=30522),
    "microsoft/MiniLM-L12-H384-uncased": Shape.uniform(layers=12, hidden=384, heads=12, vocab=30522),
    "albert-base-v2": Shape(30000, 512, 2, 128, 768, (LayerShape(12, 64, 64, 3072),) * 12, tied=True),
}
# Trainable parameters of Hulburd 2020, tables 1 and 2.
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
# Parameters of the classification heads of BERTVision, at 26 channels of 1,024. The authors also count running means
# and variances of batch normalisation in their Xceptions, 2,944 in the short one.
CLASSES = {
    "lp": 2_077,
    "lp-adapter-386": 398_499,
    "ap-adapter-386": 398_472,
    "xception-short": 267_010 - 2_944,
    "xception-short-cls": 269_058 - 2_944,
    "xception-full": 20_662_106,
}
BERTVISION = {"heads", "less-data", "answerable", "mrpc", "rte", "sst2", "cola"}
LABELS = {"answerable": 2, "glue": 2, "span": None, "pretrain": None}  # of each task


def test_a_recipe_is_found_by_name_with_or_without_suffix():
    found = find_recipe("hulburd/l6")
    assert found.is_file()
    assert found.parts[-3:] == ("recipes", "hulburd", "l6.toml")
    assert find_recipe("hulburd/l6.toml") == found
    assert find_recipe(Path("hulburd/l6")) == found
    assert find_recipe(found) == found


def test_a_file_is_preferred_to_a_recipe_that_ships(tmp_path, monkeypatch):
    (tmp_path / "prune.toml").write_text('model = "mine"\n')
    monkeypatch.chdir(tmp_path)
    assert find_recipe("prune.toml").resolve() == tmp_path / "prune.toml"
    assert find_recipe("prune") == PRUNING  # no file of that name


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(QuothError, match=r"^huburd/l6\.toml: no such file.*did you mean hulburd/l6\?$"):
        find_recipe("huburd/l6.toml")
    with pytest.raises(QuothError, match="did you mean silva/dot"):
        find_recipe("silva")  # a folder is no recipe


def test_every_recipe_has_a_name():
    folder = find_recipe("prune").parent
    names = recipe_names()
    assert names == sorted(names)
    assert {find_recipe(name) for name in names} == set(folder.rglob("*.toml"))
    assert {"prune", "embedded", "pretrain", "hulburd/l6", "bertvision/heads", "silva/dot"} <= set(names)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recipe_fits_its_model(path):
    recipe = read_recipe(path)
    shape = SHAPES[recipe.model]
    sizes = (shape.hidden, len(shape.layers))
    with torch.device("meta"):
        encoder = Encoder(shape)
        mlm = recipe.data.task == "pretrain"
        head = mlm_table(shape, encoder.style, nsp=recipe.head.get("nsp", True)) if mlm else recipe.head
        model = Model(encoder, build_head(head, *sizes), pooler=True)
        apply(model, build_tuning(recipe.tuning))
        heads = {name: build_head(head, *sizes) for name, (head, _) in recipe.frozen.each().items()}
    for head in (model.head, *heads.values()):
        assert (head.task == "span") == (recipe.data.task == "span")
        assert head.to_json().get("labels") == LABELS[recipe.data.task]
    trainable = sum(value.numel() for value in model.parameters() if value.requires_grad)
    assert trainable == PUBLISHED.get(path.stem, trainable)
    assert 0 < trainable <= sum(value.numel() for value in model.parameters())


def test_the_pruning_recipe_is_distillation_and_needs_a_model():
    with pytest.raises(
        QuothError, match=r"model is ''; it must be a folder or hub id of a model with a head for .*'span'"
    ):
        read_prune_recipe(PRUNING)
    recipe = read_prune_recipe(PRUNING, ["model=runs/first/model"])
    assert recipe.losses == {"gates": "distillation", "recovery": "distillation"}
    total = Parameters(pooler=True)(SHAPES["bert-base-uncased"])
    assert [round(keep * total / 1e6) for keep in recipe.target.keep] == [100, 89, 78, 67, 56, 43, 33]
    assert recipe.target.kinds == "all"


def test_the_recipe_of_the_embedded_reader():
    recipe = read_build_recipe(EMBEDDED)
    teacher, student, cut = recipe.teacher, recipe.student, recipe.cut
    shape = SHAPES[student.model]
    assert shape.total() == 33_212_160  # as published, without a pooler
    assert student.data == cut.data, "the examples and the teachers' logits are made once"
    assert replace(student.data, unlabelled=teacher.data.unlabelled) == teacher.data
    assert student.data.unlabelled.lookalike > 0
    assert teacher.head == student.head == {"kind": "span"}
    assert all(fraction > 0 for fraction in asdict(teacher.data.negatives).values())
    assert student.distillation.task_weight == 0
    cost = Parameters(embeddings=cut.target.embeddings)
    rounds = plan_rounds(cut, shape, cost)
    assert [(now.part, now.target) for now in rounds] == [(None, "start"), (0.52, "keep-0.52"), (0.4, "keep-0.4")]
    assert cut.losses == {"gates": "distillation", "recovery": "distillation"}
    assert cut.start.layers == 9  # which cost more than the target
    assert cost(replace(shape, layers=shape.layers[:9])) > 0.52 * cost(shape)
    # With one byte per parameter the reader is smaller than 25 MB.
    assert 0.40 * cost(shape) + shape.parameters()["embeddings"] < 23e6
    assert recipe.card.licences
    assert recipe.card.limits


def test_every_row_of_the_tables_has_a_recipe():
    assert PUBLISHED.keys() <= {path.stem for path in RECIPES if path.parent.name == "hulburd"}
    assert {path.stem for path in RECIPES if path.parent.name == "bertvision"} == BERTVISION


def bertvision(stem):
    return read_recipe(next(path for path in RECIPES if (path.parent.name, path.stem) == ("bertvision", stem)))


def count(recipe, shape):
    with torch.device("meta"):
        heads = {n: build_head(head, shape.hidden, len(shape.layers)) for n, (head, _) in recipe.frozen.each().items()}
    return {name: sum(value.numel() for value in head.parameters()) for name, head in heads.items()}


def test_heads_for_answer_or_no_answer_have_the_published_sizes():
    recipe = bertvision("answerable")
    assert count(recipe, SHAPES[recipe.model]) == CLASSES
    frozen = recipe.frozen
    assert (frozen.at, frozen.epochs, frozen.evaluate) == ((0.2, 1, 3), 10, tuple(range(1, 11)))
    # The states of all windows of SQuAD 2.0 in fp32: 131,911 for training and 12,227 for evaluation (BERTVision).
    assert frozen.cache_gb * 10**9 > (131_911 + 12_227) * 25 * 1024 * 4


@pytest.mark.parametrize(("stem", "task"), [("mrpc", "MRPC"), ("rte", "RTE"), ("sst2", "SST-2"), ("cola", "CoLA")])
def test_glue_is_named_as_the_hub_names_it(stem, task, monkeypatch):
    """The sources are read by a replacement of the package `datasets`."""
    asked = []

    def load_dataset(name, part, split):
        asked.append((name, part, split))
        return [{"sentence": "A", "sentence1": "A", "sentence2": "B", "label": label} for label in (0, 1)]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    data = bertvision(stem).data
    for source in (*data.train, data.evaluate):
        assert read_glue(source).task == task
    assert asked == [("nyu-mll/glue", stem, "train"), ("nyu-mll/glue", stem, "validation")]


def test_heads_of_glue_differ_in_nothing_but_the_data():
    tasks = [bertvision(stem) for stem in ("mrpc", "rte", "sst2", "cola")]
    assert all(recipe.frozen.heads == tasks[0].frozen.heads for recipe in tasks)
    assert all(recipe.optimisation == tasks[0].optimisation for recipe in tasks)
    assert tasks[0].optimisation.schedule == "constant"  # so a snapshot is what a shorter run gives


def test_less_data_is_the_run_of_all_heads_with_more_evaluations():
    less, whole = bertvision("less-data"), bertvision("heads")
    assert less.frozen.heads.items() <= whole.frozen.heads.items()
    assert (less.data, less.optimisation) == (whole.data, whole.optimisation)
    assert less.frozen.evaluate == (0.01, 0.03, *(n / 10 for n in range(1, 11)))

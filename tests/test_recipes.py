"""Every recipe that ships is found by its name and can be read; its tuning and heads fit the model that it names.

Each row of the tables of Hulburd, BERTVision and Silva has one. `tests/train/test_recipe_runs.py` runs them.
"""

import re
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
    "linear": 2_050,
    "lp": 2_077,
    "lp-adapter-386": 398_499,
    "ap-adapter-386": 398_472,
    "xception-short": 267_010 - 2_944,
    "xception-short-cls": 269_058 - 2_944,
    "xception-full": 20_662_106,
}
# And those of its span heads, at 25 states; the control is a linear head as BERT itself has it.
SPANS = {
    "linear": 2_050,
    "lp": 2_076,
    "ap": 2_050,
    "adapter-64": 68_802,
    "adapter-64-skip": 68_802 + 2_048,
    "adapter-64-each": 1_643_202,
    "adapter-64-each-skip": 1_643_202 + 2_048,
    "adapter-386": 414_952,
    "adapter-386-skip": 414_952 + 2_048,
    "adapter-386-each": 9_910_552,
    "adapter-386-each-skip": 9_910_552 + 2_048,
    "lp-adapter-386": 398_498,
    "joined": 811_400,
}
# Of the others the paper gives the share of BERT-large's 335,143,938 parameters, in per cent.
SHARES = {
    "cnn-1xn": 0.099,
    "cnn-1xn-dilated": 0.099,
    "cnn-1xn-no-dropout": 0.099,
    "lp-cnn-1xn": 0.093,
    "ap-cnn-1xn": 0.093,
    "lp-adapter-cnn-1xn": 0.207,
    "lp-adapter-cnn-nxn": 0.332,
    "lp-adapter-inception": 1.994,
    "lp-adapter-xception": 1.970,
}
LARGE = 335_143_938  # with pooler and a head of two outputs
# Parameters of Silva's heads beyond the vectors S and E: 2·(L + 1), none, H², and a block of 12·H² + 12·H.
SILVA = {
    "bert": 0,
    "albert": 0,
    "albert-5-epochs": 0,
    "weighted": 2 * 13,
    "dot": 0,
    "dot-5-epochs": 0,
    "multiplicative": 768**2,
    "encoder": 12 * 768**2 + 12 * 768,
}
# The rows of the three papers' tables, as the comments of the recipes name them, and the recipe of each.
ROWS = {
    "hulburd": {
        "table 1, L0": "l0",
        "table 1, L1": "l1",
        "table 1, L3": "l3",
        "table 1, L6": "l6",
        "table 1, L12": "l12",
        "table 2, L12-A64": "l12-a64",
        "table 2, L0-A64": "l0-a64",
        "table 2, L0-A768": "l0-a768",
        "more feature maps per sample": "l0-cacnn-vectorised-5-maps-16",
    },
    "bertvision": {
        'table 1, "learned pooling"': "heads",
        'table 1, "average pooling"': "heads",
        'table 1, "adapter size 386"': "heads",
        'table 1, "adapter size 386, weights not shared"': "heads",
        'table 1, "adapter size 64"': "heads",
        'table 1, "adapter size 64, weights not shared"': "heads",
        'tables 1 and 2, "LP adapter size 386 & xception"': "heads",
        'table 2, "adapter size 386"': "heads",
        'table 2, "adapter size 386, weights not shared"': "heads",
        'table 2, "adapter size 64"': "heads",
        'table 2, "adapter size 64, weights not shared"': "heads",
        'table 3, "our model 3/10e"': "heads",
        'table 3, "our model 1e"': "heads",
        "ensemble of BERT and its best head": "heads",
        "figure 2": "less-data",
        "figure 3": "answerable",
        "table 4": "answerable",
        "BERT 2e": "two-epochs",
        "best model 1e": "two-epochs",
        "best model 3/10e": "two-epochs",
        "ensemble BERT 2e + best 1e": "two-epochs",
        "figure 5": "answerable-fine-tuning",
        "figure 6": "fine-tuning",
    },
    "silva": {
        "table 2 (2 epochs), BERT-Base": "bert",
        "BERT-Base-no-ft": "bert",
        "table 2 (2 epochs), ALBERT": "albert",
        "table 2 (2 epochs), Weighted": "weighted",
        "table 2 (2 epochs), Dot Attention": "dot",
        "table 3 (5 epochs), ALBERT": "albert-5-epochs",
        "table 3 (5 epochs), Dot Attention": "dot-5-epochs",
        "table 3 (5 epochs), Weighted Attention": "multiplicative",
        "table 3 (5 epochs), Encoder": "encoder",
    },
}
BERTVISION = {*ROWS["bertvision"].values(), "mrpc", "rte", "sst2", "cola"}
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


def stems(folder):
    return {path.stem for path in RECIPES if path.parent.name == folder}


def comments(path):
    """All comments of a recipe, as one line."""
    return " ".join(line.lstrip("# ") for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#"))


def test_every_row_of_the_tables_has_a_recipe():
    assert PUBLISHED.keys() <= stems("hulburd")
    assert stems("bertvision") == BERTVISION
    assert stems("silva") == SILVA.keys()
    for folder, rows in ROWS.items():
        for row, stem in rows.items():
            assert row in comments(find_recipe(f"{folder}/{stem}")), (row, stem)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recipe_of_a_paper_says_which_rows_it_is_of(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.parent.name in ROWS:
        assert sum(line.startswith("# Rows: ") for line in lines) == 1
    assert all(len(line) <= 150 for line in lines)


def bertvision(stem):
    return read_recipe(next(path for path in RECIPES if (path.parent.name, path.stem) == ("bertvision", stem)))


def count(recipe, shape):
    with torch.device("meta"):
        heads = {n: build_head(head, shape.hidden, len(shape.layers)) for n, (head, _) in recipe.frozen.each().items()}
    return {name: sum(value.numel() for value in head.parameters()) for name, head in heads.items()}


def test_span_heads_have_the_published_sizes():
    recipe = bertvision("heads")
    found = count(recipe, SHAPES[recipe.model])
    assert {name: found[name] for name in SPANS} == SPANS
    assert found.keys() == {*SPANS, *SHARES}
    for name, share in SHARES.items():
        assert 100 * found[name] / LARGE == pytest.approx(share, rel=0.05), name


@pytest.mark.parametrize("stem", ["heads", "less-data", "answerable"])
def test_the_sizes_in_the_comments_are_those_of_the_heads(stem):
    path = find_recipe(f"bertvision/{stem}")
    recipe = read_recipe(path)
    written = re.findall(r"^# (\d[\d,]*\d)[;, ].*\n(\S+) = ", path.read_text(encoding="utf-8"), re.M)
    found = count(recipe, SHAPES[recipe.model])
    assert {name: int(size.replace(",", "")) for size, name in written}.items() <= found.items()
    assert len(written) >= len(found) - 1  # 20.7M is written so


def test_the_control_is_the_last_layers_linear_head_alone():
    for stem in ("heads", "less-data", "two-epochs"):
        frozen = bertvision(stem).frozen
        head, settings = frozen.each()["linear"]
        made = build_head(head, 1024, 24)
        assert (made.reads, settings.at) == ((24,), frozen.at)  # the last of the states 0 … 24, at every stage
    for stem in ("answerable", "mrpc", "rte", "sst2", "cola"):
        recipe = bertvision(stem)
        assert recipe.frozen.heads["linear"] == recipe.head  # as the encoder's own, which the others begin beside


@pytest.mark.parametrize("stem", ["fine-tuning", "answerable-fine-tuning"])
def test_the_curves_of_the_encoder_are_one_run(stem):
    recipe = bertvision(stem)
    tenths = tuple(n / 10 for n in range(11))
    assert (*recipe.evaluation.at, recipe.optimisation.epochs) == (*tenths, 2, 3, 4, 5, 6)
    assert (recipe.optimisation.schedule, recipe.optimisation.warmup_ratio) == ("constant", 0)
    with torch.device("meta"):
        head = build_head(recipe.head, 1024, 24)
        model = Model(Encoder(SHAPES[recipe.model]), head, pooler=True)
    assert sum(value.numel() for value in model.parameters()) == LARGE


def test_ensembles_in_the_comments_are_of_models_that_the_run_leaves():
    found = {}
    for stem in ("heads", "two-epochs"):
        recipe = bertvision(stem)
        for line in find_recipe(f"bertvision/{stem}").read_text(encoding="utf-8").splitlines():
            if "quoth ensemble" not in line:
                continue
            encoder, epoch, name = re.search(
                r"ensemble RUN/(\S+) RUN/frozen/epoch-(\S+)/(\S+)/model --out", line
            ).groups()
            assert float(epoch) in recipe.frozen.at
            assert name in recipe.frozen.heads
            last = float(epoch) == recipe.optimisation.epochs
            assert encoder == ("model" if last else f"snapshots/epoch-{epoch}")
            found[stem, epoch] = name
    assert found == {
        ("heads", "0.3"): "adapter-386-skip",
        ("heads", "1"): "adapter-386",
        ("two-epochs", "2"): "adapter-386",
    }


def test_silva():
    for stem, own in SILVA.items():
        recipe = read_recipe(find_recipe(f"silva/{stem}"))
        head = build_head(recipe.head, 768, 12)
        vectors = 2 * 768 + 2  # S and E, with the biases that a linear head has in Hugging Face
        assert sum(value.numel() for value in head.parameters()) == own + vectors
        o, longer = recipe.optimisation, 5 if "5" in stem or stem in ("multiplicative", "encoder") else 2
        assert (o.epochs, o.learning_rate, o.schedule) == (longer, 3e-5, "linear")
        assert o.batch_size == (8 if stem == "bert" else 12)
        assert (0 in recipe.evaluation.at) == (stem == "bert")  # the untuned row
        assert (recipe.data.max_length, recipe.data.step) == (384, 128)


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

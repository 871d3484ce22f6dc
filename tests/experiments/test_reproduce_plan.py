"""Which runs `quoth reproduce` makes, and what is overridden in their recipes."""

from dataclasses import replace
from pathlib import Path

import pytest

from quoth.errors import QuothError
from quoth.experiments.paper_items import find_item
from quoth.experiments.reproduce_plan import Settings, check_sources, plan_item, still_needed

OUT = Path("out")


def plan(name, **settings):
    _, paper, item = find_item(name)
    return plan_item(paper, item, Settings(**settings), OUT)


def recipes(name, **settings):
    """By method; one seed."""
    return {one.method: one.recipe for wave in plan(name, **settings) for one in wave}


def test_without_settings_it_is_the_paper():
    made = recipes("hulburd/table1")
    assert list(made) == ["L12", "L6", "L3", "L1", "L0"]
    assert {recipe.model for recipe in made.values()} == {"bert-base-cased"}
    assert {recipe.optimisation.epochs for recipe in made.values()} == {3}
    assert made["L6"].data.train == ("rajpurkar/squad_v2:train",)
    assert made["L6"].data.evaluate == "rajpurkar/squad_v2:validation"


def test_model_data_and_fraction():
    made = recipes("hulburd/table2", model="m", train="t.json", evaluate="e.json", fraction=0.25)
    assert {(r.model, r.data.train, r.data.evaluate, r.data.fraction) for r in made.values()} == {
        ("m", ("t.json",), "e.json", 0.25)
    }


def test_a_fraction_is_one_of_what_the_paper_takes():
    """Figure 8 of Silva takes a ten-thousandth: half of that."""
    made = recipes("silva/figure8", fraction=0.5)
    assert {recipe.data.fraction for recipe in made.values()} == {5e-5}


def test_epochs_are_in_proportion():
    """Table 1 of Silva has a run of 2 and two of 5 epochs; the moments of evaluation go along."""
    made = recipes("silva/table1", epochs=1)
    assert {name: recipe.optimisation.epochs for name, recipe in made.items()} == {
        "dot": 0.4, "dot 5 epochs": 1, "encoder 5 epochs": 1,
    }  # fmt: skip
    assert made["dot"].evaluation.at == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35])


def test_moments_of_frozen_heads_are_in_proportion():
    made = recipes("bertvision/table4", epochs=0.3)["answerable"]
    assert made.optimisation.epochs == 0.3
    assert made.frozen.at == pytest.approx([0.02, 0.1, 0.3])
    assert made.frozen.epochs == 10, "those of the heads are their own"


def test_the_longest_run_is_that_of_the_rows_that_are_chosen():
    made = recipes("silva/table1", epochs=1, rows=("dot, 2 epochs",))
    assert made["dot"].optimisation.epochs == 1


def test_recovery_of_pruning_is_in_proportion():
    made = recipes("schubert/table7", text="t.txt", epochs=0.5)
    assert made["all 88M"].recovery.epochs == 0.5
    assert made["all 88M"].data.train == ("t.txt",)


def test_one_model_leaves_out_rows_of_another_encoder():
    assert "BERT" in recipes("silva/table2")
    assert list(recipes("silva/table2", model="m")) == ["ALBERT", "weighted", "dot"]
    with pytest.raises(QuothError, match=r"^BERT: is of another encoder than the other rows, so leave out --model$"):
        plan("silva/table2", model="m", rows=("BERT",))


def test_overrides_reach_the_runs_that_have_the_key():
    """gates is a section of pruning alone, optimisation of the others; a key that no run has is a mistake."""
    settings = {"text": "t.txt", "rows": ("BERT-base", "optBERT-h"), "tasks": ("squad2",)}
    made = recipes("schubert/table6", overrides=("gates.steps=7", "optimisation.batch_size=4"), **settings)
    assert made["h 88M"].gates.steps == 7
    assert made["unpruned squad2"].optimisation.batch_size == 4
    assert made["h 88M squad2"].optimisation.batch_size == 4
    with pytest.raises(QuothError, match="unknown key gate"):
        plan("schubert/table6", overrides=("gate.steps=7",), **settings)


def test_models_are_tuned_after_they_are_pruned():
    """A second wave, for each seed from the model of that seed."""
    rows = ("optBERT-h", "ALBERT-e")
    waves = plan("schubert/table6", text="t.txt", rows=rows, tasks=("RTE",), seeds=(0, 1), model="m")
    first, second = ([one.folder for one in wave] for wave in waves)
    assert sorted(first) == ["ALBERT-e-88M-seed0", "ALBERT-e-88M-seed1", "h-88M-seed0", "h-88M-seed1"]
    assert {one.folder: one.recipe.model for one in waves[1]} == {
        "h-88M-RTE-seed0": "out/h-88M-seed0/keep-0.8115/model",
        "h-88M-RTE-seed1": "out/h-88M-seed1/keep-0.8115/model",
        "ALBERT-e-88M-RTE-seed0": "out/ALBERT-e-88M-seed0/start/model",
        "ALBERT-e-88M-RTE-seed1": "out/ALBERT-e-88M-seed1/start/model",
    }
    assert len(second) == 4


def test_what_is_finished_elsewhere_is_left_out():
    """But a pruning run stays while others begin from its model, which stored runs do not have."""
    waves = plan("schubert/table6", text="t.txt", rows=("optBERT-h",), tasks=("RTE", "squad2"))
    assert [[one.method for one in wave] for wave in still_needed(waves, {("h 88M", 0), ("h 88M RTE", 0)})] == [
        ["h 88M"], ["h 88M squad2"],
    ]  # fmt: skip
    assert still_needed(waves, {(one.method, 0) for wave in waves for one in wave}) == []
    assert still_needed(waves, {(one.method, 1) for wave in waves for one in wave}) == waves, "another seed"
    assert still_needed(waves, ()) == waves


def test_data_of_glue(tmp_path):
    for name in ("train", "dev"):
        (tmp_path / "RTE").mkdir(exist_ok=True)
        (tmp_path / f"RTE/{name}.tsv.gz").write_text("")
    rows = ("RTE: BERT", "RTE: lp")
    (made,) = recipes("bertvision/glue", glue=str(tmp_path), rows=rows).values()
    assert (made.data.train, made.data.evaluate) == (
        (f"{tmp_path}/RTE/train.tsv.gz",),
        f"{tmp_path}/RTE/dev.tsv.gz",
    )
    with pytest.raises(QuothError, match=r"MRPC/train.tsv.gz: no such file"):
        plan("bertvision/glue", glue=str(tmp_path))


def test_pruning_needs_text():
    with pytest.raises(QuothError, match="needs plain text: give --text FILE"):
        plan("schubert/table7")


@pytest.mark.parametrize("epochs", [0, -1])
def test_epochs_are_above_zero(epochs):
    with pytest.raises(QuothError, match=f"^--epochs is {epochs}; a number above 0 is wanted$"):
        plan("hulburd/table1", epochs=epochs)


def test_sources_are_looked_for_before_training(tmp_path):
    """A model or a file that is not there is told at once; what has finished needs neither."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "t.json").write_text("{}")
    given = Settings(model=str(tmp_path), train=str(tmp_path / "t.json"), evaluate="no.json", rows=("L0",))
    _, paper, item = find_item("hulburd/table1")
    with pytest.raises(QuothError, match=r"^no\.json: no such file$"):
        check_sources(plan_item(paper, item, given, tmp_path), tmp_path)
    with pytest.raises(QuothError, match=r"^/no/model: no such file or folder$"):
        check_sources(plan_item(paper, item, replace(given, model="/no/model"), tmp_path), tmp_path)
    here = replace(given, evaluate=str(tmp_path / "t.json"))
    check_sources(plan_item(paper, item, here, tmp_path), tmp_path)
    (tmp_path / "L0-seed0").mkdir()
    (tmp_path / "L0-seed0/metrics.json").write_text("{}")
    check_sources(plan_item(paper, item, given, tmp_path), tmp_path)

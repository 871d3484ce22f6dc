"""The numbers of rows from finished runs: moments, heads by epoch, ensembles, averages; and why there are none."""

import json
import shutil
from dataclasses import replace

import pytest

from experiments.comparison_material import write_questions
from experiments.paper_material import write_paper, write_run
from quoth.errors import QuothError
from quoth.experiments.paper_items import find_item, read_paper
from quoth.experiments.reproduce_values import Finished, find_row
from quoth.experiments.run_results import read_finished, sweeps_in

TASKS = ("squad2", "MNLI")


def finished(paper, *folders):
    found = Finished(read_paper(paper))
    for folder in folders:
        found.add(folder)
    return found


def row(name, wanted):
    return next(one for one in find_item(name)[2].rows if one.name == wanted)


def metrics(folder, **changes):
    """Change metrics.json of a run."""
    path = folder / "metrics.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    write_paper(folder / "hulburd", "hulburd", items=["table1"])
    write_paper(folder / "bertvision", "bertvision", items=["table2", "figure2", "figure6"])
    write_paper(folder / "silva", "silva", items=["table2", "figure7"])
    return folder


def test_a_run_of_its_own(stored):
    """Numbers, costs, (F1 − 50) / log₁₀ parameters and the last loss, a value for each seed."""
    found = find_row(
        finished("hulburd", stored / "hulburd"), row("hulburd/table1", "L6"), ("f1", "efficiency", "loss"), ()
    )
    assert [one.seed for one in found.results] == [0, 1]
    f1 = [json.loads((stored / f"hulburd/L6-seed{s}/metrics.json").read_text())["quality"]["f1"] for s in (0, 1)]
    assert found.values["f1"] == f1
    assert found.values["efficiency"] == pytest.approx([(one - 50) / 7.62888678 for one in f1])  # log₁₀ 42,548,738
    assert found.values["loss"] == [0.5, 0.5]
    assert found.why == ""


def test_a_moment_of_a_curve(stored):
    """Of a run of 6 epochs: what was measured then, but no answers; the end has both."""
    found = finished("bertvision", stored / "bertvision")
    columns = ("f1",)
    middle = find_row(found, row("bertvision/figure6", "2 epochs"), columns, ())
    points = json.loads((stored / "bertvision/fine-tuning-seed0/metrics.json").read_text())["evaluations"]
    assert middle.values["f1"][0] == next(one["f1"] for one in points if one["epoch"] == 2)
    assert [one.answers for one in middle.results] == [None, None]
    end = find_row(found, row("bertvision/figure6", "6 epochs"), columns, ())
    assert None not in [one.answers for one in end.results]


def test_moments_are_in_proportion(stored, tmp_path):
    """Of a run of a third of the epochs, 2 of 6 epochs are those at 2/3. What was not measured has no score."""
    write_run(
        tmp_path / "fine-tuning-seed0", read_paper("bertvision"), "fine-tuning", 0, stored / "bertvision/dev.json", "m"
    )
    recipe = tmp_path / "fine-tuning-seed0/recipe.toml"
    recipe.write_text(recipe.read_text().replace("epochs = 6", "epochs = 2"))
    scores = [{"epoch": 2 / 3, "f1": 61.0}, {"epoch": 2.0, "f1": 62.0}]
    metrics(tmp_path / "fine-tuning-seed0", evaluations=scores, epochs=2)
    found = finished("bertvision", tmp_path / "fine-tuning-seed0")
    assert find_row(found, row("bertvision/figure6", "2 epochs"), ("f1",), ()).values["f1"] == [61.0]
    assert "f1" not in find_row(found, row("bertvision/figure6", "4 epochs"), ("f1",), ()).values


def test_heads_by_epoch(stored):
    """The encoder after the last epoch is the run itself; a head has its own parameters."""
    found = finished("bertvision", stored / "bertvision")
    head = find_row(found, row("bertvision/table2", "adapter 64"), ("f1",), ())
    assert [one.folder.as_posix().partition("bertvision/")[2] for one in head.results] == [
        f"heads-seed{seed}/frozen/epoch-1/adapter-64" for seed in (0, 1)
    ]
    assert head.values["f1"] == [one.quality["f1"] for one in head.results]
    encoder = find_row(found, row("bertvision/table2", "BERT 1 epoch"), ("f1",), ())
    assert [one.folder.name for one in encoder.results] == ["heads-seed0", "heads-seed1"]
    early = find_row(found, replace(row("bertvision/table2", "BERT 1 epoch"), epoch=0.3), ("f1",), ())
    assert [one.folder.as_posix().partition("bertvision/")[2] for one in early.results] == [
        f"heads-seed{seed}/frozen/epoch-0.3/encoder" for seed in (0, 1)
    ]


def test_a_head_on_part_of_the_data(stored):
    found = finished("bertvision", stored / "bertvision")
    values = {
        part: find_row(found, row("bertvision/figure2", f"lp, 1 e, {part} %"), ("f1",), ()).values["f1"][0]
        for part in (1, 10, 30, 100)
    }
    assert sorted(values.values()) == list(values.values()), "the made-up curve rises"
    assert len(set(values.values())) == 4


def test_a_head_that_was_not_trained(stored):
    found = finished("bertvision", stored / "bertvision")
    wanted = replace(row("bertvision/table2", "adapter 64"), head="other")
    assert find_row(found, wanted, ("f1",), ()).why == "the run has no other there"


def test_ensembles(stored):
    """From the folder where their scores are kept."""
    found = finished("bertvision", stored / "bertvision")
    wanted = row("bertvision/table3", "ensemble 1 e")
    assert find_row(found, wanted, ("f1",), ()).why == "the run has no ensemble there"
    folder = stored / "bertvision/heads-seed0/ensembles/epoch-1/encoder+adapter-386"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text('{"quality": {"f1": 81.5, "exact": 80, "threshold": null}}')
    made = find_row(found, wanted, ("f1", "exact"), ())
    assert (made.values["f1"], made.values["exact"], made.seeds) == ([81.5], [80], (0,))
    (folder / "metrics.json").write_text('{"quality": []}')
    with pytest.raises(QuothError, match=r"encoder\+adapter-386/metrics\.json: is not what Quoth writes there"):
        find_row(found, wanted, ("f1",), ())


@pytest.fixture
def tuned(tmp_path):
    """The models that were tuned on one pruned model: two tasks, two seeds."""
    paper, dev = read_paper("schubert"), write_questions(tmp_path / "dev.json")
    for task in TASKS:
        for seed in (0, 1):
            folder = tmp_path / f"h-88M-{task}-seed{seed}"
            write_run(folder, paper, f"h 88M {task}", seed, dev, "m")
            metrics(folder, quality={"f1": 80.0 + seed, "exact": 70.0} if task == "squad2" else {"acc": 60.0 + seed})
    return tmp_path


def test_tuned_models(tuned):
    """F1 of SQuAD and accuracy of MNLI, averaged by seed over the tasks that were run."""
    found = finished("schubert", *tuned.glob("h-88M-*"))
    assert found.tasks == TASKS
    made = find_row(found, row("schubert/table6", "optBERT-h"), ("average",), found.tasks)
    assert made.values["squad2_f1"] == [80, 81]
    assert made.values["MNLI_acc"] == [60, 61]
    assert made.values["average"] == [70, 71]
    assert made.seeds == (0, 1)
    assert "average" not in find_row(found, row("schubert/table6", "optBERT-h"), ("average",), (*TASKS, "RTE")).values
    other = find_row(found, row("schubert/table6", "optBERT-f"), ("average",), TASKS)
    assert (other.values, other.why) == ({}, "squad2: not run")


def test_an_average_is_of_the_same_seeds(tuned):
    """One seed of a task has failed: seeds 0 and 1 of one task and seed 1 of the other make no average."""
    found = finished("schubert", *tuned.glob("h-88M-squad2-*"), tuned / "h-88M-MNLI-seed1")
    assert "average" not in find_row(found, row("schubert/table6", "optBERT-h"), ("average",), TASKS).values


def test_all_tasks_where_none_was_run():
    assert finished("schubert").tasks == ("squad1", "squad2", "MNLI", "MRPC", "SST-2", "RTE")


def test_why_there_are_no_numbers(stored, tmp_path):
    """A run that failed says why, one that waits that it has not finished; the other is not there."""
    listed = [
        {"folder": "L6-seed0", "method": "L6", "seed": 0, "state": "failed", "error": "m: no such file"},
        {"folder": "L3-seed0", "method": "L3", "seed": 0, "state": "waiting", "error": ""},
    ]
    (tmp_path / "sweep.json").write_text(json.dumps({"format": 1, "runs": listed}))
    found = finished("hulburd", tmp_path)
    told = {name: find_row(found, row("hulburd/table1", name), ("f1",), ()).why for name in ("L6", "L3", "L1")}
    assert told == {"L6": "m: no such file", "L3": "not finished", "L1": "not run"}
    missing = row("schubert/table15", "optBERT-f")
    assert find_row(finished("schubert"), missing, ("average",), ()).why == missing.missing != ""


def test_the_first_folder_with_a_run_counts(stored, tmp_path):
    write_paper(tmp_path, "hulburd", items=["table1"], seeds=1, model="other")
    one = finished("hulburd", tmp_path, stored / "hulburd").of("L6")
    assert [result.recipe["model"] for result in one] == ["other"]
    both = finished("hulburd", stored / "hulburd", tmp_path).of("L6")
    assert [result.recipe["model"] for result in both] == ["tiny", "tiny"]


def test_further_seeds_of_a_recipe_are_taken(stored, tmp_path):
    """Run folders that are named one by one; a seed that is there twice counts once."""
    runs = [stored / f"hulburd/L6-seed{seed}" for seed in (1, 0, 1)]
    shutil.copytree(runs[0], tmp_path / "L6-seed1")
    assert [one.seed for one in finished("hulburd", *runs, tmp_path / "L6-seed1").of("L6")] == [1, 0]


def test_a_run_of_another_name_counts_if_it_has_the_heads(stored, tmp_path):
    """L12 of a sweep may stand for the run with heads of BERTVision, but not if it has none."""
    paper, dev = read_paper("bertvision"), stored / "bertvision/dev.json"
    write_run(tmp_path / "L12-seed0", paper, "heads", 0, dev, "m")
    assert finished("bertvision", tmp_path / "L12-seed0").of("heads")
    assert finished("bertvision", stored / "hulburd").of("heads") == []


def test_a_run_of_another_paper_counts_beside_runs_of_this_one(stored, tmp_path):
    """L12 of Hulburd's table is not Silva's ALBERT; L12 of a sweep with Silva's heads is what they compare with."""
    assert finished("silva", stored / "hulburd").of("ALBERT") == []
    shutil.copytree(stored / "hulburd/L12-seed0", tmp_path / "L12-seed0")
    shutil.copytree(stored / "silva/dot-seed0", tmp_path / "Silva-dot-seed0")
    listed = [
        {"folder": f"{name.replace(' ', '-')}-seed0", "method": name, "seed": 0, "state": "finished", "error": ""}
        for name in ("L12", "Silva dot")
    ]
    (tmp_path / "sweep.json").write_text(json.dumps({"format": 1, "runs": listed}))
    found = finished("silva", tmp_path)
    assert [len(found.of(name)) for name in ("ALBERT", "dot", "weighted")] == [1, 1, 0]


def test_a_damaged_run_is_told(stored, tmp_path):
    """It is not taken for a run that was not made."""
    write_paper(tmp_path / "s", "hulburd", items=["table1"], seeds=1)
    (tmp_path / "s/L6-seed0/metrics.json").write_text('{"quality": 3}')
    with pytest.raises(QuothError, match=r"L6-seed0/metrics\.json: is not what Quoth writes there"):
        finished("hulburd", tmp_path / "s")
    recipe = tmp_path / "s/L3-seed0/recipe.toml"
    recipe.write_text('optimisation = {epochs = "many"}')
    with pytest.raises(QuothError, match=r"L3-seed0/recipe\.toml: is not what Quoth writes there"):
        finished("hulburd", tmp_path / "s/L3-seed0")


def test_a_folder_of_sweeps(stored):
    assert sweeps_in(stored) == [stored / name for name in ("bertvision", "hulburd", "silva")]
    assert sweeps_in(stored / "silva") == [stored / "silva"]
    with pytest.raises(QuothError, match="no such folder"):
        read_finished(sweeps_in(stored / "none"))


def test_a_record_that_is_no_json_is_told_once(tmp_path):
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(QuothError, match=r"sweep\.json: not valid JSON"):
        finished("hulburd", tmp_path)

"""benchmarks.papers.classes runs every task at every epoch, and its tables say what the runs' own metrics say."""

import gzip
import json
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from quoth.train.run import train
from train.material import FACTS, assert_same_weights, environment, make_model, make_questions

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))
from benchmarks.papers import classes, classes_tables  # noqa: E402
from benchmarks.pool import Job, read  # noqa: E402

AT = ("0.2", "1", "3")
RECIPES = {"MRPC": "mrpc", "RTE": "rte", "SST-2": "sst2", "CoLA": "cola"}
# Small enough for a CPU: short windows, two epochs of the heads.
SMALL = [
    "data.max_length=64", "data.step=24", "data.max_query_length=24", "frozen.epochs=2", "frozen.evaluate=[1, 2]",
]  # fmt: skip


def write_glue(folder):
    """GLUE's four tables, gzipped: twelve rows to train on, eight to be scored on."""
    texts = [sentence for sentence, *_ in FACTS]
    pairs = [(text, texts[(i + i % 2) % 12], i % 2) for i, text in enumerate(texts)]
    made = {
        "MRPC": ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *(f"{1 - y}\t1\t2\t{a}\t{b}" for a, b, y in pairs)],
        "RTE": ["index\tsentence1\tsentence2\tlabel", *(f"0\t{a}\t{b}\t{'not_' * y}entailment" for a, b, y in pairs)],
        "SST-2": ["sentence\tlabel", *(f"{a}\t{y}" for a, _, y in pairs)],
        "CoLA": [f"x\t{y}\t\t{a}" for a, _, y in pairs],
    }
    for task, lines in made.items():
        (folder / task).mkdir(parents=True)
        for part, last in (("train", None), ("dev", 9)):
            (folder / task / f"{part}.tsv.gz").write_bytes(gzip.compress("\n".join(lines[:last]).encode()))
    return folder


def run(*arguments):
    command = [sys.executable, "-m", "benchmarks.papers.classes", *map(str, arguments)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment(), cwd=ROOT
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory, minilm):
    """A folder with a tiny model, data, and the arguments of the command."""
    folder = tmp_path_factory.mktemp("classes")
    arguments = [
        "--model",
        make_model(folder / "small", minilm),
        "--out",
        folder / "runs",
        "--glue",
        write_glue(folder / "glue"),
    ]
    arguments += ["--squad-train", make_questions(folder / "train.json", seed=1, passages=2)]
    arguments += ["--squad-dev", make_questions(folder / "dev.json", seed=2, passages=1)]
    arguments += [
        "--batch-tokens",
        1024,
        "--glue-batch-tokens",
        128,
        "--seeds",
        1,
        "--sst2-fraction",
        0.5,
        "--workers",
        1,
    ]
    return folder, [*arguments, "--set", *SMALL]


@pytest.fixture(scope="module")
def output(place):
    return run(*place[1])


@pytest.fixture(scope="module")
def results(place, output):
    return json.loads((place[0] / "runs/results.json").read_text())


@pytest.mark.slow
def test_every_task_at_every_epoch(results):
    found = {name: (one["task"], f"{one['at']:g}", one["seed"]) for name, one in results["runs"].items()}
    wanted = {f"{recipe}-{at}-seed0": (task, at, 0) for task, recipe in RECIPES.items() for at in AT}
    assert found == {**wanted, **{f"answerable-{at}-seed0": ("answerable", at, 0) for at in AT}}
    for one in results["runs"].values():
        heads = one["heads"]
        assert len(heads) == (8 if one["task"] == "answerable" else 9)  # with the encoder and the control
        assert [[look["epoch"] for look in h["curve"]] for n, h in heads.items() if n != "encoder"] == [[1, 2]] * (
            len(heads) - 1
        )
        for name, head in heads.items():
            if name != "encoder":
                assert head["quality"].items() <= head["curve"][-1].items()
            if one["task"] == "answerable":  # a threshold of 0 is one of all
                assert head["best_exact"] >= head["quality"]["exact"] - 1e-9
                assert head["best_f1"] >= head["quality"]["f1"] - 1e-9


@pytest.mark.slow
def test_scores_are_those_of_the_run_folders(place, results):
    for name, one in results["runs"].items():
        facts = json.loads((place[0] / "runs" / name / "metrics.json").read_text())
        assert facts["quality"] == one["heads"]["encoder"]["quality"]
        (stage,) = facts["frozen"].values()
        assert {n: h["quality"] for n, h in stage["heads"].items()} == {
            n: h["quality"] for n, h in one["heads"].items()
        }


@pytest.mark.slow
def test_what_is_there_is_not_run_again(place, output):
    again = run(*place[1])
    assert again.startswith("15 of 15 runs are there, 0 to go")
    assert again[again.index("| epochs |") :] == output[output.index("| epochs |") :]


@pytest.mark.slow
def test_a_short_run_is_the_beginning_of_the_recipes_own(place, results, tmp_path):
    """The encoder and a head after 0.2 epoch, bit for bit, as the recipe as it stands makes them on its way to 3."""
    changes = results["runs"]["mrpc-0.2-seed0"]["overrides"]
    changes = [change for change in changes if not change.startswith(("optimisation.epochs", "frozen.at"))]
    assert changes.pop() == "optimisation.batch_tokens=128"
    recipe = read(Job("bertvision/mrpc", tuple(changes), 128, ""))
    assert (recipe.optimisation.epochs, recipe.frozen.at) == (3, (0.2, 1, 3))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        train(recipe, tmp_path / "whole", device="cpu")
    finally:
        torch.set_num_threads(threads)
    short = place[0] / "runs/mrpc-0.2-seed0"
    assert_same_weights(short / "model", tmp_path / "whole/snapshots/epoch-0.2")
    for name in ("lp", "xception-short"):
        mine, theirs = (folder / f"frozen/epoch-0.2/{name}/model" for folder in (short, tmp_path / "whole"))
        assert_same_weights(mine, theirs)


@pytest.mark.slow
def test_tables(results, output):
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in output.splitlines() if line.startswith("|")]
    asked, glue = rows[2 : 2 + 24], rows[2 + 24 + 2 :]
    assert len(glue) == 12
    one = results["runs"]["answerable-1-seed0"]["heads"]
    at_1 = {row[1]: row for row in asked if row[0] == "1"}
    assert list(at_1) == [
        "encoder",
        "linear",
        "lp",
        "lp-adapter-386",
        "ap-adapter-386",
        *[f"xception-{n}" for n in ("short", "short-cls", "full")],
    ]
    quality = one["lp"]["quality"]
    assert at_1["lp"][3] == f"{quality['exact']:.1f} / {quality['f1']:.1f}"
    assert at_1["lp"][6] == "78.2 / 76.3"
    assert at_1["encoder"][4] == "–"
    assert at_1["linear"][6] == "control, ours"
    assert output.count("| linear | lp |") == 1  # GLUE's columns: the control first
    assert [row[:2] for row in glue] == [
        [f"{task}, {'mcc' if task == 'CoLA' else 'acc'}", at] for task in RECIPES for at in AT
    ]
    for row in glue:
        assert float(row[3].split()[0]) == max(map(float, row[5:-1]))  # the control is not a best head
        assert "(linear)" not in row[3]
    assert [row[-1] for row in glue if row[-1]] == ["82.0 → 84.0", "63.9 → 72.6", "92.7 → 92.7", "53.4 → 60.0"]


@pytest.mark.slow
def test_several_seeds_are_a_mean_and_a_deviation(results):
    runs = dict(results["runs"])
    scores = {0: 70.0, 1: 72.0, 2: 80.0}
    for seed, score in scores.items():
        whole = json.loads(json.dumps(runs["rte-1-seed0"]))
        whole["seed"] = seed
        whole["heads"]["encoder"]["quality"]["acc"] = score
        runs[f"rte-1-seed{seed}"] = whole
    lines = classes_tables.glue_table({"runs": runs}).splitlines()
    (line,) = [line for line in lines if line.startswith("| RTE, acc | 1 |")]
    assert f"| {statistics.mean(scores.values()):.1f} ± {statistics.stdev(scores.values()):.1f} |" in line


@pytest.mark.slow
def test_plot(results, tmp_path):
    path = classes_tables.plot(results, tmp_path)
    assert path == tmp_path / "answerable.svg"
    text = path.read_text()
    assert all(name in text for name in ("encoder itself", "xception-short-cls", "encoder after 0.2 epochs"))
    assert classes_tables.plot({"runs": {}}, tmp_path) is None


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=20))
def test_best_thresholds_by_trying_all(rows):
    scores, labels = (np.array(column) for column in zip(*rows))
    labels = labels.astype(int)
    tried = [(scores >= threshold).astype(int) for threshold in (*np.unique(scores), 99)]
    assert classes.thresholds(scores.astype(float), labels) == pytest.approx(
        {
            "best_exact": 100 * max(accuracy_score(labels, said) for said in tried),
            "best_f1": 100 * max(f1_score(labels, said, zero_division=0) for said in tried),
        }
    )

"""Comparisons: rows and their numbers by hand, what is not known, which rows win, what is refused."""

import csv
import io
import json
import math
import re
from itertools import combinations
from statistics import mean

import numpy as np
import pytest
from scipy import stats

from experiments.comparison_material import METHODS, write_all, write_questions, write_run
from quoth.data import read
from quoth.errors import QuothError
from quoth.experiments.compare import compare_results
from quoth.experiments.run_results import COSTS, read_results
from quoth.score import score_squad2


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("compare"))


@pytest.fixture(scope="module")
def facts(written):
    results, unfinished = read_results(written.runs)
    return compare_results(results, unfinished, read(str(written.dev)))


def metrics_of(folder):
    return json.loads((folder / "metrics.json").read_text())


def test_rows_are_the_seeds_of_one_recipe(facts, written):
    rows = {row["name"]: row for row in facts["rows"]}
    assert len(rows) == 16
    for method in METHODS:
        name = method[0].replace(" ", "-")
        each = [metrics_of(written.folder / f"{name}-seed{seed}") for seed in range(3)]
        row = rows[name]
        assert row["seeds"] == [0, 1, 2]
        assert row["quality"]["f1"]["mean"] == pytest.approx(mean(one["quality"]["f1"] for one in each))
        for cost in COSTS:
            assert row["costs"][cost] == pytest.approx(mean(one[cost] for one in each))
        wanted = (row["quality"]["f1"]["mean"] - 50) / math.log10(method[1])
        assert row["efficiency"] == pytest.approx(wanted)
    assert [row["quality"]["f1"]["mean"] for row in facts["rows"]] == sorted(
        (row["quality"]["f1"]["mean"] for row in facts["rows"]), reverse=True
    )


def test_the_published_efficiency_of_hulburd(tmp_path):
    """L6: F1 75.2 with 42,548,738 trainable parameters is 3.30; the score is put into metrics.json as published."""
    dev = write_questions(tmp_path / "dev.json")
    run = write_run(tmp_path / "l6", dev, METHODS[3], 0)
    (run / "answers.jsonl").unlink()
    facts = metrics_of(run)
    (run / "metrics.json").write_text(json.dumps({**facts, "quality": {"f1": 75.2, "exact": 72.3}}))
    row = compare_results(read_results([run])[0])["rows"][0]
    assert round(row["efficiency"], 2) == 3.30
    assert row["quality"]["f1"]["interval"] is None, "without answers nothing is said of chance"


def test_what_is_not_known_is_none(facts):
    pruned = next(row for row in facts["rows"] if row["name"] == "pruned: keep-0.5")
    for cost in ("trainable_parameters", "train_seconds", "peak_memory", "bytes"):
        assert pruned["costs"][cost] is None
        assert cost not in pruned["pareto"]
    assert pruned["efficiency"] is None
    assert pruned["costs"]["inference_seconds"] == 40.0
    assert len(pruned["layers"]) == 12


@pytest.mark.parametrize("tuned", [True, False])
def test_heads_on_frozen_states_are_rows(tuned, tmp_path):
    """With their own parameters and bytes, and no times; the encoder at its end is the run's own row, if it has one."""
    dev = write_questions(tmp_path / "dev.json")
    head = {"parameters": 770, "quality": {"f1": 51.0}, "layer_weights": {"lp": [0.25, 0.75]}}
    stage = {"heads": {"lp": head, "encoder": {"quality": {"f1": 49.0}}}}
    stages = {"1": stage, "3": stage} if tuned else {"0": stage}
    run = write_run(tmp_path / "run", dev, METHODS[0], 0, frozen=stages)
    (run / "answers.jsonl").unlink()
    if not tuned:
        _change(run, quality={}, epochs=0.0)
    (run / f"frozen/epoch-{'3' if tuned else '0'}/lp/model").mkdir(parents=True)
    (run / f"frozen/epoch-{'3' if tuned else '0'}/lp/model/delta.safetensors").write_bytes(b"x" * 99)
    rows = {row["name"]: row for row in compare_results(read_results([run])[0])["rows"]}
    if tuned:
        ends = ("lp at epoch 1", "lp at epoch 3", "encoder at epoch 1")
        assert rows.keys() == {"run", *(f"run: {end}" for end in ends)}
    else:
        assert rows.keys() == {"run: lp", "run: encoder"}
    last = rows["run: lp at epoch 3" if tuned else "run: lp"]
    assert (last["costs"]["trainable_parameters"], last["costs"]["bytes"]) == (770, 99)
    assert last["costs"]["train_seconds"] is last["costs"]["total_parameters"] is None
    assert last["layer_weights"] == {"lp": [0.25, 0.75]}


def test_pareto_rows_by_brute_force(facts):
    rows = facts["rows"]
    for cost in COSTS:
        known = [row for row in rows if row["costs"][cost] is not None]
        for row in rows:
            mine = (row["costs"][cost], -row["quality"]["f1"]["mean"])
            beaten = any(
                other["costs"][cost] <= mine[0]
                and -other["quality"]["f1"]["mean"] <= mine[1]
                and (other["costs"][cost], -other["quality"]["f1"]["mean"]) != mine
                for other in known
                if mine[0] is not None
            )
            assert (cost in row["pareto"]) == (mine[0] is not None and not beaten)


def test_all_pairs_are_there_and_corrected(facts):
    pairs = facts["pairs"]
    assert [tuple(pair["rows"]) for pair in pairs] == list(combinations(range(1, 17), 2))
    order = sorted(pairs, key=lambda pair: pair["p_value"])
    running = 0.0
    for k, pair in enumerate(order):
        running = max(running, min(1.0, (120 - k) * pair["p_value"]))
        assert pair["corrected"] == pytest.approx(running)
    worst = next(pair for pair in pairs if pair["rows"] == [1, 16])
    assert worst["corrected"] < 0.05
    assert set(facts["within_noise"]) | set(facts["worse"]) == set(range(2, 17))
    assert 16 in facts["worse"]


def test_a_pair_with_single_seeds_is_a_t_test_over_passages(written):
    """Equal passages of eight questions: the t-test of the passages' means."""
    results, _ = read_results([written.folder / "L0-seed0", written.folder / "L12-seed0"])
    found = compare_results(results, (), read(str(written.dev)))
    questions = read(str(written.dev)).questions
    by_passage = []
    for row in found["rows"]:
        lines = [json.loads(line) for line in open(f"{row['runs'][0]}/answers.jsonl")]  # noqa: SIM115, PTH123
        texts = {line["id"]: "" if line["null_minus_best"] > 0 else line["answers"][0][0] for line in lines}
        by_passage.append(score_squad2(questions, texts).f1.reshape(40, 8).mean(1))
    wanted = stats.ttest_rel(*by_passage)
    (pair,) = found["pairs"]
    assert pair["p_value"] == pytest.approx(wanted.pvalue, rel=1e-9)
    assert pair["difference"] == pytest.approx(100 * np.mean(by_passage[0] - by_passage[1]))
    interval = wanted.confidence_interval()
    assert pair["interval"] == pytest.approx([100 * interval.low, 100 * interval.high])


def test_curves_where_runs_differ(facts):
    """Data: 10, 30 and 100 %; epochs: 1, 2 and 3; and the evaluations of each run."""
    (data,) = facts["curves"]["data"]
    assert data["x"] == [0.1, 0.3, 1.0]
    rows = {row["number"]: row["quality"]["f1"]["mean"] for row in facts["rows"]}
    assert data["mean"] == pytest.approx([rows[number] for number in data["rows"]])
    separate = [line for line in facts["curves"]["epochs"] if "separate" in line["name"]]
    assert [line["x"] for line in separate] == [[1.0, 2.0, 3.0]]
    within = next(line for line in facts["curves"]["epochs"] if line["name"] == "L6")
    assert within["x"] == [0.75, 1.5, 2.25, 3.0]
    assert all(low <= middle <= high for low, middle, high in zip(within["low"], within["mean"], within["high"]))
    assert len(facts["curves"]["risk_coverage"]) == 16
    last = facts["curves"]["risk_coverage"][0]
    assert (last["coverage"][-1], 100 - 100 * last["risk"][-1]) == pytest.approx((1.0, rows[1]))


def test_the_summary_says_what_the_numbers_say(facts):
    first, best, noise, *_ = facts["summary"]
    assert first.startswith("16 methods, 1 to 3 seeds each (44 models), evaluated on 320 questions of ")
    assert f"{facts['rows'][0]['name']}: {facts['rows'][0]['quality']['f1']['mean']:.2f}" in best
    assert noise.startswith("Within noise of it: ")
    assert f"{len(facts['worse'])} others are worse by more than noise." in noise


def test_at_80_columns_no_number_is_cut(written, cli, monkeypatch, facts):
    monkeypatch.setenv("COLUMNS", "80")
    said = cli("compare", *written.runs)
    assert said.returncode == 0, said.stderr
    assert max(map(len, said.stdout.splitlines())) <= 80
    assert "…" not in said.stdout
    for row in facts["rows"]:
        for key in ("f1", "exact", "best_f1"):
            assert f"{row['quality'][key]['mean']:.2f}" in said.stdout
        trainable = row["costs"]["trainable_parameters"]
        assert trainable is None or f"{trainable:,}" in said.stdout
    assert not re.search(r"-0\.00\b", said.stdout)


def test_csv_and_json(written, cli, tmp_path, facts):
    said = cli("compare", *written.runs, "--csv", tmp_path / "t.csv", "--json")
    assert json.loads(said.stdout) == json.loads(json.dumps(facts))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert [float(row["f1"]) for row in rows] == [row["quality"]["f1"]["mean"] for row in facts["rows"]]
    pruned = next(row for row in rows if row["method"] == "pruned: keep-0.5")
    assert pruned["trainable_parameters"] == ""


def test_a_sweep_folder_and_its_unfinished_runs(written, tmp_path):
    dev = write_questions(tmp_path / "dev.json")
    runs = []
    for method, seed in ((METHODS[0], 0), (METHODS[0], 1), (METHODS[1], 0)):
        write_run(tmp_path / f"{method[0]}-seed{seed}", dev, method, seed)
        runs.append(
            {"folder": f"{method[0]}-seed{seed}", "method": f"my {method[0]}", "state": "finished", "error": ""}
        )
    runs.append({"folder": "gone", "method": "gone", "state": "failed", "error": "no room"})
    (tmp_path / "sweep.json").write_text(json.dumps({"format": 1, "runs": runs}))
    results, unfinished = read_results([tmp_path, tmp_path / "L0-seed0"])
    found = compare_results(results, unfinished, read(str(dev)))
    assert [(row["name"], row["seeds"]) for row in found["rows"]] == [("my L1", [0]), ("my L0", [0, 1])]
    assert found["unfinished"] == [{"run": str(tmp_path / "gone"), "why": "no room"}]
    assert "no room" in found["summary"][-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: (run / "metrics.json").unlink(), "has no metrics.json and no sweep.json"),
        (lambda run: (run / "metrics.json").write_text("{}"), "metrics.json: is not what Quoth writes there"),
        (lambda run: (run / "metrics.json").write_text("["), "not valid JSON"),
        (lambda run: (run / "answers.jsonl").write_text("{}\n"), "answers.jsonl, line 1: an object"),
        (lambda run: _change(run, bytes=-1), "is not what Quoth writes there"),
        (lambda run: _change(run, bytes=10**400), "is not what Quoth writes there"),
        (lambda run: _change(run, quality={"f1": 12.0}), "has F1 .* but metrics.json says 12.00"),
        (lambda run: _change(run, quality={}), "no run has a score"),
    ],
)
def test_bad_runs_are_one_line(change, message, tmp_path, cli):
    dev = write_questions(tmp_path / "dev.json")
    run = write_run(tmp_path / "run", dev, METHODS[0], 0)
    change(run)
    said = cli("compare", run)
    assert said.returncode == 2
    assert re.search(message, said.stderr.splitlines()[-1])
    assert "Traceback" not in said.stderr


def _change(run, **keys):
    (run / "metrics.json").write_text(json.dumps({**metrics_of(run), **keys}))


def test_other_data_are_refused_and_missing_data_told(tmp_path, cli):
    one = write_run(tmp_path / "one", write_questions(tmp_path / "a.json"), METHODS[0], 0)
    two = write_run(tmp_path / "two", write_questions(tmp_path / "b.json"), METHODS[1], 0)
    said = cli("compare", one, two)
    assert said.returncode == 2
    assert "compare them apart, or give --data if these are the same questions" in said.stderr
    assert cli("compare", one, two, "--data", tmp_path / "a.json").returncode == 0
    (tmp_path / "a.json").unlink()
    said = cli("compare", one, "--json")
    assert "without the questions there are no intervals" in said.stderr
    assert json.loads(said.stdout)["rows"][0]["quality"]["f1"]["interval"] is None


def test_an_unknown_score(tmp_path, cli):
    run = write_run(tmp_path / "one", write_questions(tmp_path / "a.json"), METHODS[0], 0)
    assert "--by x: no run has this score; choose exact, f1, best_f1" in cli("compare", run, "--by", "x").stderr
    with pytest.raises(QuothError, match="no such folder"):
        read_results([tmp_path / "none"])
    assert cli("compare").returncode == 2


def test_a_bad_place_leaves_nothing(tmp_path, cli):
    run = write_run(tmp_path / "one", write_questions(tmp_path / "a.json"), METHODS[0], 0)
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for arguments in (("--out", tmp_path / "folder"), ("--csv", tmp_path / "folder"), ("--plots", tmp_path / "p")):
        said = cli("compare", run, *arguments)
        assert (said.returncode, said.stdout) == (2, "")
        assert sorted(tmp_path.rglob("*")) == before

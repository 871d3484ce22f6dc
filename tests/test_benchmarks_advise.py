"""`benchmarks.advise`: its questions, its verdict by hand, and a run of it on tiny data in two parts."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.advise import _earlier
from benchmarks.advise_jobs import prepare
from benchmarks.advise_table import judge, tables

from quoth.data import read
from quoth.errors import QuothError
from train.material import environment, make_model

ROOT = Path(__file__).parent.parent


def trained(f1, seconds=10.0, windows=1000):
    return {"quality": {"f1": 1.0, "best_f1": f1}, "windows": windows, "train_seconds": 5.0, "process_seconds": seconds}


def searched(best, *names):
    cost = {"windows": 300, "train_seconds": 1.0}
    return {"best": best, "rows": [{"name": name} for name in names], "cost": cost, "process_seconds": 2.0}


JOBS = {
    "squad-search-free": searched("full 1e-4", "full 1e-4", "LoRA 1e-3", "half depth 1e-4"),
    "squad-search-latency": {**searched("half depth 1e-4", "half depth 1e-4"), "plan_seconds": 1.0},
    "squad-train-full-1e-4-seed0": trained(60.0),
    "squad-train-full-1e-4-seed1": trained(62.0),
    "squad-train-LoRA-1e-3-seed0": trained(61.5),
    "squad-train-half-depth-1e-4-seed0": trained(55.0, seconds=20.0),
    "reddit-train-half-depth-1e-4-seed0": trained(1.0),
}


def test_the_verdict_by_hand():
    found = judge("squad", JOBS)
    assert found["sweep"].keys() == {"full-1e-4", "LoRA-1e-3", "half-depth-1e-4"}
    free, latency = found["searches"]
    assert (free["choice"], free["choice_f1"], free["best"], free["best_f1"]) == ("full-1e-4", 61.0, "LoRA-1e-3", 61.5)
    assert free["regret"] == 0.5
    assert free["share_of_windows"] == 300 / 3000
    assert free["share_of_seconds"] == 2.0 / 40
    assert free["share_of_train_seconds"] == 1.0 / 15
    assert (latency["regret"], latency["candidates"]) == (0.0, 1)
    assert latency["share_of_seconds"] == 3.0 / 20


def test_without_all_trainings_nothing_is_judged():
    left = {key: facts for key, facts in JOBS.items() if "LoRA" not in key}
    free, latency = judge("squad", left)["searches"]
    assert "regret" not in free
    assert (free["trained"], free["candidates"]) == (2, 3)
    assert latency["regret"] == 0.0


def test_what_was_made_with_other_settings_is_not_gone_on_with(tmp_path):
    asked = {"questions": 3000, "test": 3000, "seeds": 1, "size": 35e6}
    (tmp_path / "results.json").write_text(json.dumps({"asked": asked, "jobs": {}}))
    options = argparse.Namespace(**{**asked, "questions": 2000}, workers=1, resume=None, out=tmp_path, device="cpu")
    with pytest.raises(QuothError, match=r"--questions 3000, not 2000"):
        _earlier(options, ["squad"])


def articles(path, sizes):
    """A SQuAD file: articles of so many passages with two questions each."""

    def passage(a, p):
        context = f"In article {a} passage {p} says seven and eight."
        answers = {word: [{"text": word, "answer_start": context.index(word)}] for word in ("seven", "eight")}
        qas = [{"id": f"{a}-{p}-{w}", "question": f"Says {a} {w}?", "answers": answers[w]} for w in answers]
        return {"context": context, "qas": qas}

    data = [{"title": f"T{a}", "paragraphs": [passage(a, p) for p in range(n)]} for a, n in enumerate(sizes)]
    path.write_text(json.dumps({"version": "1.1", "data": data}))
    return path


@pytest.mark.parametrize(("sizes", "by"), [([3] * 20, "title"), ([40], "context")])
def test_the_two_parts_have_no_text_in_common(tmp_path, sizes, by):
    source = articles(tmp_path / "all.json", sizes)
    mine, test = (read(path).questions for path in prepare("squad", str(source), tmp_path / "work", 20, 10))
    assert (len(mine), len(test)) == (20, 10)
    assert not {getattr(one, by) for one in mine} & {getattr(one, by) for one in test}


def test_an_article_of_most_questions_is_not_taken(tmp_path):
    source = articles(tmp_path / "all.json", [30, *[2] * 15])
    parts = prepare("squad", str(source), tmp_path / "work", 20, 10)
    assert "T0" not in {one.title for path in parts for one in read(path).questions}


@pytest.mark.slow
def test_stopped_and_gone_on_with(minilm, tmp_path):
    """Nothing is started after the time that is given; the next call does the rest, and shows all of it."""
    source = articles(tmp_path / "all.json", [3] * 20)
    model = make_model(tmp_path / "small", minilm)
    command = [
        sys.executable, "-m", "benchmarks.advise", "--model", str(model), "--squad", str(source), "--questions", "20",
        "--test", "10", "--workers", "1", "--device", "cpu", "--size", "1.8e6",
    ]  # fmt: skip

    def run(*more):
        return subprocess.run(
            [*command, *map(str, more)], cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
        ).stdout

    shown = run("--out", tmp_path / "one", "--stop-after", "0")
    assert "not done: 19 jobs, the first is squad-search-free" in shown
    results = json.loads((tmp_path / "one/results.json").read_text())
    assert len(results["left"]) == 19
    most = results["left"][2:]
    results["jobs"] = {name: searched("BitFit 3e-3") if "search" in name else trained(1.0) for name in most}
    results["jobs"].pop("squad-train-full-1e-4-seed0")
    (tmp_path / "earlier.json").write_text(json.dumps(results))
    shown = run("--out", tmp_path / "two", "--resume", tmp_path / "earlier.json")
    results = json.loads((tmp_path / "two/results.json").read_text())
    assert "3 jobs of 19 are left" in shown
    assert (len(results["jobs"]), results["left"]) == (19, [])
    assert shown.endswith(tables(results) + "\n")
    searches = {one["limits"]: one for one in judge("squad", results["jobs"])["searches"]}
    assert 0 <= searches["free"]["regret"] <= 100
    assert searches["free"]["trained"] == 16

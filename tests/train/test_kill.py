"""Kill and resume: 20 SIGKILLs at random moments give the weights of a run that was not interrupted."""

import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress

import pytest
from safetensors.torch import load_file

from quoth.train.recipe import make_recipe
from train.material import assert_same_weights, losses, make_model, quoth, start, table

SEED = 20260731
STEPS_AN_EPOCH = 25  # of 100 windows, 4 a step
EVALUATIONS = [step / STEPS_AN_EPOCH for step in range(10, 130, 10)]  # where the log has a line: see `in_evaluation`
SNAPSHOTS = [step / STEPS_AN_EPOCH for step in range(5, 130, 10)]
KINDS = ["checkpoint"] * 7 + ["evaluation"] * 3 + ["snapshot"] * 3 + ["step"] * 4 + ["start"] * 2


def parts(folder, name):
    """What is being written there at this moment."""
    try:
        return {entry.name for entry in os.scandir(folder) if entry.name.startswith(f".{name}")}
    except FileNotFoundError:
        return set()


def in_evaluation(run):
    """At every tenth step a line with the loss is written before the evaluation, and one with the scores after it."""
    try:
        last = (run / "log.jsonl").read_text().splitlines()[-1:]
        life = (run / "log.jsonl").stat().st_ino  # the log is written anew when a process begins
    except FileNotFoundError:
        return set()
    facts = json.loads(last[0]) if last and last[0].endswith("}") else {}
    return {(life, facts["step"])} if "loss" in facts and facts["step"] % 10 == 0 else set()


STATES = {
    "checkpoint": lambda run: parts(run / "checkpoints", "step-"),
    "snapshot": lambda run: parts(run / "snapshots", "epoch-"),
    "evaluation": in_evaluation,
    "end": lambda run: parts(run, "model."),
}


def kept(run):
    """The complete checkpoints, the latest last."""
    return sorted((run / "checkpoints").glob("step-*"))


def live_and_die(run, process, kind, drawn):
    """Kill the group of a process in the midst of this. Returns in the midst of what it truly died."""
    before = {state: found(run) for state, found in STATES.items()}  # what an earlier kill has left behind
    checkpoints = kept(run)
    try:
        if kind == "start":
            time.sleep(drawn.uniform(1, 4))
        elif kind == "step":
            while kept(run) == checkpoints and process.poll() is None:
                time.sleep(0.001)
            time.sleep(drawn.uniform(0, 0.4))
        else:
            seen = set(before[kind])
            for _ in range(drawn.choice([1, 1, 2, 3]) if kind == "checkpoint" else 1):
                while process.poll() is None and not (now := STATES[kind](run) - seen):
                    time.sleep(0.0005)
                seen |= now
            time.sleep(drawn.uniform(0, 0.015 if kind == "checkpoint" else 0.005))
        assert process.poll() is None, f"ended by itself, so there were too few steps:\n{process.communicate()}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    return next((state for state, found in STATES.items() if found(run) - before[state]), "elsewhere")


@pytest.fixture(scope="module")
def recipe(minilm, material, tmp_path_factory):
    """A model of 2 million parameters, nearly all of them words: a checkpoint (24 MB) takes longer than a step."""
    folder = tmp_path_factory.mktemp("kill")
    model = make_model(folder / "wide", minilm, hidden_size=64)
    made = table(
        model,
        material.train,
        material.train,
        optimisation={"epochs": 5.2, "batch_size": 4},
        evaluation={"at": EVALUATIONS, "snapshots": SNAPSHOTS},
    )
    path = folder / "recipe.toml"
    path.write_text(make_recipe(made).to_toml())
    return path


@pytest.mark.slow
def test_twenty_kills(recipe, tmp_path):
    print(f"seed {SEED}")
    undisturbed = start("train", recipe, "--out", tmp_path / "whole")
    drawn = random.Random(SEED)
    run = tmp_path / "run"
    died = Counter()
    for number, kind in enumerate([*drawn.sample(KINDS, len(KINDS)), "end"]):
        before = kept(run)
        process = start("train", recipe, "checkpoints.seconds=0", "--out", run)
        died[where := live_and_die(run, process, kind, drawn)] += 1
        print(f"kill {number + 1}, meant for {kind}: {where}, {', '.join(path.name for path in kept(run))}")
        if before and not (run / "metrics.json").exists():
            assert kept(run)[-1] >= before[-1]
            json.loads((kept(run)[-1] / "state.json").read_text())
            load_file(kept(run)[-1] / "state.safetensors")
    print(dict(died))
    assert sum(died.values()) == 20
    assert died["checkpoint"] >= 5
    assert min(died[state] for state in ("evaluation", "snapshot", "elsewhere")) >= 1

    result = quoth("train", recipe, "checkpoints.seconds=0", "--out", run)
    assert result.returncode == 0, result.stderr
    assert undisturbed.wait(timeout=300) == 0, undisturbed.communicate()
    undisturbed.communicate()
    assert_same_weights(run / "model", tmp_path / "whole/model")
    assert losses(run) == losses(tmp_path / "whole")
    for path in (tmp_path / "whole/snapshots").iterdir():
        assert_same_weights(run / "snapshots" / path.name, path)
    scores = [
        [{key: value for key, value in found.items() if key != "seconds"} for found in facts["evaluations"]]
        for facts in (json.loads((folder / "metrics.json").read_text()) for folder in (run, tmp_path / "whole"))
    ]
    assert scores[0] == scores[1]
    left = [path.name for path in run.rglob(".*") if path.name != ".lock"]
    assert not left, "nothing half-written stays"
    assert not (run / "checkpoints").exists()
